"""Sparse convolution as an op."""

from sparse_core.conv.convolution.api import sparse_convolution

__all__ = ["sparse_convolution"]
