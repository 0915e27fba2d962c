"""Sparse convolution: tables of coordinates and neighbours, layers and pooling."""

from sparse_core.conv.combine import cat
from sparse_core.conv.convolution import (
    ConvolutionConfig,
    convolution_tuning,
    fixed_convolution,
    pack_weight,
    sparse_convolution,
)
from sparse_core.conv.coordinates import CoordinateTable, build_table
from sparse_core.conv.modules import (
    SparseConv2d,
    SparseConv3d,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SubmanifoldConv2d,
    SubmanifoldConv3d,
)
from sparse_core.conv.neighbours import strided_table, submanifold_table, transposed_table
from sparse_core.conv.pooling import (
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    global_pool,
)
from sparse_core.conv.table import NeighbourTable
from sparse_core.conv.tensor import SparseTensor

__all__ = [
    "ConvolutionConfig",
    "CoordinateTable",
    "NeighbourTable",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseTensor",
    "SubmanifoldConv2d",
    "SubmanifoldConv3d",
    "build_table",
    "cat",
    "convolution_tuning",
    "fixed_convolution",
    "global_pool",
    "pack_weight",
    "sparse_convolution",
    "strided_table",
    "submanifold_table",
    "transposed_table",
]
