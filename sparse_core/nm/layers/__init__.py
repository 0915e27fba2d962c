"""Layers that hold a coded weight, and the conversion of models to them."""

from sparse_core.nm.layers.sparse_linear import SparseLinear

__all__ = ["SparseLinear"]
