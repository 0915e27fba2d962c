"""Sparse-sparse product in plain torch: expand, sort, compress.

Nathan Bell, Steven Dalton, Luke Olson, "Exposing fine-grained parallelism in algebraic multigrid methods",
SIAM J. Sci. Comput. 34(4), 2012, section 4.
"""

from __future__ import annotations

import torch

from sparse_core.formats import CSR
from sparse_core.formats.base import index_dtype_for
from sparse_core.linalg.operands import accumulation_dtype
from sparse_core.linalg.spgemm.common import expand
from sparse_core.linalg.structure import segment_sum


def spgemm(a: CSR, b: CSR) -> CSR:
    """Return ``a @ b`` on any device, bitwise reproducibly."""
    dtype = torch.promote_types(a.dtype, b.dtype)
    working = accumulation_dtype(dtype)
    shape = (a.shape[0], b.shape[1])
    lengths = [torch.zeros(1, dtype=torch.int64, device=a.device)]
    columns = [torch.zeros(0, dtype=torch.int64, device=a.device)]
    values = [torch.zeros(0, dtype=dtype, device=a.device)]
    for run in expand(a, b):
        keys, order = torch.sort(run.keys, stable=True)
        distinct, counts = torch.unique_consecutive(keys, return_counts=True)
        products = a.values[run.left[order]].to(working) * b.values[run.right[order]].to(working)
        ends = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        values.append(segment_sum(products, ends).to(dtype))
        columns.append(distinct % max(1, shape[1]))
        bounds = torch.arange(run.rows[1] - run.rows[0] + 1, device=a.device) * shape[1]
        lengths.append(torch.searchsorted(distinct, bounds).diff())
    col = torch.cat(columns)
    index = index_dtype_for(*shape, len(col))
    return CSR(
        torch.cat(lengths).cumsum(0).to(index), col.to(index), torch.cat(values), shape, validate=False
    )
