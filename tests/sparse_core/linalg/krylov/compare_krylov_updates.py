"""Compare fused conjugate gradients with the reference on one device; prints a JSON report.

Run on its own by test_krylov_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.formats import COO
from sparse_core.linalg import SolveResult, cg
from sparse_core.linalg.krylov import triton as kernels


def line(size: int, dtype: torch.dtype, shift: float) -> COO:
    """Tridiagonal -1, 2 + shift, -1."""
    place = torch.arange(size)
    row = torch.cat([place, place[1:], place[:-1]])
    col = torch.cat([place, place[:-1], place[1:]])
    values = torch.full((len(row),), -1.0, dtype=dtype)
    values[:size] = 2 + shift
    return COO(row, col, values, (size, size))


def facts(fused: SolveResult, plain: SolveResult, repeated: SolveResult) -> dict[str, Any]:
    """Which parts of the results agree."""
    single = plain.x.dtype == torch.float32
    history = torch.tensor(fused.residuals), torch.tensor(plain.residuals)
    return {
        "reason": fused.reason == plain.reason,
        "iterations": fused.iterations == plain.iterations,
        "x": torch.allclose(fused.x, plain.x, rtol=1e-4 if single else 1e-9, atol=1e-5 if single else 1e-12),
        "residuals": history[0].shape == history[1].shape
        and torch.allclose(*history, rtol=1e-2 if single else 1e-6, equal_nan=True),
        "repeats": torch.equal(fused.x, repeated.x) and str(fused.residuals) == str(repeated.residuals),
        "count": fused.iterations,
        "ending": fused.reason,
    }


def cases(size: int) -> dict[str, tuple[COO, Tensor, dict[str, Any]]]:
    """Matrix, right-hand side and options by name."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, tuple[COO, Tensor, dict[str, Any]]] = {}
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        b = torch.randn(size, dtype=dtype, generator=generator)
        matrix = line(size, dtype, 2.0)
        inverse = 1 / matrix.values[0] * (1 + 0.1 * torch.rand(size, dtype=dtype, generator=generator))
        found[name] = matrix, b, {}
        found[f"{name} looks"] = matrix, b, {"check_every": 4}
        found[f"{name} preconditioned"] = matrix, b, {"preconditioner": inverse, "check_every": 3}
    double = torch.float64
    matrix, b = line(size, double, 2.0), torch.randn(size, dtype=double, generator=generator)
    found["single unknown"] = line(1, double, 0.5), b[:1], {}
    found["odd size"] = line(1025, double, 2.0), torch.ones(1025, dtype=double), {"check_every": 7}
    found["start"] = matrix, b, {"x0": torch.ones(size, dtype=double)}
    found["runs out"] = matrix, b, {"max_iterations": 5, "check_every": 4}
    found["zero"] = matrix, torch.zeros(size, dtype=double), {}
    found["indefinite"] = line(size, double, -1.5), b, {"check_every": 8}
    found["bad preconditioner"] = matrix, b, {"preconditioner": -torch.ones(size, dtype=double)}
    broken = line(size, double, 2.0)
    broken.values[3] = float("nan")
    found["not finite"] = broken, b, {"check_every": 3}
    return found


def compare(matrix: COO, b: Tensor, options: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Solve by both implementations, and by kernels once more."""
    launches = 0
    step = kernels.FusedConjugateGradient.step

    def counted(self: Any, slot: int) -> None:
        nonlocal launches
        launches += 1
        step(self, slot)

    scale = options.pop("preconditioner", None)
    if scale is not None:
        scale = scale.to(device)
        options["preconditioner"] = lambda residual: scale * residual
    if "x0" in options:
        options["x0"] = options["x0"].to(device)
    matrix, b = matrix.to(device), b.to(device)
    kernels.FusedConjugateGradient.step = counted
    try:
        fused = cg(matrix, b, impl="triton", **options)
        repeated = cg(matrix, b, impl="triton", **options)
    finally:
        kernels.FusedConjugateGradient.step = step
    plain = cg(matrix, b, impl="reference", use_graph=False, **options)
    return {**facts(fused, plain, repeated), "steps": launches}


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    report = {name: compare(*case, device) for name, case in cases(size).items()}
    interpreted = not isinstance(kernels._dot_kernel, triton.JITFunction)
    print(json.dumps({"interpreted": interpreted, "cases": report}))
