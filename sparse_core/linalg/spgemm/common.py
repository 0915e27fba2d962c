"""Scalar products of a sparse-sparse product, listed in slices of bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.structure import row_of_entry

#: Most scalar products per slice; a single row may exceed it.
PRODUCTS = 2**22


class Expansion(NamedTuple):
    """Scalar products of a run of rows of ``a @ b``, in the order of the entries of ``a``.

    Attributes:
        rows: first row of the run and one past its last.
        entries: first entry of ``a`` in the run and one past the last.
        offsets: (entries + 1,) first product of each entry.
        left: (P,) entry of ``a`` of each product.
        right: (P,) entry of ``b`` of each product.
        keys: (P,) int64 position in the run: (row - first row) * columns of ``b`` + column.
    """

    rows: tuple[int, int]
    entries: tuple[int, int]
    offsets: Tensor
    left: Tensor
    right: Tensor
    keys: Tensor


def expand(a: CSR, b: CSR) -> Iterator[Expansion]:
    """Yield the scalar products of ``a`` (M, K) and ``b`` (K, N), a run of rows at a time."""
    per_entry = b.row_ptr.diff().long()[a.col]
    before_entry = torch.nn.functional.pad(per_entry.cumsum(0), (1, 0))
    row_ptr = a.row_ptr.long()
    entry_rows = row_of_entry(a).long()
    for first_row, last_row in _runs(before_entry[row_ptr]):
        first, last = int(row_ptr[first_row]), int(row_ptr[last_row])
        offsets = before_entry[first : last + 1] - before_entry[first]
        left = torch.repeat_interleave(per_entry[first:last]) + first
        within = torch.arange(len(left), device=left.device) - offsets[left - first]
        right = b.row_ptr.long()[a.col[left].long()] + within
        keys = (entry_rows[left] - first_row) * b.shape[1] + b.col[right]
        yield Expansion((first_row, last_row), (first, last), offsets, left, right, keys)


def _runs(before_row: Tensor) -> Iterator[tuple[int, int]]:
    """Yield runs of rows with at most ``PRODUCTS`` products; ``before_row`` counts those before each."""
    rows = len(before_row) - 1
    first = 0
    while first < rows:
        limit = before_row[first] + PRODUCTS
        last = int(torch.searchsorted(before_row, limit, right=True)) - 1
        last = min(rows, max(first + 1, last))
        yield first, last
        first = last
