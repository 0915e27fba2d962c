"""Compare Thomas' algorithm in Triton with the reference on one device; prints a JSON report.

Run on its own by test_tridiagonal_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton

from sparse_core.linalg import tridiagonal_solve
from sparse_core.linalg.tridiagonal import triton as kernels

#: (systems, rows, right-hand sides).
SHAPES = ((1, 1, 1), (1, 7, 1), (65, 2, 1), (3, 9, 5), (64, 5, 2), (130, 4, 1))


def compare(
    systems: int, rows: int, columns: int, dtype: torch.dtype, device: torch.device
) -> dict[str, Any]:
    """Which of forward and gradients agree."""
    generator = torch.Generator().manual_seed(rows)
    shape = (systems, rows)
    lower, upper = (torch.randn(shape, dtype=dtype, generator=generator) for _ in range(2))
    diagonal = torch.randn(shape, dtype=dtype, generator=generator).sign() * 4
    b = torch.randn(*shape, columns, dtype=dtype, generator=generator)
    weights = torch.randn(*shape, columns, dtype=dtype, generator=generator).to(device)
    found = []
    for impl in ("triton", "reference"):
        inputs = [part.to(device).requires_grad_() for part in (lower, diagonal, upper, b)]
        x = tridiagonal_solve(*inputs, impl=impl)
        (x * weights).sum().backward()
        found.append([x.detach(), *(part.grad for part in inputs)])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    names = ("x", "lower", "diagonal", "upper", "b")
    return {
        name: torch.allclose(mine, wanted, rtol=tolerance, atol=tolerance)
        for name, mine, wanted in zip(names, *found, strict=True)
    }


def flags(device: torch.device) -> dict[str, Any]:
    """Zero pivots and NaN stay in their own systems."""
    diagonal = torch.full((70, 4), 2.0, dtype=torch.float64)
    off = torch.ones(70, 4, dtype=torch.float64)
    diagonal[66] = torch.tensor([2.0, 0.5, 2.0, 2.0])
    b = torch.ones(70, 4, dtype=torch.float64)
    b[5, 2] = float("nan")
    operands = [part.to(device) for part in (off, diagonal, off, b)]
    x = tridiagonal_solve(*operands, impl="triton", check=False)
    bad = (~x.isfinite()).any(dim=1).nonzero()[:, 0].tolist()
    try:
        tridiagonal_solve(*operands, impl="triton")
    except ValueError as error:
        return {"bad": bad, "message": str(error)}
    return {"bad": bad, "message": ""}


if __name__ == "__main__":
    device = torch.device(sys.argv[1])
    report = {
        f"{shape} {dtype}": compare(*shape, dtype, device)
        for shape in SHAPES
        for dtype in (torch.float32, torch.float64)
    }
    interpreted = not isinstance(kernels._thomas_kernel, triton.JITFunction)
    print(json.dumps({"interpreted": interpreted, "cases": report, "flags": flags(device)}))
