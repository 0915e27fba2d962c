"""Gauss-Seidel in Triton: one launch relaxes all unknowns of a colour, in the matrix's own ordering.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.linalg.spmv.plan import PatternPlan

#: Longest rows that are unrolled completely.
_UNROLLED = 32
_ROWS = 128


@triton.jit
def _relax_kernel(  # type: ignore[no-untyped-def]
    row_ptr,
    col,
    values,
    pattern,
    offsets,
    lengths,
    unknowns,
    inverse_diagonal,
    b,
    x,
    count,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    UNROLLED: tl.constexpr,
    PATTERNED: tl.constexpr,
    WIDTH: tl.constexpr,
    ACC: tl.constexpr,
):
    """``x[u] = (b[u] - sum of a[u, v] x[v]) / a[u, u]`` for the unknowns of one colour, a thread each.

    No two unknowns of a colour are coupled, so no thread reads what another one writes. ``PATTERNED``
    takes the columns from row patterns instead of ``col``.
    """
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = number < count
    unknown = tl.load(unknowns + number, mask=inside, other=0)
    start = tl.load(row_ptr + number, mask=inside, other=0)
    end = tl.load(row_ptr + number + 1, mask=inside, other=0)
    total = tl.load(b + unknown, mask=inside, other=0).to(ACC)
    if PATTERNED:
        which = tl.load(pattern + number, mask=inside, other=0).to(tl.int32)
        length = tl.load(lengths + which, mask=inside, other=0)
        for step in tl.static_range(STEPS):
            live = step < length
            column = unknown + tl.load(offsets + which * WIDTH + step, mask=live, other=0)
            value = tl.load(values + start + step, mask=live, other=0)
            total -= value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    elif UNROLLED:
        for step in tl.static_range(STEPS):
            live = start + step < end
            column = tl.load(col + start + step, mask=live, other=0)
            value = tl.load(values + start + step, mask=live, other=0)
            total -= value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    else:
        longest = tl.max(end - start, axis=0)
        for base in range(0, longest, STEPS):
            for step in tl.static_range(STEPS):
                at = start + base + step
                live = at < end
                column = tl.load(col + at, mask=live, other=0)
                value = tl.load(values + at, mask=live, other=0)
                total -= value.to(ACC) * tl.load(x + column, mask=live, other=0).to(ACC)
    scale = tl.load(inverse_diagonal + number, mask=inside, other=0)
    tl.store(x + unknown, total * scale.to(ACC), mask=inside)


def relax(
    row_ptr: Tensor,
    col: Tensor,
    values: Tensor,
    patterns: PatternPlan | None,
    unknowns: Tensor,
    inverse_diagonal: Tensor,
    b: Tensor,
    x: Tensor,
    longest: int,
) -> None:
    """Relax the unknowns of one colour in place.

    Args:
        row_ptr, col, values: CSR rows of the colour without the diagonal; columns number all M unknowns.
        patterns: of the rows relative to ``unknowns``, or None.
        unknowns: (C,) numbers of the colour's unknowns.
        inverse_diagonal: (C,) inverse of their diagonal values.
        b: (M,) right-hand side, contiguous.
        x: (M,) current solution, contiguous; changed.
        longest: entries of the longest row; 0 treats all other unknowns as zero.
    """
    if len(unknowns) == 0:
        return
    if patterns is not None:
        longest = min(longest, patterns.longest)
    _relax_kernel[(triton.cdiv(len(unknowns), _ROWS),)](
        row_ptr,
        col,
        values,
        col if patterns is None else patterns.pattern,
        col if patterns is None else patterns.offsets,
        col if patterns is None else patterns.lengths,
        unknowns,
        inverse_diagonal,
        b,
        x,
        len(unknowns),
        ROWS=_ROWS,
        STEPS=longest if longest <= _UNROLLED else 4,
        UNROLLED=longest <= _UNROLLED,
        PATTERNED=patterns is not None and longest > 0,
        WIDTH=1 if patterns is None else patterns.offsets.shape[1],
        ACC=tl.float64 if torch.float64 in (values.dtype, b.dtype) else tl.float32,
        num_warps=4,
    )
