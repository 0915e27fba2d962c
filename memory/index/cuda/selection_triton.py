"""The lowest numbers of many short lists in Triton: a program a list, all of it in registers."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_STEPS = 15
_PART = 4096


def lowest(values: Tensor, count: int) -> Tensor:
    """See :func:`memory.index.cuda.selection.lowest`."""
    values = values.contiguous()
    lists, width = values.shape
    out = torch.full((lists, count), -1, dtype=torch.int32, device=values.device)
    tile = max(32, triton.next_power_of_2(width))
    lowest_kernel[(lists,)](
        values,
        out,
        width,
        count,
        MAGNITUDE=values.dtype == torch.float16,
        TILE=tile,
        PART=min(tile, _PART),
        STEPS=_STEPS,
        num_warps=min(16, max(1, tile // 512)),
    )
    return out


@triton.jit
def numbers_of(values, place, inside, MAGNITUDE: tl.constexpr):
    """Whole numbers of a list, 32767 for what never counts."""
    if MAGNITUDE:
        size = tl.abs(tl.load(values + place, mask=inside, other=0.0).to(tl.float32))
        number = 32766 - tl.minimum((size * 32768.0).to(tl.int32), 32766)
        return tl.where(inside, number, 32767)
    return tl.load(values + place, mask=inside, other=32767).to(tl.int32)


@triton.jit
def lowest_kernel(
    values,
    out,
    width,
    count,
    MAGNITUDE: tl.constexpr,
    TILE: tl.constexpr,
    PART: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Halve the range of the threshold until it is exact, then write what is below it or, first, at it."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, TILE)
    inside = place < width
    number = numbers_of(values + row * width, place, inside, MAGNITUDE)
    threshold = 0
    # The threshold is the highest t with fewer than count numbers below it, at most 32767.
    for step in tl.static_range(STEPS):
        tried = threshold + (1 << (STEPS - 1 - step))
        below = tl.sum((number < tried).to(tl.int32), 0)
        threshold = tl.where(below < count, tried, threshold)
    left = count - tl.sum((number < threshold).to(tl.int32), 0)
    before = 0
    # Read again in parts, whose running sums fit in registers; the numbers are in the cache.
    for begin in range(0, width, PART):
        some = begin + tl.arange(0, PART)
        again = numbers_of(values + row * width, some, some < width, MAGNITUDE)
        under = again < threshold
        at = (again == threshold) & (again < 32767)
        # Both ranks in one sum: those below the threshold in the low half, those at it in the high half.
        both = before + tl.cumsum(under.to(tl.int32) + (at.to(tl.int32) << 16), 0)
        at_rank = (both >> 16) & 0xFFFF
        taken = under | (at & (at_rank <= left))
        rank = (both & 0xFFFF) + tl.minimum(at_rank, left) - 1
        tl.store(out + row * count + rank, some, mask=taken)
        before += tl.sum(under.to(tl.int32) + (at.to(tl.int32) << 16), 0)
