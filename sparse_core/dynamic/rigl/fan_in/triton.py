"""Product of few rows with connections by row; it reads each weight and position once.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Products that a program holds per step.
_PRODUCTS = 4096


@triton.jit
def fan_in_kernel(  # type: ignore[no-untyped-def]
    x, values, columns, bias, out,
    rows, per_row, count,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, COUNT: tl.constexpr, BIASED: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    """ROWS features of all rows of ``x``, which is transposed: (in, COUNT)."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.arange(0, COUNT)
    begin = row.to(tl.int64) * per_row
    total = tl.zeros((ROWS, DEPTH, COUNT), ACCUMULATOR)
    for first in range(0, per_row, DEPTH):
        k = first + tl.arange(0, DEPTH)
        wanted = (row < rows)[:, None] & (k < per_row)[None, :]
        place = begin[:, None] + k[None, :]
        value = tl.load(values + place, mask=wanted, other=0.0).to(ACCUMULATOR)
        column = tl.load(columns + place, mask=wanted, other=0)
        met = tl.load(x + (column[:, :, None] * COUNT + n[None, None, :]), mask=wanted[:, :, None], other=0.0)
        total += met.to(ACCUMULATOR) * value[:, :, None]
    result = tl.sum(total, axis=1)
    if BIASED:
        result += tl.load(bias + row, mask=row < rows, other=0.0).to(ACCUMULATOR)[:, None]
    target = out + (n[None, :] * rows + row[:, None])
    tl.store(target, result.to(out.dtype.element_ty), mask=(row < rows)[:, None] & (n < count)[None, :])


def product(x: Tensor, values: Tensor, columns: Tensor, rows: int, bias: Tensor | None) -> Tensor:
    """(N, rows) of (N, in); see :func:`sparse_core.dynamic.rigl.fan_in.api.fan_in_product`."""
    count, width = x.shape
    padded = triton.next_power_of_2(count)
    if count == padded:
        across = x.T.contiguous()
    else:
        across = x.new_zeros(width, padded)
        across[:, :count] = x.T
    per_row = len(values) // rows
    depth = min(128, max(16, triton.next_power_of_2(per_row)))
    height = max(1, min(16, _PRODUCTS // (depth * padded)))
    # For small weights more programs are better than more rows per program.
    while height > 1 and triton.cdiv(rows, height) < 528:
        height //= 2
    out = x.new_empty(count, rows)
    fan_in_kernel[(triton.cdiv(rows, height),)](
        across, values, columns, across if bias is None else bias, out, rows, per_row, count,
        ROWS=height, DEPTH=depth, COUNT=padded, BIASED=bias is not None,
        ACCUMULATOR=tl.float64 if x.dtype == torch.float64 else tl.float32, num_warps=4,
    )  # fmt: skip
    return out
