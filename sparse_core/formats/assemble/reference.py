"""Assembly by a stable sort, in torch, or numpy and scipy on a CPU: the oracle, and what a CPU runs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sparse_core.formats.assemble.common import Assembly, result_index_dtype, sum_dtype, sum_runs
from sparse_core.formats.indexing import scipy_can_read, true_positions

#: Most rows and columns per entry for a sort that counts; beyond, the counts take longer than the entries.
_COUNTED = 8


def assemble(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, target: bool) -> Assembly:
    """Sort by (row, col) and sum the entries of each cell in input order; at least one entry."""
    order = _order(row, col, shape)
    if order is not None:
        row, col = row.index_select(0, order), col.index_select(0, order)
    head = torch.ones(len(row), dtype=torch.bool, device=row.device)
    head[1:] = (row[1:] != row[:-1]) | (col[1:] != col[:-1])
    starts = true_positions(head)
    summed = values if order is None else values[order]
    if len(starts) < len(row):
        summed = sum_runs(summed.to(sum_dtype(values.dtype)), starts).to(values.dtype)
    elif order is None:
        summed = summed.clone()
    went = None
    if target:
        cell = head.cumsum(0) - 1
        went = cell if order is None else torch.empty_like(cell).index_copy_(0, order, cell)
    index = result_index_dtype(col.dtype, len(starts))
    row_ptr = torch.zeros(shape[0] + 1, dtype=index, device=row.device)
    row_ptr[1:] = torch.bincount(row[starts], minlength=shape[0]).cumsum(0)
    return Assembly(row_ptr, col[starts].to(index), summed, went)


def _order(row: Tensor, col: Tensor, shape: tuple[int, int]) -> Tensor | None:
    """Return the stable permutation that sorts by (row, col); None if entries are sorted."""
    cells = shape[0] * shape[1]
    if cells >= 2**63:
        # The linear key would overflow: sort by column, then stably by row.
        by_col = torch.sort(col, stable=True).indices
        return by_col[torch.sort(row[by_col], stable=True).indices]
    # Narrow keys sort in half the time.
    key_dtype = torch.int32 if cells < 2**31 else torch.int64
    keys = row.to(key_dtype) * shape[1] + col.to(key_dtype)
    if bool((keys[1:] >= keys[:-1]).all()):
        return None
    if scipy_can_read(row) and max(shape) <= _COUNTED * len(row):
        return _counted_order(row, col, shape)
    shift = (len(row) - 1).bit_length()
    if row.device.type == "cpu" and cells << shift < 2**63:
        # With the position in its low bits every key is unique, so an unstable sort works. numpy's vectorised
        # sort is several times as fast as torch's stable one.
        packed = (keys.long() << shift) | torch.arange(len(row))
        return torch.from_numpy(np.sort(packed.numpy())) & ((1 << shift) - 1)
    return torch.sort(keys, stable=True).indices


def _counted_order(row: Tensor, col: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return :func:`_order` by counting the entries of each column, then of each row."""
    import scipy.sparse

    entries = np.arange(len(row), dtype=np.int32 if len(row) < 2**31 else np.int64)
    coordinates = scipy.sparse.coo_array((entries, (row.numpy(), col.numpy())), shape=shape)
    # scipy would sum duplicates.
    coordinates.has_canonical_format = True
    return torch.from_numpy(coordinates.tocsc().tocsr().data).long()
