"""The neck and the heat map near active cells only, exactly: elsewhere they are those of an empty scene."""

from perception.fast.nearby.api import near_lists, near_tables, restore_empty
from perception.fast.nearby.layout import EmptyMaps, NearTables, WrittenMaps, list_reach, work_share
from perception.fast.nearby.neck import NearNeck, NeckWeights

__all__ = [
    "EmptyMaps",
    "NearNeck",
    "NearTables",
    "NeckWeights",
    "WrittenMaps",
    "list_reach",
    "near_lists",
    "near_tables",
    "restore_empty",
    "work_share",
]
