"""Index arithmetic of block matrices."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sparse_core.formats.indexing import (
    ceil_div,
    expand_pointers,
    pointers_from_rows,
    rank_within_rows,
    scipy_can_read,
)


def block_dimensions(block_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return rows and columns of a block."""
    given = (block_size, block_size) if isinstance(block_size, int | float) else tuple(block_size)
    sizes = tuple(int(size) for size in given)
    if len(sizes) != 2 or min(sizes) < 1 or sizes != given:
        raise ValueError(f"block_size must be one or two numbers of at least 1, got {block_size!r}")
    return sizes[0], sizes[1]


def block_keys(row: Tensor, col: Tensor, block_size: tuple[int, int], block_columns: int) -> Tensor:
    """Return the index of each entry's block, counted row by row: (nnz,) int64.

    Args:
        row: (nnz,) int64.
        col: (nnz,) integer.
        block_size: rows and columns of a block.
    """
    keys = torch.div(row, block_size[0], rounding_mode="floor") * block_columns
    return keys.add_(torch.div(col, block_size[1], rounding_mode="floor"))


def scalar_places(row_ptr: Tensor, col: Tensor, block_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return row (blocks, r, 1) and column (blocks, 1, c) of every scalar of every block, int64."""
    r, c = block_size
    block_row = expand_pointers(row_ptr, len(col)).long()
    row = (block_row * r)[:, None, None] + torch.arange(r, device=col.device)[:, None]
    column = (col.long() * c)[:, None, None] + torch.arange(c, device=col.device)
    return row, column


def entries_by_row(
    row_ptr: Tensor, col: Tensor, block_size: tuple[int, int], shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scalars of blocks in the order of CSR; scalars outside ``shape`` are dropped.

    Returns:
        (rows + 1,) row pointers and (nnz,) columns of CSR; (nnz,) flat positions in (blocks, r, c); integers.
    """
    if scipy_can_read(col):
        return _entries_by_scipy(row_ptr, col, block_size, shape)
    r, c = block_size
    block_row = expand_pointers(row_ptr, len(col)).long()
    first = row_ptr.long().index_select(0, block_row)
    in_row = row_ptr.diff().long().index_select(0, block_row)
    # A block row of k blocks is r lines of k * c scalars, so no sort is needed.
    start = first * (r * c) + rank_within_rows(row_ptr, block_row) * c
    line = torch.arange(r, device=col.device)[:, None] * (in_row * c)[:, None, None]
    target = (start[:, None, None] + line + torch.arange(c, device=col.device)).reshape(-1)
    row, column = scalar_places(row_ptr, col, block_size)
    order = torch.empty_like(target)
    order[target] = torch.arange(len(target), device=col.device)
    row_of, column_of = (
        part.expand(len(col), r, c).reshape(-1).index_select(0, order) for part in (row, column)
    )
    if shape[0] % r or shape[1] % c:
        inside = (row_of < shape[0]) & (column_of < shape[1])
        row_of, column_of, order = row_of[inside], column_of[inside], order[inside]
    return pointers_from_rows(row_of, shape[0]), column_of, order


def _entries_by_scipy(
    row_ptr: Tensor, col: Tensor, block_size: tuple[int, int], shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    import scipy.sparse

    r, c = block_size
    rows, columns = shape
    whole = ((len(row_ptr) - 1) * r, ceil_div(columns, c) * c)
    index = np.int32 if max(len(col) * r * c, *whole) < 2**31 else np.int64
    positions = np.arange(len(col) * r * c, dtype=index).reshape(len(col), r, c)
    parts = (positions, col.numpy().astype(index), row_ptr.numpy().astype(index))
    found = scipy.sparse.bsr_array(parts, shape=whole).tocsr()
    pointers = found.indptr[: rows + 1]
    inner, order = found.indices[: pointers[-1]], found.data[: pointers[-1]]
    if columns < whole[1]:
        kept = np.flatnonzero(inner < columns)
        pointers, inner, order = np.searchsorted(kept, pointers), inner[kept], order[kept]
    return torch.from_numpy(pointers), torch.from_numpy(inner), torch.from_numpy(order)
