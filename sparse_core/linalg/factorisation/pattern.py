"""Patterns that incomplete factorisations work on: permuted, and with the fill of ILU(k)."""

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

#: Products of entries looked at in one go; bounds the memory of symbolic work.
_CHUNK = 1 << 24


class Pattern(NamedTuple):
    """Positions of a square matrix in row order.

    Attributes:
        row_ptr: (M + 1,) int64.
        row: (E,) int64.
        col: (E,) int64, rising within a row.
        source: (E,) int64 where the value is stored in the matrix, -1 for fill.
    """

    row_ptr: Tensor
    row: Tensor
    col: Tensor
    source: Tensor

    @property
    def size(self) -> int:
        """Rows, and columns."""
        return len(self.row_ptr) - 1

    @property
    def keys(self) -> Tensor:
        """(E,) int64, rising: ``row * M + col``."""
        return self.row * self.size + self.col

    def gather(self, values: Tensor) -> Tensor:
        """Values at the positions; zero at fill."""
        if len(values) == 0:
            return values.new_zeros(len(self.source))
        found = values[self.source.clamp(min=0)]
        return torch.where(self.source >= 0, found, 0)


class UpperRows(NamedTuple):
    """Where the strictly upper part of each row lies: ``start`` and ``length``, (M,) int64."""

    start: Tensor
    length: Tensor


def pattern_of(matrix: CSR, permutation: Tensor | None = None) -> Pattern:
    """Positions of ``matrix``, rows and columns reordered alike.

    Args:
        matrix: (M, M).
        permutation: (M,) int64, old number of each new one; None keeps the order.
    """
    row, col = row_of_entry(matrix).to(torch.int64), matrix.col.to(torch.int64)
    if permutation is None:
        everything = torch.arange(len(col), device=matrix.device)
        return Pattern(matrix.row_ptr.to(torch.int64), row, col, everything)
    rank = torch.empty_like(permutation)
    rank[permutation] = torch.arange(len(permutation), device=matrix.device)
    keys, source = torch.sort(rank[row] * matrix.shape[0] + rank[col])
    return _from_keys(keys, source, matrix.shape[0])


def _from_keys(keys: Tensor, source: Tensor, size: int) -> Pattern:
    row = keys // max(size, 1)
    return Pattern(pointers_from_rows(row, size), row, keys - row * size, source)


def check_factorisable(matrix: CSR) -> None:
    """Raise unless ``matrix`` is a square CSR matrix of finite values in full or double precision.

    Raises:
        TypeError: another format, or values that are not float32, float64 or complex of these.
        ValueError: not square, or a value that is NaN or infinite; the entry is named.
    """
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
    """Raise ``ValueError`` naming the first row without a stored diagonal entry."""
    missing = (diagonal_positions(matrix) < 0).nonzero()[:, 0]
    if len(missing):
        raise ValueError(
            f"matrix stores no diagonal entry in row {int(missing[0])} ({len(missing)} such rows):"
            " store one, a zero will do where elimination fills it"
        )


def products(pattern: Pattern, left: Tensor, right: UpperRows) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of entries ``(i, k)`` and ``(k, j)``, chunk by chunk.

    Args:
        pattern: the positions.
        left: (L,) the entries ``(i, k)``, rising.
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
    """Places of ``keys`` in sorted ``pattern_keys``, -1 where absent."""
    if len(pattern_keys) == 0:
        return torch.full_like(keys, -1)
    place = torch.searchsorted(pattern_keys, keys).clamp_(max=len(pattern_keys) - 1)
    return torch.where(pattern_keys[place] == keys, place, -1)


def fill(pattern: Pattern, level: int) -> Pattern:
    """The pattern of ILU(level): fill whose level is at most ``level``.

    An entry of the matrix has level 0, fill that ``(i, k)`` and ``(k, j)`` cause has the sum of their
    levels plus one, and the least counts (Saad, Iterative Methods for Sparse Linear Systems, 10.3.3).
    Fill of a level comes from pairs of lower levels, so it is found level by level instead of row by row.
    """
    size = pattern.size
    keys, source = pattern.keys, pattern.source
    levels = torch.zeros_like(keys)
    for new_level in range(1, level + 1):
        current = _from_keys(keys, source, size)
        found = [keys[:0]]
        for of_left in range(new_level):
            # Pairs whose levels add up to one less than the new level.
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
            # A level without fill can still be followed by one with fill only if pairs are left.
            continue
        keys, order = torch.sort(torch.cat([keys, new]))
        source = torch.cat([source, torch.full_like(new, -1)])[order]
        levels = torch.cat([levels, torch.full_like(new, new_level)])[order]
    return _from_keys(keys, source, size)


def check_same_structure(known: CSR, matrix: CSR) -> None:
    """Raise as :func:`check_factorisable`, or ``ValueError`` unless the stored positions are the same."""
    check_factorisable(matrix)
    if known.shape != matrix.shape or known.device != matrix.device or known.nnz != matrix.nnz:
        raise ValueError(
            f"matrix differs in structure from the one factorised: {matrix.shape}, {matrix.nnz} entries,"
            f" {matrix.device}; expected {known.shape}, {known.nnz} entries, {known.device}"
        )
    for name in ("row_ptr", "col"):
        before, now = getattr(known, name), getattr(matrix, name)
        if before is not now and not torch.equal(before, now):
            raise ValueError(f"matrix differs in structure from the one factorised: see its {name}")
