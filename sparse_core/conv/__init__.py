"""Sparse convolution: coordinate tables, kernel maps and layers."""

from sparse_core.conv.convolution import (
    ConvolutionConfig,
    convolution_tuning,
    fixed_convolution,
    pack_weight,
    sparse_convolution,
)
from sparse_core.conv.kernel_map import KernelMap, strided_map, submanifold_map
from sparse_core.conv.modules import (
    SparseConv2d,
    SparseConv3d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SubmanifoldConv2d,
    SubmanifoldConv3d,
)
from sparse_core.conv.table import CoordinateTable, build_table
from sparse_core.conv.tensor import SparseTensor

__all__ = [
    "ConvolutionConfig",
    "CoordinateTable",
    "KernelMap",
    "SparseConv2d",
    "SparseConv3d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseTensor",
    "SubmanifoldConv2d",
    "SubmanifoldConv3d",
    "build_table",
    "convolution_tuning",
    "fixed_convolution",
    "pack_weight",
    "sparse_convolution",
    "strided_map",
    "submanifold_map",
]
