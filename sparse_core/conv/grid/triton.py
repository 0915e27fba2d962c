"""Look-up of a cell's row in Triton, for kernels of other packages too, and bits from cells.

Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.kernels.launches import launch as _launch


@triton.jit
def _or(left, right):
    return left | right


#: Whether kernels are compiled; the interpreter has no GPU instructions.
_COMPILED = tl.constexpr(isinstance(_or, triton.JITFunction))


@triton.jit
def popcount(words):
    """Ones of each int32 word."""
    if _COMPILED:
        return tl.inline_asm_elementwise(
            "popc.b32 $0, $1;", "=r,r", [words], dtype=tl.int32, is_pure=True, pack=1
        )
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F
    words = words + (words >> 8)
    return (words + (words >> 16)) & 0x3F


@triton.jit
def row_of(words, cell, inside, capacity):
    """Row of each cell of a :class:`~sparse_core.conv.grid.FixedGrid`; one load of 8 bytes a cell.

    Args:
        words: pointer to the grid's ``words``.
        cell: int32 cell numbers of any shape.
        inside: which of them lie in the grid; the others are not looked up.
        capacity: the grid's capacity.

    Returns:
        int32 of the shape of ``cell``: -1 where not inside, not active or beyond the capacity.
    """
    pairs = words.to(tl.pointer_type(tl.int64))
    pair = tl.load(pairs + (cell >> 5), mask=inside, other=0)
    bits = pair.to(tl.int32)
    place = cell & 31
    rank = (pair >> 32).to(tl.int32) + popcount(bits & ((1 << place) - 1))
    found = inside & (((bits >> place) & 1) != 0) & (rank < capacity)
    return tl.where(found, rank, -1)


@triton.jit
def _set_kernel(cells, bits, count, BLOCK: tl.constexpr):
    """Set the bit of each cell that is not negative."""
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cell = tl.load(cells + lane, mask=lane < count, other=-1)
    tl.atomic_or(bits + (cell >> 5), 1 << (cell & 31), mask=cell >= 0, sem="relaxed")


def bits_of_cells(cells: Tensor, words: int) -> Tensor:
    """Set the bits of ``cells`` (N,) int32 in (words,) int32; negative ones are ignored."""
    bits = torch.zeros(words, dtype=torch.int32, device=cells.device)
    if len(cells):
        _launch(_set_kernel, triton.cdiv(len(cells), 256), cells.contiguous(), bits, len(cells), BLOCK=256)
    return bits
