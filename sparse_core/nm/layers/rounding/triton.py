"""Rounding to int8 in Triton: one pass finds the largest value, one rounds.

Each program of the first pass writes its largest value; every program of the second pass reads all of these.
This needs no atomics, and no launch between the two passes.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.kernels.launches import launch as _launch

_BLOCK = 4096
#: Programs of the first pass: enough for every multiprocessor, and few for the second pass to read.
_PARTS = 1024


def quantise_input(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """See the public function."""
    x = x.contiguous()
    size = x.numel()
    blocks = triton.cdiv(size, _BLOCK)
    parts = min(blocks, _PARTS)
    rounded = torch.empty_like(x, dtype=torch.int8)
    if scale is not None:
        _launch(_round_kernel, blocks, x, scale, scale, rounded, size, 1, FIND=False, PARTS=1, BLOCK=_BLOCK)
        return rounded, scale
    largest = torch.empty(parts, dtype=torch.float32, device=x.device)
    found = torch.empty((), dtype=torch.float32, device=x.device)
    _launch(_largest_kernel, parts, x, largest, size, BLOCK=_BLOCK)
    _launch(
        _round_kernel, blocks, x, largest, found, rounded, size, parts, FIND=True, PARTS=_PARTS, BLOCK=_BLOCK
    )
    return rounded, found


@triton.jit
def _largest_kernel(x, largest, size, BLOCK: tl.constexpr):
    """The largest absolute value that a program sees, NaN if it sees one."""
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    most = tl.zeros([BLOCK], dtype=tl.float32)
    spoiled = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(program.to(tl.int64) * BLOCK, size, tl.num_programs(0) * BLOCK):
        value = tl.load(x + start + lane, mask=start + lane < size, other=0.0).to(tl.float32)
        spoiled = spoiled | (value != value).to(tl.int32)
        most = tl.maximum(most, tl.abs(value))
    peak = tl.max(most, axis=0)
    tl.store(largest + program, tl.where(tl.max(spoiled, axis=0) > 0, float("nan"), peak))


@triton.jit
def _round_kernel(
    x, given, found, rounded, size, parts, FIND: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Round a block; ``given`` is the scale, or with ``FIND`` the largest values of the first pass."""
    if FIND:
        part = tl.arange(0, PARTS)
        values = tl.load(given + part, mask=part < parts, other=0.0)
        spoiled = tl.max((values != values).to(tl.int32), axis=0)
        peak = tl.max(tl.where(values == values, values, 0.0), axis=0)
        step = tl.div_rn(peak, 127.0)
        step = tl.where(step == 0.0, 1.0, step)
        step = tl.where(spoiled > 0, float("nan"), step)
        if tl.program_id(0) == 0:
            tl.store(found, step)
    else:
        step = tl.load(given)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    value = tl.div_rn(value, step)
    value = tl.where(value == value, value, 0.0)
    value = tl.minimum(tl.maximum(value, -127.0), 127.0)
    # Adding 1.5 * 2^23 leaves no bits behind the point: rounded half to even.
    value = (value + 12582912.0) - 12582912.0
    tl.store(rounded + place, value.to(tl.int8), mask=inside)
