"""Ones of a word in Triton."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


def native(tensor: Tensor) -> bool:
    """Whether the GPU's instruction runs; the interpreter does without."""
    return tensor.is_cuda and isinstance(popcount, triton.JITFunction)


@triton.jit
def popcount(words, NATIVE: tl.constexpr):
    """Ones of each int32 word."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            "popc.b32 $0, $1;", "=r,r", [words], dtype=tl.int32, is_pure=True, pack=1
        )
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F
    words = words + (words >> 8)
    return (words + (words >> 16)) & 0x3F
