"""The sparse backbone with room for a fixed number of cells a level, for CUDA graphs."""

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

#: A bit a cell, or hashed.
CellGrid = FixedGrid | FixedHash
_KERNEL = (3, 3)
_LEVEL = GridLevel()


class LevelTables(NamedTuple):
    """Which rows each cell of a level reads.

    Attributes:
        own: (9, capacity) int32 of each level, of the level itself.
        strided: likewise of the level before, from the second level on; last of all the neck's cells.
    """

    own: list[Tensor]
    strided: list[Tensor]


class FixedLevels:
    """Stages of a folded sparse backbone whose strided layers dilate.

    Args:
        backbone: folded, on the device to run on.
        capacities: active cells of each level that there is room for, all frames together.
        dtype: of the features: float16, bfloat16 or float32.
        impl: of every operation.
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
        """Choose tiles for batches of so many active cells of each level; 0: not known. For speed only."""
        self._rows = [usual_rows(*pair) for pair in zip(active, self.capacities, strict=True)]

    def tables(self, grids: Sequence[CellGrid], neck: CellGrid | None) -> LevelTables:
        """Tables of all layers.

        Args:
            grids: of the levels.
            neck: cells that the neck is computed at; None: all.
        """
        requests = [TableRequest(grid, grid, _KERNEL, (1, 1), (1, 1)) for grid in grids]
        coarser = [*pairwise(grids), (grids[-1], "all" if neck is None else neck)]
        requests += [
            TableRequest(before, after, _KERNEL, _LEVEL.stride, _LEVEL.padding) for before, after in coarser
        ]
        tables = neighbour_tables(requests, impl=self.impl)
        return LevelTables(tables[: len(grids)], tables[len(grids) :])

    def __call__(self, level: int, rows: Tensor, grids: Sequence[CellGrid], tables: LevelTables) -> Tensor:
        """(capacity, C) rows of a level from those of the one before, or of the pillars."""
        for index, part in enumerate(self._stages[level]):
            entering = index == 0 and level > 0
            table = tables.strided[level - 1] if entering else tables.own[level]
            # Tables are made beside the encoder: only the first layer may come right after them.
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
