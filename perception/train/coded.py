"""Weights that are trained as they will be stored: rounded to few bits, or shared through a codebook.

Both are parametrisations of a layer's weight, applied after its mask.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sparse_core.compression import Coding, CompressedWeight, compress, quantise_groups
from sparse_core.nm import NMPattern
from sparse_core.nm.packing.matrix_view import Layout, pad_columns


class RoundedWeight(nn.Module):
    """The weight as ``compress`` would give it back; the gradient passes straight through.

    Args:
        weight: as it is at first; its masked values are zero.
        coding: int8 or int4, see :class:`~sparse_core.compression.Coding`.
        pattern: n:m; ``None`` for a weight without a mask.
        layout: how the weight is a matrix.
        mask: what is kept, of the weight's shape.
    """

    order: Tensor

    def __init__(
        self, weight: Tensor, coding: Coding, pattern: NMPattern | None, layout: Layout, mask: Tensor | None
    ) -> None:
        super().__init__()
        # Where the values that are stored lie in their rows, in the order in which they share scales.
        stored = compress(weight.detach(), pattern, "float32", mask=mask, layout=layout, pad=True)
        first = torch.arange(stored.groups, device=weight.device)[:, None] * stored.pattern.m
        order = (stored.positions().long() + first).flatten(1)
        self.register_buffer("order", order, persistent=False)
        self.coding, self.view, self.m = coding, stored.view, stored.pattern.m

    def forward(self, weight: Tensor) -> Tensor:
        """(any shape) to the same, rounded."""
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
        """What an assignment to ``module.weight`` stores: the weight as given."""
        return weight


class SharedWeight(nn.Module):
    """Values replaced by the nearest of few centroids, which are trained.

    Which weight shares which centroid stays as it was at first (Han, Mao and Dally, "Deep Compression", ICLR
    2016, section 3); the gradient of a centroid is the sum over the weights that share it.

    Args:
        stored: the weight with its codebook.
    """

    def __init__(self, stored: CompressedWeight) -> None:
        super().__init__()
        assert stored.centroids is not None
        self.centroids = nn.Parameter(stored.centroids.clone())
        self._stored = stored

    def forward(self, weight: Tensor) -> Tensor:
        """The weight of the centroids as they are now, in the shape of ``weight``."""
        if self._stored.device != self.centroids.device:
            self._stored = self._stored.to(self.centroids.device)
        return replace(self._stored, centroids=self.centroids).to_dense()

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What an assignment to ``module.weight`` stores: the weight as given."""
        return weight
