"""Compare the Triton block products with plain torch, results and gradients; prints a JSON report.

compare_blocks.py DEVICE [quick]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import triton
from torch import Tensor

from sparse_core.dynamic.rigl.block_product import Taps, block_convolution, block_linear, plan_blocks
from sparse_core.dynamic.rigl.block_product import triton as kernels
from sparse_core.dynamic.rigl.fan_in import fan_in_product
from sparse_core.dynamic.rigl.grid import plan_grid, random_cells

#: Rows, out, in, block, density.
LINEAR = [
    (5, 32, 48, (16, 16), 0.4),
    (70, 64, 96, (32, 16), 0.3),
    (33, 24, 40, (8, 4), 0.5),
    (19, 36, 20, (12, 5), 0.5),
    (40, 7, 30, (7, 1), 0.2),
    (300, 128, 256, (64, 64), 0.3),
    (1100, 192, 128, (64, 32), 0.5),
    (3, 160, 320, (160, 160), 0.5),
]
#: Batch, height, width, channels, out, block, kernel, stride, padding, dilation.
CONVOLUTIONS = [
    (2, 5, 6, 16, 32, (16, 16), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 7, 5, 24, 16, (8, 12), (3, 2), (2, 1), (0, 1), (1, 2)),
    (2, 4, 4, 32, 64, (32, 32), (1, 1), (2, 2), (0, 0), (1, 1)),
    (3, 9, 8, 64, 64, (64, 64), (3, 3), (1, 2), (2, 1), (2, 1)),
]
#: Rows, out, in, density.
FEW_ROWS = [(1, 33, 70, 0.2), (3, 7, 300, 0.5), (16, 20, 40, 0.1), (5, 600, 256, 0.9), (8, 1, 9, 0.4)]
INTERPRETED = not isinstance(kernels.gathered_product_kernel, triton.JITFunction)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def compare(make: Callable[[str], tuple[Tensor, ...]], dtype: torch.dtype) -> str:
    """Empty, or what differs."""
    found, expected = make("triton"), make("reference")
    # The interpreter runs one program after the other, so that another run gives the same.
    again = found if INTERPRETED else make("triton")
    for name, a, b, c in zip(("result", "of x", "of values", "of bias"), found, expected, again, strict=True):
        scale = float(b.double().abs().max()) + 1e-30
        error = float((a.double() - b.double()).abs().max()) / scale
        if a.shape != b.shape or a.dtype != b.dtype or not error <= TOLERANCE[dtype]:
            return f"{name}: {tuple(a.shape)} {a.dtype} is off by {error:.3g} of {scale:.3g}"
        if not torch.equal(a, c):
            return f"{name} changes from call to call"
    return ""


def linear(case: tuple, dtype: torch.dtype, device: str) -> str:
    rows, out, columns, block, density = case
    grid = plan_grid(out, columns, density=density, structure="block", block_size=block)
    generator = torch.Generator().manual_seed(rows)
    plan = plan_blocks(random_cells(grid, generator).to(device), grid)
    leaves = [
        torch.randn(size, generator=generator).to(device, dtype)
        for size in ((rows, columns), grid.values_shape, (out,), (rows, out))
    ]

    def run(impl: str) -> tuple[Tensor, ...]:
        x, values, bias = (leaf.clone().requires_grad_() for leaf in leaves[:3])
        y = block_linear(x, values, plan, bias, impl=impl)  # type: ignore[arg-type]
        return y.detach(), *torch.autograd.grad(y, (x, values, bias), leaves[3])

    return compare(run, dtype)


def convolution(case: tuple, dtype: torch.dtype, device: str) -> str:
    batch, height, width, channels, out, block, *sizes = case
    taps = Taps(*sizes)
    grid = plan_grid(out, taps.places * channels, density=0.4, structure="block", block_size=block)
    generator = torch.Generator().manual_seed(height)
    plan = plan_blocks(random_cells(grid, generator).to(device), grid, taps.places)
    shape = (batch, out, *taps.extent((height, width)))
    leaves = [
        torch.randn(size, generator=generator).to(device, dtype)
        for size in ((batch, channels, height, width), grid.values_shape, (out,), shape)
    ]

    def run(impl: str) -> tuple[Tensor, ...]:
        x, values, bias = (leaf.clone().requires_grad_() for leaf in leaves[:3])
        y = block_convolution(x, values, plan, taps, bias, impl=impl)  # type: ignore[arg-type]
        return y.detach(), *torch.autograd.grad(y, (x, values, bias), leaves[3])

    return compare(run, dtype)


def few_rows(case: tuple, dtype: torch.dtype, device: str) -> str:
    count, out, columns, density = case
    grid = plan_grid(out, columns, density=density, structure="fan-in")
    generator = torch.Generator().manual_seed(count)
    cells = random_cells(grid, generator).to(device)
    x, values, bias = (
        torch.randn(size, generator=generator).to(device, dtype)
        for size in ((count, columns), grid.count, out)
    )

    def run(impl: str) -> tuple[Tensor, ...]:
        met = (cells % columns).to(torch.int32)
        found = fan_in_product(x, values, met, out, bias, impl=impl)  # type: ignore[arg-type]
        bare = fan_in_product(x, values, met, out, impl=impl)  # type: ignore[arg-type]
        dense = x.double() @ grid.scatter(values.double(), cells).T if impl == "reference" else bare
        return found, bare, dense.to(dtype), found

    return compare(run, dtype)


def _quick(run: Callable[..., str], dtype: torch.dtype) -> int:
    """Cases of a quick run."""
    if dtype == torch.float16:
        return 1
    return 5 if run is linear else 3


def main() -> None:
    device, quick = sys.argv[1], "quick" in sys.argv[2:]
    torch.backends.cuda.matmul.allow_tf32 = False
    types = [torch.float32, torch.float16] if quick else list(TOLERANCE)
    if device == "cpu":
        # The interpreter's dot product takes the bits of bfloat16 for integers.
        types = [dtype for dtype in types if dtype != torch.bfloat16]
    cases = {}
    for dtype in types:
        for run, listed in ((linear, LINEAR), (convolution, CONVOLUTIONS), (few_rows, FEW_ROWS)):
            for case in listed[: _quick(run, dtype)] if quick else listed:
                cases[f"{run.__name__} {case} {dtype}"] = run(case, dtype, device)
    print(json.dumps({"interpreted": INTERPRETED, "cases": cases}))


if __name__ == "__main__":
    main()
