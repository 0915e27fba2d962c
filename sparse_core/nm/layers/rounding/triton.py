"""Rounding to int8 in Triton: one program per row if scales are computed, one per block otherwise."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.kernels.launches import launch as _launch

_BLOCK = 4096


def quantise_input(x: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """See the public function."""
    x = x.contiguous()
    rounded = torch.empty_like(x, dtype=torch.int8)
    if scale is not None:
        size = x.numel()
        _launch(_round_kernel, triton.cdiv(size, _BLOCK), x, scale, rounded, size, BLOCK=_BLOCK)
        return rounded, scale
    columns = x.shape[-1]
    scales = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(columns), _BLOCK)
    _launch(_round_rows_kernel, scales.numel(), x, scales, rounded, columns, BLOCK=block)
    return rounded, scales


@triton.jit
def _rounded(value, step):
    """Return the integers of float32 values, 0 for NaN."""
    value = tl.div_rn(value, step)
    value = tl.where(value == value, value, 0.0)
    value = tl.minimum(tl.maximum(value, -127.0), 127.0)
    # Adding 1.5 * 2^23 leaves no bits behind the point: rounded half to even.
    value = (value + 12582912.0) - 12582912.0
    return value.to(tl.int8)


@triton.jit
def _round_kernel(x, scale, rounded, size, BLOCK: tl.constexpr):
    """Round a block with a given scale."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(rounded + place, _rounded(value, tl.load(scale)), mask=inside)


@triton.jit
def _round_rows_kernel(x, scales, rounded, columns, BLOCK: tl.constexpr):
    """Round a row with the scale of its largest value; it is NaN if the row has one."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    most = tl.zeros([BLOCK], dtype=tl.float32)
    spoiled = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        place = start + lane
        value = tl.load(x + row * columns + place, mask=place < columns, other=0.0).to(tl.float32)
        spoiled = spoiled | (value != value).to(tl.int32)
        most = tl.maximum(most, tl.abs(value))
    step = tl.div_rn(tl.max(most, axis=0), 127.0)
    step = tl.where(step == 0.0, 1.0, step)
    step = tl.where(tl.max(spoiled, axis=0) > 0, float("nan"), step)
    tl.store(scales + row, step)
    for start in range(0, columns, BLOCK):
        place = start + lane
        value = tl.load(x + row * columns + place, mask=place < columns, other=0.0).to(tl.float32)
        tl.store(rounded + row * columns + place, _rounded(value, step), mask=place < columns)
