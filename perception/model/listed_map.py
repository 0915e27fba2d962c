"""An unbounded bird's-eye map: values of listed cells, and default values for all others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.conv.convolution.cpu.keyed import CellKeys
from sparse_core.conv.coordinates.common import linear_keys


class ListedMap(NamedTuple):
    """Values of listed cells; other cells have the values of an empty scene, one per parity.

    Attributes:
        cells: (M, 3) int64 ``(frame, row, column)``, in key order.
        listed: index of the cells.
        values: (M + 4, C) float32 or bfloat16: listed cells, then the four defaults by parity
            ``2 * (row % 2) + column % 2``.
        key_shape: rows and columns that have keys.
    """

    cells: Tensor
    listed: CellKeys
    values: Tensor
    key_shape: tuple[int, int]

    def rows_of(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return the row of ``values`` for each cell: int64 of the broadcast shape."""
        places = torch.stack(torch.broadcast_tensors(frame, row, column), dim=-1)
        keys = linear_keys(places.view(-1, 3), self.key_shape).numpy()
        rows = torch.from_numpy(self.listed.rows_of(keys)).long().view(places.shape[:-1])
        return torch.where(rows < 0, len(self.cells) + 2 * (row % 2) + column % 2, rows)

    def at(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return values (..., C) of cells of the broadcast shape."""
        rows = self.rows_of(frame, row, column)
        return self.values.index_select(0, rows.reshape(-1)).view(*rows.shape, self.values.shape[1])
