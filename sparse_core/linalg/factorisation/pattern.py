"""Patterns of incomplete factorisations: permuted, and with the fill of ILU(k)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg.operands import WORKING_DTYPES, check_square
from sparse_core.linalg.structure import row_of_entry
from sparse_core.linalg.triangular.common import diagonal_positions
from sparse_core.linalg.triangular.levels import expand_segments

#: Products of entries per chunk, which bounds the memory of symbolic work.
_CHUNK = 1 << 24


class Pattern(NamedTuple):
    """Positions of a square matrix in row order.

    Attributes:
        row_ptr: (M + 1,) int64.
        row: (E,) int64.
        col: (E,) int64, ascending within a row.
        source: (E,) int64 index of the value in the matrix, -1 for fill.
    """

    row_ptr: Tensor
    row: Tensor
    col: Tensor
    source: Tensor

    @property
    def size(self) -> int:
        """Number of rows and of columns."""
        return len(self.row_ptr) - 1

    @property
    def keys(self) -> Tensor:
        """Ascending keys ``row * M + col``, (E,) int64."""
        return self.row * self.size + self.col

    def gather(self, values: Tensor) -> Tensor:
        """Gather values at the positions; zero at fill."""
        if len(values) == 0:
            return values.new_zeros(len(self.source))
        found = values[self.source.clamp(min=0)]
        return torch.where(self.source >= 0, found, 0)


class UpperRows(NamedTuple):
    """Range of the strictly upper part of each row: ``start`` and ``length``, (M,) int64."""

    start: Tensor
    length: Tensor


def pattern_of(matrix: CSR, permutation: Tensor | None = None) -> Pattern:
    """Return the positions of ``matrix``, with rows and columns reordered alike.

    ``permutation`` is the (M,) int64 old number of each new one; None keeps the order.
    """
    row, col = row_of_entry(matrix).to(torch.int64), matrix.col.to(torch.int64)
    if permutation is None:
        all_entries = torch.arange(len(col), device=matrix.device)
        return Pattern(matrix.row_ptr.to(torch.int64), row, col, all_entries)
    rank = torch.empty_like(permutation)
    rank[permutation] = torch.arange(len(permutation), device=matrix.device)
    keys, source = torch.sort(rank[row] * matrix.shape[0] + rank[col])
    return _from_keys(keys, source, matrix.shape[0])


def _from_keys(keys: Tensor, source: Tensor, size: int) -> Pattern:
    row = keys // max(size, 1)
    return Pattern(pointers_from_rows(row, size), row, keys - row * size, source)


def check_factorisable(matrix: CSR) -> None:
    """Raise unless ``matrix`` is a square CSR matrix of finite values in single or double precision."""
    check_square(matrix)
    if matrix.dtype not in WORKING_DTYPES:
        raise TypeError(
            f"cannot factorise values of {matrix.dtype}: convert with matrix.to(torch.float32) or float64"
        )
    wrong = (~torch.isfinite(matrix.values.detach())).nonzero()[:1, 0]
    if len(wrong):
        entry = int(wrong[0])
        place = int(row_of_entry(matrix)[entry]), int(matrix.col[entry])
        raise ValueError(
            f"matrix is not finite: entry {place} is {matrix.values[entry].item()}; replace or remove it"
        )


def check_diagonal_stored(matrix: CSR) -> None:
    """Raise ``ValueError`` with the first row that stores no diagonal entry."""
    missing = (diagonal_positions(matrix) < 0).nonzero()[:, 0]
    if len(missing):
        raise ValueError(
            f"matrix stores no diagonal entry in row {int(missing[0])} ({len(missing)} such rows):"
            " store one; a zero suffices where elimination fills it"
        )


def products(pattern: Pattern, left: Tensor, right: UpperRows) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs of entries ``(i, k)`` and ``(k, j)``, chunk by chunk.

    Args:
        left: (L,) the entries ``(i, k)``, ascending.
        right: entries of row ``k`` to pair them with.

    Yields:
        (T,) entry numbers of ``(i, k)``, and of ``(k, j)``.
    """
    middle = pattern.col[left]
    count = right.length[middle]
    total = torch.cumsum(count, 0)
    if len(left) == 0 or int(total[-1]) == 0:
        return
    marks = torch.tensor(range(_CHUNK, int(total[-1]), _CHUNK), dtype=torch.int64, device=left.device)
    bounds = [0, *torch.searchsorted(total, marks).tolist(), len(left)]
    for first, last in pairwise(bounds):
        segment, other = expand_segments(right.start[middle[first:last]], count[first:last])
        yield left[first:last][segment], other


def find(pattern_keys: Tensor, keys: Tensor) -> Tensor:
    """Return the places of ``keys`` in sorted ``pattern_keys``, -1 for absent ones."""
    if len(pattern_keys) == 0:
        return torch.full_like(keys, -1)
    place = torch.searchsorted(pattern_keys, keys).clamp_(max=len(pattern_keys) - 1)
    return torch.where(pattern_keys[place] == keys, place, -1)


def fill(pattern: Pattern, level: int) -> Pattern:
    """Return the pattern of ILU(level): with all fill up to ``level``.

    Entries of the matrix have level 0. Fill from ``(i, k)`` and ``(k, j)`` has the sum of their levels plus
    one; the least counts (Saad, Iterative Methods for Sparse Linear Systems, 10.3.3). Fill of a level comes
    from lower levels, so it is found level by level instead of row by row.
    """
    size = pattern.size
    keys, source = pattern.keys, pattern.source
    levels = torch.zeros_like(keys)
    for new_level in range(1, level + 1):
        current = _from_keys(keys, source, size)
        found = [keys[:0]]
        for of_left in range(new_level):
            # Pairs whose levels sum to one less than the new level.
            left = ((current.col < current.row) & (levels == of_left)).nonzero()[:, 0]
            chosen = ((current.col > current.row) & (levels == new_level - 1 - of_left)).nonzero()[:, 0]
            subset = Pattern(
                pointers_from_rows(current.row[chosen], size), current.row[chosen], chosen, chosen
            )
            rows = UpperRows(subset.row_ptr[:-1], subset.row_ptr.diff())
            for entry, other in products(current, left, rows):
                candidate = torch.unique(current.row[entry] * size + current.col[chosen[other]])
                found.append(candidate[find(keys, candidate) < 0])
        new = torch.unique(torch.cat(found))
        if len(new) == 0:
            continue
        keys, order = torch.sort(torch.cat([keys, new]))
        source = torch.cat([source, torch.full_like(new, -1)])[order]
        levels = torch.cat([levels, torch.full_like(new, new_level)])[order]
    return _from_keys(keys, source, size)


def check_same_structure(known: CSR, matrix: CSR) -> None:
    """Raise ``ValueError`` unless the stored positions are equal; also call :func:`check_factorisable`."""
    check_factorisable(matrix)
    if known.shape != matrix.shape or known.device != matrix.device or known.nnz != matrix.nnz:
        raise ValueError(
            f"matrix has another structure than the factorised one: {matrix.shape}, {matrix.nnz} entries,"
            f" {matrix.device}; expected {known.shape}, {known.nnz} entries, {known.device}"
        )
    for name in ("row_ptr", "col"):
        before, now = getattr(known, name), getattr(matrix, name)
        if before is not now and not torch.equal(before, now):
            raise ValueError(f"matrix has another structure than the factorised one: {name} differs")
