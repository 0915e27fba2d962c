"""Index arithmetic and copies that the formats share, in plain torch on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_core.kernels import torch_internals
from sparse_core.kernels.autocast import without_autocast


def expand_pointers(pointers: Tensor, total: int) -> Tensor:
    """Return the row of each entry, (total,), from row pointers (M + 1,).

    ``total`` is the number of entries; passing it avoids a read from the device.
    """
    rows = torch.arange(len(pointers) - 1, dtype=pointers.dtype, device=pointers.device)
    return torch.repeat_interleave(rows, pointers.diff(), output_size=total)


def pointers_from_lengths(lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """Return row pointers (M + 1,) of row lengths (M,)."""
    pointers = torch.zeros(len(lengths) + 1, dtype=dtype, device=lengths.device)
    torch.cumsum(lengths, dim=0, dtype=dtype, out=pointers[1:])
    return pointers


def pointers_from_rows(rows: Tensor, count: int) -> Tensor:
    """Return row pointers (count + 1,) of sorted rows, in their dtype."""
    edges = torch.arange(count + 1, dtype=rows.dtype, device=rows.device)
    return torch.searchsorted(rows.contiguous(), edges, out_int32=rows.dtype == torch.int32)


def transpose_structure(row_ptr: Tensor, col: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the transposed structure of compressed rows.

    Returns:
        (columns + 1,) row pointers; (nnz,) columns; (nnz,) entry of the original; all of the index type.
    """
    if scipy_can_read(col):
        import scipy.sparse

        # scipy counts the entries of each column, which is faster than a sort.
        entries, shape = np.arange(len(col), dtype=col.numpy().dtype), (len(row_ptr) - 1, columns)
        turned = scipy.sparse.csr_array((entries, col.numpy(), row_ptr.numpy()), shape=shape).tocsc()
        parts = (turned.indptr, turned.indices, turned.data)
        pointers, rows, order = (torch.from_numpy(part).to(col.dtype) for part in parts)
        return pointers, rows, order
    col, order = torch.sort(col, stable=True)
    rows = expand_pointers(row_ptr, len(col)).index_select(0, order)
    return pointers_from_rows(col, columns), rows, order.to(col.dtype)


def rank_within_rows(pointers: Tensor, rows: Tensor) -> Tensor:
    """Return the position of each entry within its row: (total,) int64."""
    places = torch.arange(len(rows), device=rows.device)
    return places - pointers.long().index_select(0, rows)


@without_autocast
def scatter_values(values: Tensor, positions: Tensor, size: int) -> Tensor:
    """Write ``values`` at distinct ``positions`` of zeros of length ``size``; differentiable."""
    flat = torch.zeros((size, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return flat.index_copy(0, positions, values)


@without_autocast
def concatenate(*parts: Tensor) -> Tensor:
    """Concatenate values, differentiably; autocast on a CPU would reject float16."""
    return torch.cat(parts)


def narrow(indices: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert indices to ``dtype``; values that overflow stay out of range."""
    if indices.dtype == torch.int64 and dtype == torch.int32:
        return indices.clamp(-1, torch.iinfo(torch.int32).max).to(dtype)
    return indices.to(dtype)


def to_numpy(tensor: Tensor) -> Any:
    """Copy to numpy; float16 and bfloat16 become float32, because scipy lacks them."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float().numpy()
    return tensor.numpy().copy()


def scipy_can_read(tensor: Tensor) -> bool:
    """True if scipy can read the tensor now: on a CPU, outside torch.compile and torch.func."""
    if type(tensor) is not Tensor or tensor.device.type != "cpu":
        return False
    return not (torch.compiler.is_compiling() or torch_internals.transforms_active())


def true_positions(mask: Tensor) -> Tensor:
    """Return the positions of True in a mask (N,), (count,) int64."""
    if scipy_can_read(mask):
        # Several times as fast as torch's nonzero.
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().squeeze(1)


def ceil_div(count: int, step: int) -> int:
    """Return ``count / step``, rounded up."""
    return -(-count // step)
