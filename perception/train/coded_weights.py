"""Weights trained in their stored form: rounded to few bits, or shared through a codebook.

Both classes are parametrizations of a layer's weight, applied after its mask.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sparse_core.compression import Coding, CompressedWeight, compress, quantise_groups
from sparse_core.nm import NMPattern
from sparse_core.nm.packing.matrix_view import Layout, pad_columns


class RoundedWeight(nn.Module):
    """Rounding of a weight as in ``compress``, with a straight-through gradient.

    Args:
        weight: initial weight; its masked values are zero.
        coding: int8 or int4, see :class:`~sparse_core.compression.Coding`.
        pattern: n:m; None for a weight without a mask.
        layout: matrix layout of the weight.
        mask: of the weight's shape, True for kept values.
    """

    order: Tensor

    def __init__(
        self, weight: Tensor, coding: Coding, pattern: NMPattern | None, layout: Layout, mask: Tensor | None
    ) -> None:
        super().__init__()
        # Column of every stored value in its row, in the order in which values share scales.
        stored = compress(weight.detach(), pattern, "float32", mask=mask, layout=layout, pad=True)
        first = torch.arange(stored.groups, device=weight.device)[:, None] * stored.pattern.m
        order = (stored.positions().long() + first).flatten(1)
        self.register_buffer("order", order, persistent=False)
        self.coding, self.view, self.m = coding, stored.view, stored.pattern.m

    def forward(self, weight: Tensor) -> Tensor:
        """Round a weight of any shape."""
        with torch.no_grad():
            exact = weight.detach().float()
            matrix = pad_columns(self.view.to_matrix(exact), self.m)
            quantised = quantise_groups(
                matrix.gather(1, self.order),
                self.coding.bits,
                group_size=self.coding.group_size,
                clip=self.coding.clip,
                half_scales=self.coding.half_scales,
            )
            rounded = torch.zeros_like(matrix).scatter_(1, self.order, quantised.dequantised())
            change = self.view.from_matrix(rounded[:, : self.view.columns]) - exact
        return weight + change

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the weight that an assignment to ``module.weight`` stores: the weight itself."""
        return weight


class SharedWeight(nn.Module):
    """Replacement of values by their nearest centroid, where only the centroids are trained.

    The assignment of weights to centroids is fixed (Han, Mao and Dally, "Deep Compression", ICLR 2016,
    section 3). The gradient of a centroid is the sum over the weights that share it.

    Args:
        stored: the weight with its codebook.
    """

    def __init__(self, stored: CompressedWeight) -> None:
        super().__init__()
        assert stored.centroids is not None
        self.centroids = nn.Parameter(stored.centroids.clone())
        self._stored = stored

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight made of the current centroids, in the shape of ``weight``."""
        if self._stored.device != self.centroids.device:
            self._stored = self._stored.to(self.centroids.device)
        return replace(self._stored, centroids=self.centroids).to_dense()

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the weight that an assignment to ``module.weight`` stores: the weight itself."""
        return weight
