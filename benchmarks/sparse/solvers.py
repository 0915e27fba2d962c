"""Conjugate gradients on the 3-D Poisson problem, plain and preconditioned, against a common way to write it.

    python -m benchmarks.sparse.solvers --device cuda

128³ unknowns on a GPU, random right-hand side, float32, to a relative residual of 1e-5. The opponent is
scipy's CG on a CPU and, on a GPU, the textbook loop over torch's CSR. The residual of every solution is
computed in float64.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse.linalg
import torch
from torch import Tensor

from benchmarks.lib.environment import device_name
from benchmarks.lib.options import common_parser, configure, parse, picture
from benchmarks.lib.pictures import reduce_colours
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from benchmarks.sparse.matrices import exact_product, fresh, noted, random_dense
from sparse_core.common.libraries import module_available
from sparse_core.formats import CSR, generators
from sparse_core.linalg import (
    SolveResult,
    algebraic_multigrid,
    cg,
    gauss_seidel,
    ic0,
    jacobi,
    save_convergence_picture,
)

PLAIN = "none"
Setup = Callable[[CSR], Any]
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
#: Factor over the tolerance: rounding may move the recursive residual by this much.
_RESIDUAL_SLACK = 2.0
#: Iterations of the textbook loop between two looks at the residual, as many as ours.
_LOOK_EVERY = 10


class Outcome(NamedTuple):
    """Result of one side.

    Attributes:
        x: (M,) solution.
        iterations: products with the matrix.
        result: of our solvers.
    """

    x: Tensor
    iterations: int
    result: SolveResult | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        draw(json.loads(options.draw_from.read_text()), options.png or options.draw_from.with_suffix(".png"))
        return 0
    device = torch.device(options.device)
    configure(device, options.threads)
    matrix = generators.poisson_3d(options.grid, dtype=_DTYPES[options.dtype], device=device)
    b = random_dense(len(matrix), device=device, seed=options.seed, dtype=matrix.dtype)
    notes: list[str] = []
    rows = _measure(matrix, b, options, notes)
    settings = {
        "device": options.device,
        "dtype": options.dtype,
        "grid": options.grid,
        "unknowns": len(matrix),
        "rtol": options.rtol,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
    }
    notes.append(
        "Setup is the wall time of making the preconditioner for a matrix seen for the first time, kernels"
        " already compiled; solve is the wall time of one call without it."
    )
    drawing = module_available("matplotlib")
    if not drawing:
        notes.append("matplotlib is not installed: no picture (--draw-from draws it from the result file)")
    values = result("solvers", device, settings, cases=rows, notes=notes)
    save(values, options)
    if drawing:
        draw(values, picture(options))
    show(values, tables(values, "solvers", "solvers-aim"), notes, as_json=options.json)
    return 0 if all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "solvers", quick="a smaller grid and fewer rounds")
    parser.add_argument("--rounds", type=int, help="measured solves of each side (7; 3 with --quick)")
    parser.add_argument("--grid", type=int, help="points along each axis (128; 48 on a CPU)")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), default="float32")
    parser.add_argument("--rtol", type=float, default=1e-5)
    parser.add_argument(
        "--png", type=Path, help="picture of the residuals (default: next to the result file)"
    )
    parser.add_argument("--draw-from", type=Path, help="measure nothing: draw a result file")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 7)
    gpu = options.device == "cuda"
    options.grid = options.grid or ((64 if gpu else 16) if options.quick else (128 if gpu else 48))
    return options


def _setups(notes: list[str]) -> dict[str, Setup]:
    found: dict[str, Setup] = {
        "jacobi": jacobi,
        "gauss_seidel": gauss_seidel,
        "ic0 multicolour": partial(ic0, reorder="multicolour"),
    }
    if module_available("pyamg"):
        found["algebraic_multigrid"] = algebraic_multigrid
    else:
        notes.append("pyamg is not installed: algebraic_multigrid is left out")
    return found


def _measure(matrix: CSR, b: Tensor, options: argparse.Namespace, notes: list[str]) -> list[dict[str, Any]]:
    solvers: dict[str, Callable[[], Outcome]] = {PLAIN: lambda: _ours(matrix, b, options.rtol, None)}
    setups_ms: dict[str, float] = {}
    for name, setup in _setups(notes).items():
        preconditioner, setups_ms[name] = _set_up(setup, matrix)
        solvers[name] = partial(_ours, matrix, b, options.rtol, preconditioner)
    opponent, solve = _opponent(matrix, b, options.rtol)
    solvers[opponent] = solve
    outcomes = {name: solver() for name, solver in solvers.items()}
    sides: dict[str, Side] = dict(solvers)
    samples = interleave(
        sides, matrix.device, rounds=options.rounds, warmup=1, budget_s=40.0, seed=options.seed
    )
    rows = []
    for name, outcome in outcomes.items():
        residual = _relative_residual(matrix, outcome.x, b)
        ours = outcome.result
        agrees = residual <= _RESIDUAL_SLACK * options.rtol and (ours is None or ours.converged)
        if not agrees:
            reason = "it says nothing" if ours is None else ours.reason
            notes.append(f"{name} ended with a relative residual of {residual:.1e}: {reason}")
        rows.append(
            {
                "name": name,
                "iterations": outcome.iterations,
                "residual": noted(residual),
                "agrees": agrees,
                "setup_ms": round(setups_ms[name], 3) if name in setups_ms else None,
                "time": Summary.of(samples[name]).to_dict(),
                "over_opponent": paired_ratio(samples[opponent], samples[name]),
                "over_plain": paired_ratio(samples[PLAIN], samples[name]),
                "result": None if ours is None else _history(ours),
            }
        )
    return rows


def _ours(matrix: CSR, b: Tensor, rtol: float, preconditioner: Any) -> Outcome:
    found = cg(matrix, b, rtol=rtol, preconditioner=preconditioner)
    return Outcome(found.x, found.iterations, found)


def _set_up(setup: Setup, matrix: CSR) -> tuple[Any, float]:
    """A preconditioner and the milliseconds it took for a matrix without caches."""
    setup(fresh(matrix))  # Compiles kernels and imports what it needs.
    _wait(matrix.device)
    begin = time.perf_counter()
    preconditioner = setup(fresh(matrix))
    _wait(matrix.device)
    return preconditioner, (time.perf_counter() - begin) * 1e3


def _relative_residual(matrix: CSR, x: Tensor, b: Tensor) -> float:
    exact = b.double()
    return float((exact - exact_product(matrix, x)).norm() / exact.norm())


def _history(found: SolveResult) -> dict[str, Any]:
    """Return the data of the picture as plain values; a residual that is not finite is None."""
    return {
        "residuals": [float(f"{norm:.4e}") if math.isfinite(norm) else None for norm in found.residuals],
        "tolerance": found.tolerance,
        "converged": found.converged,
        "reason": found.reason,
        "execution": found.execution,
    }


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG of the residuals in a result."""
    results = {}
    for row in values["cases"]:
        history = row["result"]
        if history is None:
            continue
        norms = tuple(math.nan if norm is None else norm for norm in history["residuals"])
        results[row["name"]] = SolveResult(
            x=torch.empty(0),
            converged=history["converged"],
            iterations=row["iterations"],
            residuals=norms,
            tolerance=history["tolerance"],
            reason=history["reason"],
            true_residual=math.nan,
            method="cg",
        )
    settings = values["settings"]
    path.parent.mkdir(parents=True, exist_ok=True)
    problem = f"Poisson {settings['grid']}³, {settings['dtype']}, {device_name(values)}"
    title = f"{problem}: conjugate gradients by preconditioner"
    reduce_colours(save_convergence_picture(results, path, title=title))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _opponent(matrix: CSR, b: Tensor, rtol: float) -> tuple[str, Callable[[], Outcome]]:
    """Name and call of the other side."""
    if matrix.device.type == "cpu":
        array, right = matrix.to_scipy(), b.numpy()
        return "scipy", lambda: scipy_cg(array, right, rtol)
    library = matrix.to_torch()
    return "torch CSR loop", lambda: textbook_cg(library, b, rtol)


def scipy_cg(array: Any, b: Any, rtol: float) -> Outcome:
    """scipy's conjugate gradients: solution and iterations."""
    count = 0

    def step(_: Any) -> None:
        nonlocal count
        count += 1

    x, _ = scipy.sparse.linalg.cg(array, b, rtol=rtol, atol=0.0, callback=step)
    return Outcome(torch.from_numpy(x), count)


def textbook_cg(matrix: Tensor, b: Tensor, rtol: float, max_iterations: int = 10_000) -> Outcome:
    """Conjugate gradients as people write them with torch: scalars stay on the device between looks.

    Args:
        matrix: (M, M) torch sparse CSR.
        b: (M,).
        rtol: relative residual.
        max_iterations: limit.

    Returns:
        Solution and iterations; it looks at the residual every ten.
    """
    x = torch.zeros_like(b)
    residual = b.clone()
    direction = residual.clone()
    rho = residual.dot(residual)
    target = float(rho) * rtol**2
    for iteration in range(1, max_iterations + 1):
        product = matrix @ direction
        alpha = rho / direction.dot(product)
        x += alpha * direction
        residual -= alpha * product
        before, rho = rho, residual.dot(residual)
        if iteration % _LOOK_EVERY == 0 and float(rho) <= target:
            return Outcome(x, iteration)
        direction = residual + (rho / before) * direction
    return Outcome(x, max_iterations)


if __name__ == "__main__":
    sys.exit(main())
