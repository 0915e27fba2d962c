"""Sparse convolution op."""

from sparse_core.conv.convolution.api import fixed_convolution, pack_weight, sparse_convolution
from sparse_core.conv.convolution.choice import convolution_tuning
from sparse_core.conv.convolution.plan import ConvolutionConfig

__all__ = [
    "ConvolutionConfig",
    "convolution_tuning",
    "fixed_convolution",
    "pack_weight",
    "sparse_convolution",
]
