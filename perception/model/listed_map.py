"""Bird's-eye maps that are not plain tensors: of listed cells, and of bytes."""

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
        values: (M + 4, C) float32, bfloat16 or uint8: listed cells, then the four defaults by parity
            ``2 * (row % 2) + column % 2``.
        key_shape: rows and columns that have keys.
        step: number that a byte of 1 represents.
    """

    cells: Tensor
    listed: CellKeys
    values: Tensor
    key_shape: tuple[int, int]
    step: float = 1.0

    def rows_of(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return the row of ``values`` for each cell: int64 of the broadcast shape."""
        places = torch.stack(torch.broadcast_tensors(frame, row, column), dim=-1)
        keys = linear_keys(places.view(-1, 3), self.key_shape).numpy()
        rows = torch.from_numpy(self.listed.rows_of(keys)).long().view(places.shape[:-1])
        return torch.where(rows < 0, len(self.cells) + 2 * (row % 2) + column % 2, rows)

    def at(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return values (..., C) of cells of the broadcast shape."""
        rows = self.rows_of(frame, row, column)
        taken = self.values.index_select(0, rows.reshape(-1)).view(*rows.shape, self.values.shape[1])
        return _numbers(taken, self.step)


class ByteMap(NamedTuple):
    """A whole map of bytes.

    Attributes:
        values: (B, H, W, C) uint8.
        step: number that a byte of 1 represents.
    """

    values: Tensor
    step: float

    def at(self, frame: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Return numbers (..., C) of cells of the broadcast shape, zero outside of the map."""
        rows, columns = self.values.shape[1:3]
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        taken = self.values[frame, row.clamp(0, rows - 1), column.clamp(0, columns - 1)]
        return _numbers(taken, self.step) * inside[..., None]


#: Map that the head and the refinement read; a tensor is (B, C, H, W).
FeatureMap = Tensor | ListedMap | ByteMap


def _numbers(values: Tensor, step: float) -> Tensor:
    """Return the numbers that bytes represent, float32; return other values unchanged."""
    return values.float() * step if values.dtype == torch.uint8 else values
