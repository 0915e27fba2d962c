"""Work plans of the sparse matrix-vector kernels, made once per structure and kept on the matrix.

Plans are plain torch, on any device, and exact; making one may wait for the device, using one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from sparse_core.formats import CSR, SlicedELL, SparseMatrix

#: Row ends and entries a program of the merge kernel takes.
MERGE_ITEMS = 1024
#: Rows at most this long are unrolled completely by the scalar and the pattern kernel.
UNROLLED = 32
#: A pattern number is kept in a byte.
_PATTERNS = 256
_SAMPLE_ROWS = 2048
#: Rows of the adaptive kernel: short ones in place, then two bins, then pieces of long rows.
SHORT_ROW = 16
MIDDLE_ROWS = (256, 2048)
PIECE = 4096


@dataclass(frozen=True)
class RowProfile:
    """Numbers that choose a kernel.

    Attributes:
        longest: entries of the longest row.
        mean: entries a row.
    """

    longest: int
    mean: float


@dataclass(frozen=True, eq=False)
class MergePlan:
    """Where each program of the merge kernel starts (Merrill and Garland, "Merge-based SpMV", SC 2016).

    Row ends and entries form one merged sequence that is cut into equal parts, so a program has the same
    work whether rows are long, short or empty.

    Attributes:
        first_row: (P + 1,) first row whose end belongs to program p or a later one.
        row_starts: bit i of word w tells whether entry 32 w + i is the first of its row; int32.
        split_rows, split_first, split_last: rows that lie in several programs, and the first and the last.
    """

    first_row: Tensor
    row_starts: Tensor
    split_rows: Tensor
    split_first: Tensor
    split_last: Tensor


@dataclass(frozen=True, eq=False)
class PatternPlan:
    """Rows whose columns lie at the same offsets from the diagonal share a pattern, as in a stencil.

    A byte a row then replaces four bytes an entry.

    Attributes:
        pattern: (M,) uint8, number of the row's pattern.
        offsets: (P, width) int32, column minus row; width is a power of two.
        lengths: (P,) int32 entries of a pattern.
        longest: entries of the longest pattern.
    """

    pattern: Tensor
    offsets: Tensor
    lengths: Tensor
    longest: int


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """Rows binned by length.

    Attributes:
        bins: rows of each middle bin.
        long_rows: rows that are cut into pieces.
        piece_ptr: (L + 1,) first piece of each long row.
        piece_start, piece_end: entries of each piece.
    """

    bins: tuple[Tensor, ...]
    long_rows: Tensor
    piece_ptr: Tensor
    piece_start: Tensor
    piece_end: Tensor


def row_profile(matrix: SparseMatrix) -> RowProfile:
    """Longest and mean row of a matrix."""

    def build() -> RowProfile:
        lengths = matrix.row_lengths()
        if len(lengths) == 0:
            return RowProfile(0, 0.0)
        longest, total = torch.stack([lengths.max().long(), lengths.sum()]).tolist()
        return RowProfile(longest, total / len(lengths))

    return matrix.cached("spmv.profile", build)


def merge_plan(matrix: CSR) -> MergePlan:
    """Cut the merged sequence of row ends and entries into parts of :data:`MERGE_ITEMS`."""
    return matrix.cached("spmv.merge", lambda: _merge_plan(matrix.row_ptr, len(matrix.col)))


def pattern_plan(matrix: CSR | SlicedELL) -> PatternPlan | None:
    """The patterns of a matrix; None when there are more than 256 or rows of more than 32 entries."""

    def build() -> PatternPlan | None:
        if not 0 < row_profile(matrix).longest <= UNROLLED:
            return None
        if isinstance(matrix, CSR):
            start = matrix.row_ptr[:-1].long()
            return _pattern_plan(
                matrix.row_lengths().long(), lambda row, entry: matrix.col[start[row] + entry].long()
            )
        if matrix.row_order is not None:
            return None
        height, slices = matrix.slice_height, matrix.slice_ptr.long()

        def column(row: Tensor, entry: Tensor) -> Tensor:
            return matrix.col[slices[row // height] + entry * height + row % height].long()

        return _pattern_plan(matrix.lengths.long(), column)

    return matrix.cached("spmv.pattern", build)


def adaptive_plan(matrix: CSR) -> AdaptivePlan:
    """Bin rows by length and cut the longest into pieces."""
    return matrix.cached("spmv.adaptive", lambda: _adaptive_plan(matrix.row_ptr))


def _merge_plan(row_ptr: Tensor, entries: int) -> MergePlan:
    rows = len(row_ptr) - 1
    numbers = torch.arange(rows, device=row_ptr.device)
    # Row r's end comes after all entries before it and r row ends.
    ends = row_ptr[1:].long() + numbers
    programs = -(-(rows + entries) // MERGE_ITEMS)
    cuts = torch.arange(programs + 1, device=row_ptr.device) * MERGE_ITEMS
    first_row = torch.searchsorted(ends, cuts)
    last = ends // MERGE_ITEMS
    first = (row_ptr[:-1].long() + numbers) // MERGE_ITEMS
    split = (first < last).nonzero()[:, 0]
    flags = torch.zeros((entries // 32 + 1) * 32, dtype=torch.int64, device=row_ptr.device)
    flags[row_ptr[:-1][row_ptr[1:] > row_ptr[:-1]].long()] = 1
    words = (flags.view(-1, 32) << torch.arange(32, device=flags.device)).sum(dim=1)
    return MergePlan(first_row, words.to(torch.int32), split, first[split], last[split])


def _pattern_plan(lengths: Tensor, column: Callable[[Tensor, Tensor], Tensor]) -> PatternPlan | None:
    """Number the patterns by a hash, then compare every entry, so that a collision cannot pass."""
    rows = len(lengths)
    sample = torch.arange(0, rows, max(1, rows // _SAMPLE_ROWS), device=lengths.device)
    if len(torch.unique(_row_hashes(sample, lengths[sample], column))) > _PATTERNS:
        return None
    every = torch.arange(rows, device=lengths.device)
    hashes, pattern = torch.unique(_row_hashes(every, lengths, column), return_inverse=True)
    if len(hashes) > _PATTERNS:
        return None
    example = torch.full_like(hashes, rows).scatter_reduce(0, pattern, every, "amin")
    longest = int(lengths.max())
    width = 1 << max(0, longest - 1).bit_length()
    entry = torch.arange(width, device=lengths.device)
    live = entry < lengths[example][:, None]
    safe = torch.where(live, entry, 0)
    # An empty example row has no first entry; row 0 of a pattern without entries is never read.
    found = column(torch.where(live, example[:, None], _first_nonempty(lengths)), safe)
    offsets = torch.where(live, found - example[:, None], 0)
    row = torch.repeat_interleave(every, lengths)
    position = torch.arange(len(row), device=row.device) - (lengths.cumsum(0) - lengths)[row]
    same_length = torch.equal(lengths[example][pattern], lengths)
    if not same_length or not torch.equal(offsets[pattern[row], position], column(row, position) - row):
        return None
    return PatternPlan(
        pattern.to(torch.uint8), offsets.to(torch.int32), lengths[example].to(torch.int32), longest
    )


def _first_nonempty(lengths: Tensor) -> Tensor:
    return (lengths > 0).to(torch.int8).argmax()


def _row_hashes(rows: Tensor, lengths: Tensor, column: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """(R,) int64 sums of mixed (offset, position) pairs; integer sums do not depend on the order."""
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    position = torch.arange(len(row), device=rows.device) - (lengths.cumsum(0) - lengths)[row]
    mixed = (column(rows[row], position) - rows[row]) * 0x9E3779B97F4A7C1 + (position + 1) * 0x2545F4914F6CDD1
    mixed = (mixed ^ (mixed >> 29)) * 0x1B873593CC9E2D5
    return torch.zeros_like(rows).index_add_(0, row, mixed ^ (mixed >> 32)) + lengths


def _adaptive_plan(row_ptr: Tensor) -> AdaptivePlan:
    lengths = row_ptr[1:] - row_ptr[:-1]
    limits = (SHORT_ROW, *MIDDLE_ROWS)
    bins = tuple(
        ((lengths > low) & (lengths <= high)).nonzero()[:, 0]
        for low, high in pairwise(limits)
    )
    long_rows = (lengths > limits[-1]).nonzero()[:, 0]
    pieces = (lengths[long_rows].long() + PIECE - 1) // PIECE
    piece_ptr = torch.zeros(len(long_rows) + 1, dtype=torch.int64, device=row_ptr.device)
    piece_ptr[1:] = pieces.cumsum(0)
    owner = torch.repeat_interleave(torch.arange(len(long_rows), device=row_ptr.device), pieces)
    number = torch.arange(len(owner), device=row_ptr.device) - piece_ptr[owner]
    start = row_ptr[long_rows].long()[owner] + number * PIECE
    end = torch.minimum(start + PIECE, row_ptr[long_rows + 1].long()[owner])
    return AdaptivePlan(bins, long_rows, piece_ptr, start, end)
