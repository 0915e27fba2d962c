"""Index arithmetic and copies that the formats share: plain torch, any device, no loop over rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels.autocast import without_autocast


def expand_pointers(pointers: Tensor, total: int) -> Tensor:
    """Row of each entry.

    Args:
        pointers: (M + 1,) integer row pointers.
        total: number of entries (given, so that nothing is read from the device).

    Returns:
        (total,) of the same dtype.
    """
    rows = torch.arange(len(pointers) - 1, dtype=pointers.dtype, device=pointers.device)
    return torch.repeat_interleave(rows, pointers.diff(), output_size=total)


def pointers_from_lengths(lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """(M + 1,) row pointers of (M,) row lengths."""
    pointers = torch.zeros(len(lengths) + 1, dtype=dtype, device=lengths.device)
    torch.cumsum(lengths, dim=0, dtype=dtype, out=pointers[1:])
    return pointers


def pointers_from_rows(rows: Tensor, count: int) -> Tensor:
    """(count + 1,) row pointers of sorted rows, in their dtype."""
    edges = torch.arange(count + 1, dtype=rows.dtype, device=rows.device)
    return torch.searchsorted(rows.contiguous(), edges, out_int32=rows.dtype == torch.int32)


def rank_within_rows(pointers: Tensor, rows: Tensor) -> Tensor:
    """Place of each entry within its row, 0 first: (total,) int64."""
    places = torch.arange(len(rows), device=rows.device)
    return places - pointers.long().index_select(0, rows)


@without_autocast
def scatter_values(values: Tensor, positions: Tensor, size: int) -> Tensor:
    """Flat zeros with ``values`` written at distinct ``positions``; differentiable.

    Args:
        values: (count,) or (count, *rest).
        positions: (count,) int64.
        size: length of the result.
    """
    flat = torch.zeros((size, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return flat.index_copy(0, positions, values)


@without_autocast
def concatenate(*parts: Tensor) -> Tensor:
    """Values one part after the other; differentiable. Autocast on a CPU would refuse float16."""
    return torch.cat(parts)


def narrow(indices: Tensor, dtype: torch.dtype) -> Tensor:
    """Indices as ``dtype``; what does not fit becomes a number that is out of range there too."""
    if indices.dtype == torch.int64 and dtype == torch.int32:
        return indices.clamp(-1, torch.iinfo(torch.int32).max).to(dtype)
    return indices.to(dtype)


def to_numpy(tensor: Tensor) -> Any:
    """A numpy copy; float16 and bfloat16 become float32, which scipy can compute with."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float().numpy()
    return tensor.numpy().copy()


def ceil_div(count: int, step: int) -> int:
    """Whole steps that cover ``count``."""
    return -(-count // step)
