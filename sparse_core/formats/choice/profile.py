"""Structural numbers of a matrix that decide its format; values are never read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import ceil_div

#: Candidate block sizes.
BLOCK_SIZES = (8, 16, 32, 64)
SLICE_HEIGHT = 32
#: Larger matrices are sampled in evenly spread bands of 64 rows with about this many entries in total.
_ENTRIES = 1 << 18
_LEAST_BANDS, _MOST_BANDS = 4, 256
_BAND = max(BLOCK_SIZES)


class Profile(NamedTuple):
    """Numbers that decide a format.

    Attributes:
        shape: rows, columns.
        nnz: stored entries.
        shortest, longest: entries of the shortest and the longest row.
        mean: entries per row.
        padding: slots per entry of slices of 32 rows, each as wide as its longest row.
        block_fill: filled share of nonempty blocks, by block size; an estimate from sampled rows for large
            matrices.
    """

    shape: tuple[int, int]
    nnz: int
    shortest: int
    longest: int
    mean: float
    padding: float
    block_fill: dict[int, float]

    @property
    def sparsity(self) -> float:
        """Share of positions without an entry; 1.0 for a matrix without positions."""
        positions = self.shape[0] * self.shape[1]
        return 1.0 - self.nnz / positions if positions else 1.0


def profile_of(matrix: CSR) -> Profile:
    """Return the profile of a matrix, cached; it reads from the device once, twice for large matrices."""
    return matrix.cached("formats profile", lambda: _profile(matrix))


def _profile(matrix: CSR) -> Profile:
    if matrix.nnz == 0:
        return Profile(matrix.shape, 0, 0, 0, 0.0, 1.0, dict.fromkeys(BLOCK_SIZES, 0.0))
    lengths = matrix.row_ptr.diff()
    slots = torch.nn.functional.pad(lengths, (0, -len(lengths) % SLICE_HEIGHT)).view(-1, SLICE_HEIGHT)
    sizes = [lengths.amin().long(), lengths.amax().long(), slots.amax(dim=1).sum() * SLICE_HEIGHT]
    if matrix.nnz <= _ENTRIES:
        counts = _block_counts(matrix.row_indices(), matrix.col, matrix.shape)
        shortest, longest, padded, *blocks = torch.stack([*sizes, *counts]).tolist()
        sampled = matrix.nnz
    else:
        starts, widths = _bands(matrix)
        shortest, longest, padded, sampled = torch.stack([*sizes, widths.sum()]).tolist()
        blocks = _sampled_blocks(matrix, starts, widths, sampled) if sampled else [0] * len(BLOCK_SIZES)
    fill = {
        size: sampled / (count * size * size) if count else 0.0
        for size, count in zip(BLOCK_SIZES, blocks, strict=True)
    }
    mean = matrix.nnz / matrix.shape[0]
    return Profile(matrix.shape, matrix.nnz, shortest, longest, mean, padded / matrix.nnz, fill)


def _bands(matrix: CSR) -> tuple[Tensor, Tensor]:
    """Return first entry and number of entries of some bands of rows, the same ones in every run."""
    rows = matrix.shape[0]
    bands = ceil_div(rows, _BAND)
    in_a_band = matrix.nnz / bands
    count = min(bands, _MOST_BANDS, max(_LEAST_BANDS, int(_ENTRIES / in_a_band)))
    chosen = torch.arange(count, device=matrix.device) * bands // count
    first = matrix.row_ptr[chosen * _BAND].long()
    last = matrix.row_ptr[((chosen + 1) * _BAND).clamp(max=rows)].long()
    return first, last - first


def _sampled_blocks(matrix: CSR, starts: Tensor, widths: Tensor, total: int) -> list[int]:
    ends = widths.cumsum(0)
    entry = torch.arange(total, device=matrix.device)
    entry += torch.repeat_interleave(starts - (ends - widths), widths, output_size=total)
    row = torch.searchsorted(matrix.row_ptr, entry.to(matrix.index_dtype), right=True) - 1
    counts: list[int] = torch.stack(_block_counts(row, matrix.col[entry], matrix.shape)).tolist()
    return counts


def _block_counts(row: Tensor, col: Tensor, shape: tuple[int, int]) -> list[Tensor]:
    """Count the blocks of each size that hold an entry; there is at least one entry."""
    counts = []
    for size in BLOCK_SIZES:
        keys = (row // size).long() * ceil_div(shape[1], size) + col // size
        keys = _sort(keys)
        counts.append((keys[1:] != keys[:-1]).sum() + 1)
    return counts


def _sort(keys: Tensor) -> Tensor:
    # On a CPU numpy sorts integers many times as fast as torch.
    return torch.from_numpy(np.sort(keys.numpy())) if keys.device.type == "cpu" else keys.sort().values
