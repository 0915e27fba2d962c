"""The neck and the heat map near active cells only, exactly: elsewhere they are those of an empty scene."""

from perception.stages.neck.api import near_lists, near_tables
from perception.stages.neck.listed import NearNeck
from perception.stages.neck.maps import MapConvolution
from perception.stages.neck.near import EmptyMaps, NearTables, WrittenMaps, list_reach, work_share
from perception.stages.neck.weights import NeckWeights
from perception.stages.neck.whole import WholeNeck

__all__ = [
    "EmptyMaps",
    "MapConvolution",
    "NearNeck",
    "NearTables",
    "NeckWeights",
    "WholeNeck",
    "WrittenMaps",
    "list_reach",
    "near_lists",
    "near_tables",
    "work_share",
]
