"""Thomas' algorithm in Triton: a lane solves one right-hand side of one system.

Neighbouring lanes solve neighbouring systems, so arrays are stored row by row with the systems side by side,
and every access is coalesced. No pivoting: stable for diagonally dominant and for positive
definite systems. Runs on CUDA, and on a CPU with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.linalg.tridiagonal.common import Solution

#: Small, so that a few thousand systems already occupy every multiprocessor.
_BLOCK = 64


@triton.jit
def _thomas_kernel(  # type: ignore[no-untyped-def]
    lower, diagonal, upper, b, x, scratch, zero_pivot, systems, columns, size, BLOCK: tl.constexpr
):
    """Eliminate downwards, keeping the scaled upper diagonal in ``scratch``; substitute upwards."""
    lanes = systems * columns
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < lanes
    system = lane // columns
    ratio = tl.zeros([BLOCK], dtype=b.dtype.element_ty)
    carried = tl.zeros([BLOCK], dtype=b.dtype.element_ty)
    flag = tl.full([BLOCK], -1, dtype=tl.int64)
    row = tl.zeros([BLOCK], dtype=tl.int64)
    for _ in range(size):
        below = tl.load(lower + row * systems + system, mask=inside, other=0.0)
        pivot = tl.load(diagonal + row * systems + system, mask=inside, other=1.0) - below * ratio
        flag = tl.where((pivot == 0) & (flag < 0), row, flag)
        ratio = tl.load(upper + row * systems + system, mask=inside, other=0.0) / pivot
        carried = (tl.load(b + row * lanes + lane, mask=inside, other=0.0) - below * carried) / pivot
        tl.store(scratch + row * lanes + lane, ratio, mask=inside)
        tl.store(x + row * lanes + lane, carried, mask=inside)
        row += 1
    # The lanes of a system agree on its pivots; one of them writes.
    tl.store(zero_pivot + system, flag, mask=inside & (lane % columns == 0))
    row -= 2
    for _ in range(size - 1):
        ratio = tl.load(scratch + row * lanes + lane, mask=inside, other=0.0)
        carried = tl.load(x + row * lanes + lane, mask=inside, other=0.0) - ratio * carried
        tl.store(x + row * lanes + lane, carried, mask=inside)
        row -= 1


def solve(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Solution:
    """Solve all systems; see :mod:`sparse_core.linalg.tridiagonal.common`."""
    systems, size, columns = b.shape
    rows = [part.mT.contiguous() for part in (lower, diagonal, upper)]
    right = b.transpose(0, 1).contiguous()
    x, scratch = torch.empty_like(right), torch.empty_like(right)
    zero_pivot = torch.empty(systems, dtype=torch.int64, device=b.device)
    _thomas_kernel[(triton.cdiv(systems * columns, _BLOCK),)](
        *rows, right, x, scratch, zero_pivot, systems, columns, size, BLOCK=_BLOCK
    )
    return Solution(x.transpose(0, 1).contiguous(), zero_pivot)
