"""Gradient of a sparse-sparse product: the sparse gradient times the other operand, where entries are."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.spgemm.common import expand
from sparse_core.linalg.structure import segment_sum


def gradient_of_left(a: CSR, b: CSR, product: CSR, gradient: Tensor) -> Tensor:
    """Gradient of the values of ``a``: ``gradient @ b^H`` at the entries of ``a``, summed in a fixed order.

    Args:
        a: (M, K); only the structure matters.
        b: (K, N).
        product: (M, N) structure of ``a @ b``.
        gradient: (nnz,) gradient of the values of the product.

    Returns:
        (nnz,) of ``a``, in the type that sums are taken in.
    """
    working = accumulation_dtype(torch.promote_types(gradient.dtype, b.dtype))
    parts = [torch.zeros(0, dtype=working, device=a.device)]
    row_ptr = product.row_ptr.long()
    for run in expand(a, b):
        first, last = (int(row_ptr[row]) for row in run.rows)
        local_ptr = row_ptr[run.rows[0] : run.rows[1] + 1] - first
        local_rows = torch.repeat_interleave(local_ptr.diff())
        keys = local_rows * product.shape[1] + product.col[first:last]
        position = torch.searchsorted(keys, run.keys) + first
        terms = gradient[position].to(working) * b.values[run.right].to(working).conj()
        parts.append(segment_sum(terms, run.offsets))
    return torch.cat(parts)
