"""A bird's-eye map without a shape: values of listed cells, and what every other cell has."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.keyed import CellKeys
from sparse_core.conv.coordinates.common import linear_keys


class ListedMap(NamedTuple):
    """Values of some cells; all others have those of an empty scene, which differ by the cell's parity.

    Attributes:
        cells: (M, 3) int64 ``(frame, row, column)`` of tables of cells, in key order.
        listed: finds them.
        values: (M + 4, C) float32 or bfloat16 of each, then of the others: in rows and columns that are
            even, in even rows, in even columns, in neither.
        key_shape: rows and columns that there are keys for.
    """

    cells: Tensor
    listed: CellKeys
    values: Tensor
    key_shape: tuple[int, int]

    def rows_of(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Which of ``values`` each cell has: int64 of the shape that the three (integers) have together."""
        places = torch.stack(torch.broadcast_tensors(frame, row, column), dim=-1)
        keys = linear_keys(places.view(-1, 3), self.key_shape).numpy()
        rows = torch.from_numpy(self.listed.rows_of(keys)).long().view(places.shape[:-1])
        return torch.where(rows < 0, len(self.cells) + 2 * (row % 2) + column % 2, rows)

    def at(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """(..., C) values of cells, of the shape that the three have together."""
        rows = self.rows_of(frame, row, column)
        return self.values.index_select(0, rows.reshape(-1)).view(*rows.shape, self.values.shape[1])
