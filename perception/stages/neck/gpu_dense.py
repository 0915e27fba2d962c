"""Dense neck and heat map on a GPU, for small maps, where launches cost more than cells."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perception.stages.backbone.units import Unit
from perception.stages.head import fixed_up
from perception.stages.neck.map_convolution import MapConvolution
from perception.stages.neck.weights import NeckWeights
from sparse_core.conv.grid import DenseGrid, FixedGrid, TableRequest, neighbour_tables
from sparse_core.kernels.op import Impl


class GpuDenseNeck:
    """Dense neck and heat map for one batch size.

    Args:
        weights: weights on the device to run on.
        shape: rows and columns of the neck's map.
    """

    def __init__(
        self,
        weights: NeckWeights,
        *,
        shape: tuple[int, int],
        batch_size: int,
        device: torch.device,
        impl: Impl = "auto",
    ) -> None:
        self.weights, self.impl = weights, impl
        self._cells = batch_size * math.prod(shape)
        finer = (2 * shape[0], 2 * shape[1])
        dense = [
            TableRequest(DenseGrid(size, batch_size), DenseGrid(size, batch_size), (3, 3), (1, 1), (1, 1))
            for size in (shape, finer)
        ]
        coarse, fine = neighbour_tables(dense, impl=impl, device=device)

        def layer(unit: Unit, table: Tensor, size: tuple[int, int]) -> MapConvolution:
            return MapConvolution(unit, table, spatial_shape=size, batch_size=batch_size, impl=impl)

        self._blocks = [[layer(unit, coarse, shape) for unit in block] for block in weights.blocks]
        self._out = MapConvolution(
            weights.out, fine, spatial_shape=finer, batch_size=batch_size, heat=weights.heat, impl=impl
        )

    def __call__(self, sparse: Tensor, table: Tensor, level: FixedGrid) -> tuple[Tensor, Tensor]:
        """Compute the finer map (B * 2H * 2W, C) and its heat map (B, classes, 2H, 2W).

        Args:
            sparse: (capacity, C) rows of the backbone's last level.
            table: (9, B * H * W) rows of ``sparse`` for each cell of the neck's map.
            level: cells of ``sparse``.
        """
        coarse = self.weights.down.convolve(sparse, table, None, self._cells, zero_empty=True, impl=self.impl)
        for first, second in self._blocks:
            coarse = second(first(coarse), coarse)
        return self._out.with_heat(fixed_up(coarse, sparse, level, self.weights.up, impl=self.impl))
