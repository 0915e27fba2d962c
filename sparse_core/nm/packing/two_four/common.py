"""The buffer that cuSPARSELt multiplies with: kept values, then metadata."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Compressed24(NamedTuple):
    """A 2:4 matrix in cuSPARSELt's form.

    Attributes:
        buffer: (bytes,) uint8, what the library reads.
        values: (rows, columns / 2) of the weight's dtype, a view of the buffer.
        metadata: (rows * columns / 8,) uint8, a view of the buffer, in the order of
            :mod:`sparse_core.nm.packing.two_four.layout`.
        shape: rows, columns.
    """

    buffer: Tensor
    values: Tensor
    metadata: Tensor
    shape: tuple[int, int]


class PackedBoth(NamedTuple):
    """A weight pruned in both directions.

    Attributes:
        weight: (rows, columns) compressed, groups along the columns.
        transposed: (columns, rows) compressed, groups along the rows.
        dense: (rows, columns) with zeros, or ``None`` if not requested.
    """

    weight: Compressed24
    transposed: Compressed24
    dense: Tensor | None


def empty_compressed(rows: int, columns: int, like: Tensor) -> Compressed24:
    """Return uninitialised memory for a (rows, columns) matrix of the dtype and device of ``like``."""
    value_bytes = rows * columns // 2 * like.dtype.itemsize
    buffer = torch.empty(value_bytes + rows * columns // 8, dtype=torch.uint8, device=like.device)
    values = buffer[:value_bytes].view(like.dtype).view(rows, columns // 2)
    return Compressed24(buffer, values, buffer[value_bytes:], (rows, columns))
