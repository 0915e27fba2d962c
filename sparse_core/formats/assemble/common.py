"""Result, summation order and index types that all assembly implementations share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.formats.indexing import true_positions

#: Duplicates are summed in pieces of this size, then the pieces likewise. The input alone fixes the order,
#: and
#: a cell with a million entries does not take a million steps.
PIECE = 256


class Assembled(NamedTuple):
    """Compressed rows.

    Attributes:
        row_ptr: (rows + 1,) int32 or int64, start of each row in ``col`` and ``values``.
        col: (nnz,) columns, strictly ascending within a row.
        values: (nnz,) the sum of all entries of each cell.
    """

    row_ptr: Tensor
    col: Tensor
    values: Tensor


class Assembly(NamedTuple):
    """Result of an implementation: :class:`Assembled` without gradient, and the cell of each entry.

    Attributes:
        row_ptr, col, values: as in :class:`Assembled`.
        target: (entries,) position in ``values`` of each input entry; None unless requested.
    """

    row_ptr: Tensor
    col: Tensor
    values: Tensor
    target: Tensor | None


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums: float32 for half types, else the type itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def result_index_dtype(index: torch.dtype, stored: int) -> torch.dtype:
    """Return the input's index type, or int64 if the stored entries need it."""
    return torch.int64 if stored > torch.iinfo(torch.int32).max else index


def sum_runs(values: Tensor, starts: Tensor) -> Tensor:
    """Sum consecutive runs in the order described at ``PIECE``; bitwise equal on every device.

    Args:
        values: (N,) in the type of the sums.
        starts: (M,) int64, start of each run; strictly ascending from 0.

    Returns:
        (M,) sums.
    """
    if len(starts) == 0:
        return values[:0].clone()
    ends = torch.cat([starts[1:], starts.new_tensor([len(values)])])
    lengths = ends - starts
    if int(lengths.max()) <= PIECE:
        return _sum_short_runs(values, starts, lengths)
    pieces = torch.div(lengths + PIECE - 1, PIECE, rounding_mode="floor")
    first_piece = pieces.cumsum(0) - pieces
    run = torch.repeat_interleave(torch.arange(len(starts), device=starts.device), pieces)
    within = torch.arange(len(run), device=starts.device) - first_piece[run]
    piece_starts = starts[run] + within * PIECE
    piece_lengths = torch.minimum(ends[run] - piece_starts, piece_starts.new_tensor(PIECE))
    return sum_runs(_sum_short_runs(values, piece_starts, piece_lengths), first_piece)


def _sum_short_runs(values: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """Add the second entry of every run that has one, then the third, and so on."""
    totals = values[starts]
    longer = true_positions(lengths > 1)
    step = 1
    while len(longer):
        totals[longer] += values[starts[longer] + step]
        step += 1
        longer = longer[lengths[longer] > step]
    return totals
