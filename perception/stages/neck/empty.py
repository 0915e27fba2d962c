"""Values of an empty scene, which all necks use for cells that no active cell reaches.

Each 3x3 layer reaches one cell further. Layer k therefore differs from an empty scene only within k cells of
an active one: these cells are list k. The values of an empty scene depend only on the distance to the border.
A small map of twice the neck's reach plus one cell has all of them; a cell of the large map has the value of
the small map's cell at the same distances from the borders. An unbounded grid has no border and needs one
cell of the small map, or the four finer ones of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from perception.model.head import CentreHead
from perception.model.layers import DenseBlock
from perception.model.neck import Neck

#: Relative cost of a cell of the last list: four finer cells in narrower layers.
_FINE_WEIGHT = 3


class EmptyMaps(NamedTuple):
    """Geometry of the small map of an empty scene.

    Attributes:
        shape: rows and columns of the large map.
        edge: number of cells from the border whose values may differ from the inside.
    """

    shape: tuple[int, int]
    edge: int

    @classmethod
    def unbounded(cls, reach: int) -> EmptyMaps:
        """Return the small map of an unbounded grid, whose cell :attr:`middle` no border reaches."""
        return cls((2 * reach + 1, 2 * reach + 1), reach)

    @property
    def middle(self) -> int:
        """Number of the cell in row and column ``edge``."""
        return self.edge * self.small[1] + self.edge

    @property
    def small(self) -> tuple[int, int]:
        """Rows and columns of the small map."""
        rows, columns = (min(size, 2 * self.edge + 1) for size in self.shape)
        return rows, columns

    @property
    def cells(self) -> int:
        """Cells of the small map."""
        return self.small[0] * self.small[1]

    def cell(self, y: Tensor, x: Tensor) -> Tensor:
        """Return the small map's cell, row-major, for rows and columns of the large one."""
        places = []
        for place, size, small in zip((y, x), self.shape, self.small, strict=True):
            places.append(torch.minimum(place, (place - (size - small)).clamp(min=self.edge)))
        return places[0] * self.small[1] + places[1]

    def every_cell(self, device: torch.device | None = None) -> Tensor:
        """Return :meth:`cell` of the whole map: (H, W) int64."""
        return self.cell(*_places(*self.shape, device))

    def every_finer_cell(self, device: torch.device | None = None) -> Tensor:
        """Return :meth:`finer_cell` of the whole map: (2H, 2W) int64."""
        return self.finer_cell(*_places(2 * self.shape[0], 2 * self.shape[1], device))

    def finer_cell(self, y: Tensor, x: Tensor) -> Tensor:
        """Return ``4 * cell + 2 (y % 2) + x % 2`` for rows and columns at twice the resolution."""
        return 4 * self.cell(y // 2, x // 2) + 2 * (y % 2) + x % 2


class EmptyScene(NamedTuple):
    """Values of the folded dense layers for an empty scene, on the small map.

    Attributes:
        inputs: (small cells, C) input of each 3x3 layer of the blocks, row-major; last the input of ``up``.
        raised: (4 * small cells, C_out) input of the finer 3x3 layer, see :meth:`EmptyMaps.finer_cell`.
        features: (4 * small cells, C_out) output of that layer.
        heat: (4 * small cells, classes) logits of the heat map.
    """

    inputs: list[Tensor]
    raised: Tensor
    features: Tensor
    heat: Tensor

    @classmethod
    def of(cls, neck: Neck, head: CentreHead, small: tuple[int, int]) -> EmptyScene:
        """Run the layers on an empty map of shape ``small``."""
        weight = neck.up.conv.weight
        hidden = weight.new_zeros((1, len(weight), *small))
        inputs = [coarse_rows(hidden)]
        for block in neck.blocks:
            assert isinstance(block, DenseBlock)
            middle = block.first(hidden)
            hidden = block.second(middle, skip=hidden)
            inputs += [coarse_rows(middle), coarse_rows(hidden)]
        fine = weight.new_zeros((1, weight.shape[1], 2 * small[0], 2 * small[1]))
        raised = torch.relu(neck.up(hidden, skip=fine))
        features = neck.out(raised)
        logits = head.heat_logits(features)
        return cls(inputs, fine_rows(raised), fine_rows(features), fine_rows(logits))


class NearTables(NamedTuple):
    """Neighbour tables of the layers over lists 0 to n.

    An entry of ``tables[k]`` is a row of list k - 1, or its capacity plus a cell of the small empty map of
    layer k - 1. -1 means zero: outside of the map, or an empty cell of layer 0.

    Attributes:
        tables: (9, capacity) int32 for lists 1 to n - 1.
        residual_rows: (capacity,) int32 for lists 2, 4, …: row of the cell in list k - 2.
        fine_table: (9, 4 * capacity) int32 for the finer cells of list n, ``4 * row + parity``; its entries
            are ``4 * entry + parity`` with an entry for list n - 1.
        fine_count: (1,) int32 finer cells in use.
    """

    tables: tuple[Tensor, ...]
    residual_rows: tuple[Tensor, ...]
    fine_table: Tensor
    fine_count: Tensor


class WrittenMaps(NamedTuple):
    """Maps that equal an empty scene except at listed cells.

    Attributes:
        cells: (4 * capacity,) int32 finer cells ``(frame * H + iy) * W + ix`` written last; -1 for none.
        features: (B * H * W, C) finer map, row-major, channels last.
        heat: (B, classes, H, W) float32.
        empty_features: (4 * small cells, C), see :meth:`EmptyMaps.finer_cell`.
        empty_heat: (4 * small cells, classes) float32.
    """

    cells: Tensor
    features: Tensor
    heat: Tensor
    empty_features: Tensor
    empty_heat: Tensor


def _places(rows: int, columns: int, device: torch.device | None) -> tuple[Tensor, ...]:
    return torch.meshgrid(
        torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
    )


def dilated(near: Tensor) -> Tensor:
    """Dilate (B, H, W) bool maps by one cell, diagonals included."""
    return F.max_pool2d(near.float()[:, None], 3, stride=1, padding=1)[:, 0] > 0


def coarse_rows(values: Tensor) -> Tensor:
    """Convert (1, C, H, W) to (H * W, C)."""
    return values[0].flatten(1).T.contiguous()


def fine_rows(values: Tensor) -> Tensor:
    """Convert (1, C, 2H, 2W) to (4 * H * W, C), rows ``4 * cell + parity``."""
    below = F.pixel_unshuffle(values, 2)[0]
    return below.reshape(values.shape[1], 4, -1).permute(2, 1, 0).flatten(0, 1)


def list_reach(blocks: int) -> int:
    """Return the number of the last list: one per layer of the blocks, and one for the finer layer."""
    return 2 * blocks + 1


def work_share(active: Sequence[int], cells: int) -> float:
    """Estimate the work of the lists as a share of the dense neck's.

    Args:
        active: cells of each list; that of the finer layer is last.
        cells: cells of the map, for the whole batch.
    """
    return (sum(active[:-1]) + _FINE_WEIGHT * active[-1]) / ((len(active) - 1 + _FINE_WEIGHT) * cells)
