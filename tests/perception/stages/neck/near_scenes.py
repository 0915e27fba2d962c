"""Scenes for tests of the neck over lists: random weights, few active cells, both ways to compute them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perception.config import BackboneConfig, HeadConfig
from perception.geometry import BirdsEyeGrid
from perception.model.head import CentreHead
from perception.model.layers import DenseUnit, SparseUnit, fold_batch_norms
from perception.stages.backbone.units import Unit
from perception.stages.head import HeatWeights, UpWeights, fixed_heat, fixed_up, pack_heat, pack_up
from perception.stages.neck import GpuBoundedNeck, NeckWeights
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.grid import (
    DenseGrid,
    FixedGrid,
    GridLevel,
    grid_from_cells,
    linear_cells,
    neighbour_table,
    pyramid,
)
from sparse_core.kernels.op import Impl

KERNEL, STEP, EDGE = (3, 3), (1, 1), (1, 1)


def make_weights(
    dtype: torch.dtype, device: torch.device, *, blocks: int = 2, widths: tuple[int, int, int] = (12, 16, 20)
) -> NeckWeights:
    """Random layers; widths of the sparse level, the neck and its output. Biases make empty scenes matter."""
    sparse, neck, out = widths
    generator = torch.Generator().manual_seed(1)

    def unit(channels_in: int, channels_out: int) -> Unit:
        weight = torch.randn(9, channels_in, channels_out, generator=generator) / (4 * channels_in) ** 0.5
        bias = torch.randn(channels_out, generator=generator) / 2
        return Unit(weight.to(device, dtype), bias.to(device), True)

    return NeckWeights(
        unit(sparse, neck),
        [(unit(neck, neck), unit(neck, neck)) for _ in range(blocks)],
        _up(neck, sparse, out, dtype, device),
        unit(out, out),
        _heat(out, dtype, device),
    )


def _up(neck: int, sparse: int, out: int, dtype: torch.dtype, device: torch.device) -> UpWeights:
    torch.manual_seed(2)
    up = DenseUnit(neck, out, stride=2, transposed=True, relu=False)
    lateral = SparseUnit(sparse, out, BackboneConfig(), kernel_size=1, relu=False)
    for part in (up, lateral):
        torch.nn.init.normal_(part.norm.bias)
        fold_batch_norms(part.eval())
    return pack_up(up.to(device), lateral.to(device), dtype)


def _heat(channels: int, dtype: torch.dtype, device: torch.device) -> HeatWeights:
    torch.manual_seed(3)
    config = HeadConfig(classes=("Car", "Pedestrian", "Cyclist"), channels=16)
    head = CentreHead(
        config, in_channels=channels, grid=BirdsEyeGrid((0.0, 0.0, -3.0, 80.0, 40.0, 1.0), 0.32)
    )
    torch.nn.init.normal_(head.heat.bias)
    return pack_heat(head.to(device), dtype)


def make_level(
    cells: Sequence[tuple[int, int, int]],
    shape: tuple[int, int],
    frames: int,
    capacity: int,
    near: int,
    impl: Impl,
    device: torch.device,
) -> list[FixedGrid]:
    """The last sparse level, its active cells given as (frame, y, x), and the neck's first list below it."""
    coordinates = torch.tensor(cells, dtype=torch.int32, device=device).view(-1, 3)
    level = grid_from_cells(linear_cells(coordinates, shape), shape, frames, capacity, impl=impl)
    bits = level.words[:, 0].contiguous()
    return pyramid(bits, shape, frames, [capacity, near], [GridLevel()], impl=impl)


class BothNecks:
    """A neck over lists, and its dense layers with the same tiles.

    Args:
        shape: rows and columns of the neck's map.
        frames: of a batch.
        capacities: of the lists.
        dtype, impl, device: of all.
        blocks, widths: see :func:`make_weights`.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        frames: int,
        capacities: Sequence[int],
        *,
        dtype: torch.dtype,
        impl: Impl,
        device: torch.device,
        blocks: int = 2,
        widths: tuple[int, int, int] = (12, 16, 20),
    ) -> None:
        self.weights = make_weights(dtype, device, blocks=blocks, widths=widths)
        self.shape, self.frames, self.impl, self.device, self.dtype = shape, frames, impl, device, dtype
        self.finer = (2 * shape[0], 2 * shape[1])
        self.room = frames * self.finer[0] * self.finer[1] // 2
        self.near = GpuBoundedNeck(
            self.weights, shape=shape, batch_size=frames, capacities=capacities, impl=impl
        )
        self.tables = [
            neighbour_table(DenseGrid(size, frames), "all", KERNEL, STEP, EDGE, impl=impl, device=device)
            for size in (shape, self.finer)
        ]

    def scene(self, cells: Sequence[tuple[int, int, int]], seed: int) -> tuple[list[FixedGrid], Tensor]:
        """Grids and features of active cells of the finer level; rows behind the last are not numbers."""
        grids = make_level(
            cells, self.finer, self.frames, self.room, self.near.capacities[0], self.impl, self.device
        )
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(self.room, self.weights.down.weight.shape[1], generator=generator)
        features[len(set(cells)) :] = float("nan")
        return grids, features.to(self.device, self.dtype)

    def listed(self, grids: list[FixedGrid], features: Tensor) -> tuple[Tensor, Tensor]:
        """Map and heat map over lists: copies, because the next scene overwrites them."""
        level, first = grids
        table = neighbour_table(level, first, KERNEL, (2, 2), EDGE, impl=self.impl)
        plan = self.near.plan(first, level)
        found = self.near.map(features, table, level, plan)
        return found.clone(), self.near.heat().clone()

    def dense(self, grids: list[FixedGrid], features: Tensor) -> tuple[Tensor, Tensor]:
        """Map and heat map with every cell computed."""
        level = grids[0]
        weights, configs = self.weights, self.near.configs
        table = neighbour_table(level, "all", KERNEL, (2, 2), EDGE, impl=self.impl)
        coarse = fixed_convolution(
            features, weights.down.weight, table, bias=weights.down.bias, relu=True, zero_empty=True,
            impl=self.impl, config=configs[0],
        )  # fmt: skip
        for number, block in enumerate(weights.blocks):
            hidden = self._layer(coarse, block[0], 0, configs[2 * number + 1])
            coarse = self._layer(hidden, block[1], 0, configs[2 * number + 2], residual=coarse)
        raised = fixed_up(coarse, features, level, weights.up, impl=self.impl)
        found = self._layer(raised, weights.out, 1, configs[-1])
        return found, fixed_heat(found, weights.heat, spatial_shape=self.finer, impl=self.impl)

    def _layer(
        self, features: Tensor, unit: Unit, table: int, config: object, residual: Tensor | None = None
    ) -> Tensor:
        return fixed_convolution(
            features, unit.weight, self.tables[table], bias=unit.bias, residual=residual, relu=unit.relu,
            impl=self.impl, config=config,  # type: ignore[arg-type]
        )  # fmt: skip


def random_cells(
    count: int, frames: int, shape: tuple[int, int], seed: int, *, corner: float = 1.0
) -> list[tuple[int, int, int]]:
    """Distinct cells (frame, y, x), from a corner of the given share of each axis."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([frames, *(max(1, int(size * corner)) for size in shape)])
    found = (torch.rand(count, 3, generator=generator) * sizes).long()
    return sorted({(int(frame), int(y), int(x)) for frame, y, x in found})
