"""The neck and the heat map near active cells only, exactly: elsewhere they are those of an empty scene."""

from perception.stages.neck.api import near_lists, near_tables
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps, list_reach, work_share
from perception.stages.neck.gpu_bounded import NearNeck
from perception.stages.neck.gpu_dense import WholeNeck
from perception.stages.neck.map_convolution import MapConvolution
from perception.stages.neck.weights import NeckWeights

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
