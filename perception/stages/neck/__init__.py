"""Neck and heat map for each device and grid, computed near active cells only.

Other cells have the exact values of an empty scene (:mod:`perception.stages.neck.empty`).
"""

from perception.stages.neck.api import near_lists, near_tables
from perception.stages.neck.cpu_bounded import CpuBoundedNeck
from perception.stages.neck.cpu_unbounded import CpuUnboundedNeck
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps, list_reach, work_share
from perception.stages.neck.gpu_bounded import GpuBoundedNeck
from perception.stages.neck.gpu_dense import GpuDenseNeck
from perception.stages.neck.gpu_unbounded import GpuUnboundedNeck
from perception.stages.neck.map_convolution import MapConvolution
from perception.stages.neck.weights import NeckWeights

__all__ = [
    "CpuBoundedNeck",
    "CpuUnboundedNeck",
    "EmptyMaps",
    "GpuBoundedNeck",
    "GpuDenseNeck",
    "GpuUnboundedNeck",
    "MapConvolution",
    "NearTables",
    "NeckWeights",
    "WrittenMaps",
    "list_reach",
    "near_lists",
    "near_tables",
    "work_share",
]
