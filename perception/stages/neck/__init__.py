"""The neck and the heat map near active cells only, exactly: elsewhere they are those of an empty scene."""

from perception.stages.neck.api import near_lists, near_tables, restore_empty
from perception.stages.neck.listed import NearNeck, NeckWeights
from perception.stages.neck.maps import MapConvolution
from perception.stages.neck.near import EmptyMaps, NearTables, WrittenMaps, list_reach, work_share

__all__ = [
    "EmptyMaps",
    "MapConvolution",
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
