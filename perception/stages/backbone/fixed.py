"""Sparse backbone with a fixed capacity per level, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from perception.model.backbone import SparseBackbone
from perception.model.layers import SparseBlock
from perception.stages.backbone.units import Unit, pack_block, pack_unit, usual_rows
from sparse_core.conv.grid import FixedGrid, FixedHash, GridLevel, TableRequest, neighbour_tables
from sparse_core.kernels.op import Impl

#: Bit grid or hash table.
CellGrid = FixedGrid | FixedHash
_KERNEL = (3, 3)
_LEVEL = GridLevel()


class LevelTables(NamedTuple):
    """Neighbour tables (9, capacity) int32.

    Attributes:
        own: for each level, rows of the level itself.
        strided: for each level from the second on, rows of the previous level; last, for the neck's cells.
    """

    own: list[Tensor]
    strided: list[Tensor]


class FixedLevels:
    """Stages of a folded sparse backbone with dilating strided layers.

    Args:
        backbone: folded backbone, on the device to run on.
        capacities: capacity for active cells of each level, for the whole batch.
        dtype: dtype of the features: float16, bfloat16 or float32.
    """

    def __init__(
        self,
        backbone: SparseBackbone,
        *,
        capacities: tuple[int, ...],
        dtype: torch.dtype,
        impl: Impl,
    ) -> None:
        self.capacities, self.impl = capacities, impl
        self._stages = [_packed(stage, dtype) for stage in backbone.stages]
        self.choose_tiles([0] * len(capacities))

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles for these active cells per level (0: unknown); they change speed only."""
        self._rows = [usual_rows(*pair) for pair in zip(active, self.capacities, strict=True)]

    def tables(self, grids: Sequence[CellGrid], neck: CellGrid | None) -> LevelTables:
        """Make the tables of all layers.

        Args:
            grids: grids of the levels.
            neck: cells that the neck computes; None: all.
        """
        requests = [TableRequest(grid, grid, _KERNEL, (1, 1), (1, 1)) for grid in grids]
        coarser = [*pairwise(grids), (grids[-1], "all" if neck is None else neck)]
        requests += [
            TableRequest(before, after, _KERNEL, _LEVEL.stride, _LEVEL.padding) for before, after in coarser
        ]
        tables = neighbour_tables(requests, impl=self.impl)
        return LevelTables(tables[: len(grids)], tables[len(grids) :])

    def __call__(self, level: int, rows: Tensor, grids: Sequence[CellGrid], tables: LevelTables) -> Tensor:
        """Compute rows (capacity, C) of a level from those of the previous level or the pillars."""
        for index, part in enumerate(self._stages[level]):
            entering = index == 0 and level > 0
            table = tables.strided[level - 1] if entering else tables.own[level]
            # Tables are made in parallel with the encoder, so only the first layer may directly follow them.
            ready = level > 0 or index > 0
            used, usual = grids[level].count, self._rows[level]
            if isinstance(part, Unit):
                rows = part.convolve(rows, table, used, usual, ready=ready, impl=self.impl)
                continue
            first, second = part
            hidden = first.convolve(rows, table, used, usual, ready=ready, impl=self.impl)
            rows = second.convolve(hidden, table, used, usual, residual=rows, impl=self.impl)
        return rows


def _packed(stage: nn.Module, dtype: torch.dtype) -> list[Unit | tuple[Unit, Unit]]:
    return [
        pack_block(part, dtype) if isinstance(part, SparseBlock) else pack_unit(part, dtype)
        for part in stage.children()
    ]
