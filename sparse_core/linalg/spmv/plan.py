"""Work plans of the sparse matrix-vector kernels, computed once per structure and cached.

Plans are plain torch on any device. Making one may wait for the device, using one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.formats import CSR, SlicedELL, SparseMatrix, index_dtype_for

#: Function from rows and entries within them, both int64, to columns.
Column = Callable[[Tensor, Tensor], Tensor]
#: Entries per memory line; programs of the merge kernel start reading at a line's beginning.
MERGE_LINE = 32
#: Row ends and entries per program of the merge kernel: 512 with the rest of their first line.
MERGE_ITEMS = 512 - MERGE_LINE
#: Longest rows that the scalar and the pattern kernel unroll completely.
UNROLLED = 32
#: Most patterns, because a pattern number takes one byte.
_PATTERNS = 256
_SAMPLE_ROWS = 2048
#: Entries per piece of a long row in the adaptive kernel, and the most pieces of a matrix; with more entries,
#: pieces grow to a multiple.
PIECE = 1024
_MOST_PIECES = 16384
#: A row of more parts than this has its own program in the join kernel.
_NARROW_PARTS = 64


@dataclass(frozen=True)
class RowProfile:
    """Numbers that choose a kernel.

    Attributes:
        longest: entries of the longest row.
        mean: entries per row.
    """

    longest: int
    mean: float


@dataclass(frozen=True, eq=False)
class JoinPlan:
    """Rows whose sums are computed in parts, and the positions of these parts.

    Attributes:
        rows: (J,) numbers of the rows; those of at most 64 parts come first.
        first, last: (J,) first part of each row, and one past its last.
        narrow: number of rows with at most 64 parts.
    """

    rows: Tensor
    first: Tensor
    last: Tensor
    narrow: int


@dataclass(frozen=True, eq=False)
class MergePlan:
    """Start of each program of the merge kernel (Merrill and Garland, "Merge-based SpMV", SC 2016).

    Row ends and entries form one merged sequence that is cut into equal parts, so every program has the same
    work for rows of any length.

    Attributes:
        first_row: (P + 1,) first row whose end belongs to program p or a later one.
        row_starts: bit i of word w is set if entry 32 w + i is the first of its row; int32.
        split: rows that cross programs. Their parts are all their programs but the last, which ends them.
    """

    first_row: Tensor
    row_starts: Tensor
    split: JoinPlan


@dataclass(frozen=True, eq=False)
class PatternPlan:
    """Row patterns: rows whose columns have the same offsets from the diagonal share one, as in a stencil.

    One byte per row then replaces four bytes per entry.

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
    """Rows of at most :data:`UNROLLED` entries, a thread each, and longer rows in pieces.

    Attributes:
        longest_short: entries of the longest uncut row.
        mean_short: mean entries of such rows; 0 without any.
        short_rows: number of such rows.
        long_entries: entries of all other rows.
        piece_start, piece_end: (P,) entries of each piece; all but the first of a row begin at a memory
            line, a multiple of :data:`MERGE_LINE` entries.
        piece_row: (P,) the row, for a row of one piece; -1 for a piece of a row with more.
        split: rows of several pieces, which are their parts.
    """

    longest_short: int
    mean_short: float
    short_rows: int
    long_entries: int
    piece_start: Tensor
    piece_end: Tensor
    piece_row: Tensor
    split: JoinPlan


def row_profile(matrix: SparseMatrix) -> RowProfile:
    """Return the longest and mean row of a matrix."""

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
    """Return the patterns of a matrix; None for more than 256, or rows of more than 32 entries."""

    def build() -> PatternPlan | None:
        if not 0 < row_profile(matrix).longest <= UNROLLED:
            return None
        if isinstance(matrix, CSR):
            start = matrix.row_ptr[:-1].long()
            return find_patterns(
                matrix.row_lengths().long(), lambda row, entry: matrix.col[start[row] + entry].long()
            )
        if matrix.row_order is not None:
            return None
        height, slices = matrix.slice_height, matrix.slice_ptr.long()

        def column(row: Tensor, entry: Tensor) -> Tensor:
            return matrix.col[slices[row // height] + entry * height + row % height].long()

        return find_patterns(matrix.lengths.long(), column)

    return matrix.cached("spmv.pattern", build)


def adaptive_plan(matrix: CSR) -> AdaptivePlan:
    """Find the short rows and cut the others into pieces."""
    return matrix.cached("spmv.adaptive", lambda: _adaptive_plan(matrix.row_ptr))


def _join_plan(rows: Tensor, first: Tensor, last: Tensor) -> JoinPlan:
    wide = last - first > _NARROW_PARTS
    order = torch.argsort(wide.to(torch.uint8), stable=True)
    return JoinPlan(rows[order], first[order], last[order], len(rows) - int(wide.sum()))


def _merge_plan(row_ptr: Tensor, entries: int) -> MergePlan:
    rows = len(row_ptr) - 1
    numbers = torch.arange(rows, device=row_ptr.device)
    # The end of row r follows all entries before it and r row ends.
    ends = row_ptr[1:].long() + numbers
    programs = -(-(rows + entries) // MERGE_ITEMS)
    cuts = torch.arange(programs + 1, device=row_ptr.device) * MERGE_ITEMS
    first_row = torch.searchsorted(ends, cuts)
    last = ends // MERGE_ITEMS
    first = (row_ptr[:-1].long() + numbers) // MERGE_ITEMS
    split = (first < last).nonzero()[:, 0]
    joined = _join_plan(split, first[split], last[split])
    flags = torch.zeros((entries // 32 + 1) * 32, dtype=torch.int64, device=row_ptr.device)
    flags[row_ptr[:-1][row_ptr[1:] > row_ptr[:-1]].long()] = 1
    words = (flags.view(-1, 32) << torch.arange(32, device=flags.device)).sum(dim=1)
    # The last program extends up to one part beyond the end.
    index = index_dtype_for(rows + entries + MERGE_ITEMS)
    return MergePlan(first_row.to(index), words.to(torch.int32), joined)


def find_patterns(lengths: Tensor, column: Column) -> PatternPlan | None:
    """Find the patterns of rows with these lengths and a function from (row, entry) to the column.

    Patterns are numbered by a hash; then every entry is compared, to exclude collisions.

    Args:
        lengths: (M,) int64, at most 32.
        column: from int64 tensors of rows and of entries to int64 columns.

    Returns:
        None for more than 256 patterns, or no entries.
    """
    rows = len(lengths)
    if rows == 0 or not lengths.any():
        return None
    table = _Offsets(lengths, column)
    sample = torch.arange(0, rows, max(1, rows // _SAMPLE_ROWS), device=lengths.device)
    known = torch.unique(table.hashes(sample))
    if len(known) > _PATTERNS:
        return None
    every = torch.arange(rows, device=lengths.device)
    hashes = table.hashes(every)
    pattern = torch.searchsorted(known, hashes).clamp_(max=len(known) - 1)
    new = hashes[known[pattern] != hashes]
    if len(new):
        known = torch.unique(torch.cat([known, torch.unique(new)]))
        if len(known) > _PATTERNS:
            return None
        pattern = torch.searchsorted(known, hashes)
    # Any row of a pattern can be its example, because all rows are compared with it.
    example = torch.zeros_like(known).scatter_(0, pattern, every)
    width = 1 << max(0, table.longest - 1).bit_length()
    offsets = torch.zeros(len(known), width, dtype=torch.int64, device=lengths.device)
    same = lengths[example][pattern] == lengths
    for entry in range(table.longest):
        offsets[:, entry] = table.at(example, entry)
        same &= offsets[pattern, entry] == table.at(every, entry)
    if not same.all():
        return None
    return PatternPlan(
        pattern.to(torch.uint8), offsets.to(torch.int32), lengths[example].to(torch.int32), table.longest
    )


class _Offsets:
    """Offsets of rows from the diagonal, computed entry by entry to save memory."""

    def __init__(self, lengths: Tensor, column: Column) -> None:
        self.lengths, self.column = lengths, column
        self.longest = int(lengths.max())
        # Row to read for rows without such an entry.
        self.nonempty = (lengths > 0).to(torch.int8).argmax()

    def at(self, rows: Tensor, entry: int) -> Tensor:
        """Return column minus row of entry ``entry``, (R,); 0 in shorter rows."""
        live = self.lengths[rows] > entry
        row = torch.where(live, rows, self.nonempty)
        return torch.where(live, self.column(row, live * entry) - row, 0)

    def hashes(self, rows: Tensor) -> Tensor:
        """Hash the offsets and their number, (R,) int64, equally on every device."""
        mixed = self.lengths[rows] * 0x2545F4914F6CDD1
        for entry in range(self.longest):
            mixed = (mixed ^ (mixed >> 29)) * 0x9E3779B97F4A7C1 + self.at(rows, entry)
        return mixed ^ (mixed >> 32)


def _adaptive_plan(row_ptr: Tensor) -> AdaptivePlan:
    lengths = row_ptr.diff().long()
    short = lengths <= UNROLLED
    long_rows = (~short).nonzero()[:, 0]
    long_entries = int(lengths[long_rows].sum())
    size = PIECE * max(1, -(-long_entries // (PIECE * _MOST_PIECES)))
    start, end = row_ptr[long_rows].long(), row_ptr[long_rows + 1].long()
    # Cut at memory lines, so that no load of a warp reads two lines.
    begin = start - start % MERGE_LINE
    pieces = (end - begin + size - 1) // size
    last = pieces.cumsum(0)
    first = last - pieces
    owner = torch.repeat_interleave(pieces)
    piece_start = begin[owner] + (torch.arange(len(owner), device=owner.device) - first[owner]) * size
    piece_row = torch.where(pieces == 1, long_rows, -1)[owner]
    several = pieces > 1
    index = index_dtype_for(int(row_ptr[-1]) + size)
    short_entries = lengths[short]
    return AdaptivePlan(
        int(short_entries.max()) if len(short_entries) else 0,
        float(short_entries.double().mean()) if len(short_entries) else 0.0,
        len(short_entries),
        long_entries,
        torch.maximum(piece_start, start[owner]).to(index),
        torch.minimum(piece_start + size, end[owner]).to(index),
        piece_row.to(index_dtype_for(len(lengths))),
        _join_plan(long_rows[several], first[several], last[several]),
    )
