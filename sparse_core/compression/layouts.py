"""The weight of any supported layer as the matrix whose rows are outputs and whose columns are inputs."""

from __future__ import annotations

from torch import nn

from sparse_core.conv import SparseConv2d, SparseInverseConv2d, SubmanifoldConv2d
from sparse_core.nm.packing.matrix_view import Layout
from sparse_core.nm.pattern import ConvLayout

SPARSE_CONVOLUTIONS: tuple[type[nn.Module], ...] = (SubmanifoldConv2d, SparseConv2d, SparseInverseConv2d)
"""Layers of :mod:`sparse_core.conv`; the 3-D ones are subclasses."""

COMPRESSIBLE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d, *SPARSE_CONVOLUTIONS)
"""Layers whose weight :func:`sparse_core.compression.compress_model` takes."""


def layout_of(module: nn.Module, conv_layout: ConvLayout = "unfold") -> Layout:
    """The layout for the weight of a layer of :data:`COMPRESSIBLE`.

    Args:
        module: the layer.
        conv_layout: of ``NMPattern``, for dense convolutions.
    """
    if isinstance(module, nn.ConvTranspose2d):
        return "transposed"
    if isinstance(module, nn.Conv2d) and conv_layout == "channels_last":
        return "channels_last"
    return "rows"
