"""Compare the Triton kernels that round to int8 with the reference on one device; prints a JSON report.

Run on its own by test_nm_rounding.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import Tensor

from sparse_core.kernels.op import interpreted
from sparse_core.nm.layers.rounding import quantise_input
from sparse_core.nm.layers.rounding import triton as kernels

DEVICE = torch.device(sys.argv[1])
# Shorter than the rows, so that a program sees several blocks.
kernels._BLOCK = 256


def kinds(dtype: torch.dtype) -> dict[str, Tensor]:
    """Inputs of a type: plain, halves between integers, with what is no number, and of many blocks."""
    plain = torch.randn(9, 1001, generator=torch.Generator().manual_seed(0))
    spoiled, infinite = plain.clone(), plain.clone()
    spoiled[3, 7], infinite[4, 5] = float("nan"), float("-inf")
    found = {
        "plain": plain,
        "one": plain[:1, :1],
        "zeros": torch.zeros(5, 7),
        "halves": torch.arange(-127, 128) * 0.5,
        "spoiled": spoiled,
        "infinite": infinite,
        "transposed": plain.T,
        "many": plain.repeat(2, 3),
    }
    return {name: value.to(DEVICE, dtype) for name, value in found.items()}


def same(x: Tensor, scale: Tensor | None) -> bool:
    """Whether both implementations, and the kernels again, give the same bits."""
    wanted = quantise_input(x, scale, impl="reference")
    runs = [quantise_input(x, scale, impl="triton") for _ in range(2)]
    return all(
        got.shape == x.shape
        and torch.equal(got, wanted[0])
        and torch.equal(step.nan_to_num(-1.0), wanted[1].nan_to_num(-1.0))
        for got, step in runs
    )


report = {
    f"{str(dtype).removeprefix('torch.')}, {name}, {'found' if scale is None else scale}": same(
        x, None if scale is None else torch.tensor(scale, device=DEVICE)
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float32)
    for name, x in kinds(dtype).items()
    for scale in (None, 1.0, 0.013)
}
print(json.dumps({"interpreted": interpreted(), "cases": report}))
