"""Assembly by a library: torch's ``coalesce`` on CUDA, scipy on a CPU.

Neither fixes the order of the sums, so the last bits may differ from other implementations.
"""

from __future__ import annotations

import warnings

import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats.assemble.common import Assembly, result_index_dtype, sum_dtype


def assemble(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int], *, target: bool) -> Assembly:
    """Sort by (row, col) and sum the entries of each cell."""
    wide = values.detach().to(sum_dtype(values.dtype))
    row_ptr, column, summed = (_torch if row.is_cuda else _scipy)(row, col, wide, shape)
    index = result_index_dtype(col.dtype, len(column))
    row_ptr, column = row_ptr.to(index), column.to(index)
    went = _targets(row, col, row_ptr, column, shape) if target else None
    return Assembly(row_ptr, column, summed.to(values.dtype), went)


def _torch(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    with warnings.catch_warnings():
        # torch warns that its CSR support is in beta.
        warnings.filterwarnings("ignore", message="Sparse", category=UserWarning)
        coordinates = torch.stack([row, col])
        stored = torch.sparse_coo_tensor(coordinates, values, shape, check_invariants=False)
        compressed = stored.coalesce().to_sparse_csr()
    return compressed.crow_indices(), compressed.col_indices(), compressed.values()


def _scipy(row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    matrix = scipy.sparse.coo_array((values.numpy(), (row.numpy(), col.numpy())), shape=shape).tocsr()
    matrix.sum_duplicates()
    return (
        torch.from_numpy(matrix.indptr),
        torch.from_numpy(matrix.indices),
        torch.from_numpy(matrix.data),
    )


def _targets(row: Tensor, col: Tensor, row_ptr: Tensor, column: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return the position of each entry's cell, by a search among the sorted cells."""
    lengths = row_ptr.diff().long()
    rows = torch.repeat_interleave(torch.arange(shape[0], device=row.device), lengths)
    return torch.searchsorted(rows * shape[1] + column.long(), row.long() * shape[1] + col.long())
