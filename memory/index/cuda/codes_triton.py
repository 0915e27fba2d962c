"""Query levels, and distances from codes, in Triton, for several kernels."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from memory.index.cuda.codes import BINS, DIRECTIONS, LARGEST, SHIFT, TOP, WORDS, QueryLevels, scale_of

_DIRECTIONS = tl.constexpr(DIRECTIONS)
_WORDS = tl.constexpr(WORDS)
_LARGEST = tl.constexpr(LARGEST)
_TOP = tl.constexpr(TOP)
_SHIFT = tl.constexpr(SHIFT)
_FARTHEST = tl.constexpr(BINS - 1)


def native(tensor: Tensor) -> bool:
    """True if the GPU's instruction can run; the interpreter has none."""
    return tensor.is_cuda and isinstance(dot4, triton.JITFunction)


def asked_levels(coordinates: Tensor, dim: int) -> QueryLevels:
    """See :func:`memory.index.cuda.codes.asked_levels`."""
    asked = len(coordinates)
    levels = torch.empty((asked, DIRECTIONS), dtype=torch.int8, device=coordinates.device)
    base = torch.empty(asked, dtype=torch.int32, device=coordinates.device)
    levels_kernel[(asked,)](coordinates, levels, base, coordinates.stride(0), scale_of(dim), num_warps=2)
    return QueryLevels(levels, base)


@triton.jit
def levels_kernel(coordinates, levels, base, stride, scale):
    """Levels and base of one query."""
    query = tl.program_id(0).to(tl.int64)
    write_levels(coordinates + query * stride, levels, base, query, scale)


@triton.jit
def write_levels(coordinates, levels, base, query, scale):
    """Levels and base of the query whose coordinates are these."""
    direction = tl.arange(0, _DIRECTIONS)
    doubled = tl.floor(tl.load(coordinates + direction).to(tl.float32) * scale)
    doubled = tl.minimum(tl.maximum(doubled, -4.0 * _LARGEST), 4.0 * _LARGEST).to(tl.int32)
    level = tl.minimum(tl.maximum((doubled + 1) >> 1, -_LARGEST), _LARGEST)
    tl.store(levels + query * _DIRECTIONS + direction, level.to(tl.int8))
    tl.store(base + query, 3 * tl.sum(level, 0) + _TOP)


@triton.jit
def dot4(words, weights, total, NATIVE: tl.constexpr):
    """``total`` plus the products of the four bytes of words, from 0, with those of weights, signed."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "dp4a.u32.s32 $0, $1, $2, $3;",
            "=r,r,r,r",
            [words, weights, total],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    for byte in tl.static_range(4):
        total += ((words >> (8 * byte)) & 0xFF) * ((weights << (24 - 8 * byte)) >> 24)
    return total


@triton.jit
def read_codes(codes, place, used, SLOTS: tl.constexpr):
    """(SLOTS, 16) words of the codes at these places."""
    word = tl.arange(0, _WORDS)
    start = place.to(tl.int64)[:, None] * _WORDS + word[None, :]
    return tl.load(codes + start, mask=tl.broadcast_to(used[:, None], (SLOTS, _WORDS)), other=0)


@triton.jit
def distance_of(code, levels, base, query, NATIVE: tl.constexpr, SLOTS: tl.constexpr):
    """(SLOTS,) distances of (SLOTS, 16) words of codes from one query, whose levels are read as words."""
    word = tl.arange(0, _WORDS)
    total = tl.zeros((SLOTS, _WORDS), tl.int32)
    for field in tl.static_range(4):
        weight = tl.load(levels + query * (4 * _WORDS) + field * _WORDS + word)
        weights = tl.broadcast_to(weight[None, :], (SLOTS, _WORDS))
        total = dot4((code >> (2 * field)) & 0x03030303, weights, total, NATIVE)
    near = (tl.load(base + query) - 2 * tl.sum(total, 1)) >> _SHIFT
    return tl.minimum(tl.maximum(near, 0), _FARTHEST)
