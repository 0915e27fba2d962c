"""Messages about the end of a solve."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from sparse_core.linalg.krylov.problem import LinearSystem
from sparse_core.linalg.krylov.progress import Snapshot, Status
from sparse_core.linalg.krylov.result import SolveResult


def reason_of(status: Status, reading: Snapshot, column: int, problem: LinearSystem, method: str) -> str:
    """Return ``SolveResult.reason`` of one right-hand side."""
    count, detail = reading.count[column], reading.detail[column]
    b = problem.b if problem.b.ndim == 1 else problem.b[:, column]
    at = f"at iteration {count + 1}"
    match status:
        case Status.CONVERGED:
            return "converged"
        case Status.MAX_ITERATIONS:
            return "max_iterations"
        case Status.STOPPED:
            return "stopped by callback"
        case Status.NOT_FINITE:
            return f"breakdown: {_not_finite(b, at)}"
        case Status.NOT_POSITIVE_DEFINITE:
            return (
                f"not positive definite: p·Ap = {detail:.3g} {at}"
                " (cg needs a Hermitian positive definite matrix; bicgstab and gmres do not)"
            )
        case Status.PRECONDITIONER_NOT_POSITIVE_DEFINITE:
            return f"not positive definite: r·M r <= 0 {at}, so the preconditioner M is not"
        case Status.RHO_VANISHED:
            return f"breakdown: rho = {detail:.3g} {at}: the residual is orthogonal to the first one"
        case Status.DENOMINATOR_VANISHED:
            return f"breakdown: r̂·Ap = {detail:.3g} {at}"
        case Status.OMEGA_VANISHED:
            return f"breakdown: omega = 0 {at}: A M s is orthogonal to s"
        case Status.LEAST_SQUARES:
            return (
                f"least squares: ‖b - A x‖ falls no further {at}: the system has no solution, or none that"
                f" {_name(b.dtype)} shows"
            )
        case Status.STAGNATED:
            return stagnation(problem.scaling.norm(detail, column), b.dtype)
        case Status.OUT_OF_RANGE:
            return out_of_range(b.dtype)
    raise AssertionError(f"{method} ended while running")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def stagnation(residual: float, dtype: torch.dtype) -> str:
    """Return the reason if the recurrence met the tolerance but the true residual cannot."""
    return (
        f"stagnation: rounding in {_name(dtype)} holds ‖b - A x‖ at {residual:.3g};"
        " raise rtol or use more precision"
    )


def out_of_range(dtype: torch.dtype) -> str:
    """Return the reason if the dtype cannot hold the solution, or only with too few digits."""
    return f"breakdown: x or A x leaves the range of {_name(dtype)}: scale A or b, or use more precision"


def _not_finite(b: Tensor, at: str) -> str:
    wrong = (~torch.isfinite(b)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        return f"b is not finite: {b[row].item()} at row {row}"
    return f"a value is not finite {at}: NaN or infinity in the matrix, x0 or preconditioner, or an overflow"


def worst(columns: list[SolveResult], x: Tensor, method: str, execution: str) -> SolveResult:
    """Combine the results of several right-hand sides: the first failed one, else the slowest."""
    if not columns:
        return SolveResult(x, True, 0, (), 0.0, "converged", 0.0, method, execution)
    index = max(range(len(columns)), key=lambda at: (not columns[at].converged, columns[at].iterations))
    failed = [at for at, result in enumerate(columns) if not result.converged]
    index = failed[0] if failed else index
    chosen = columns[index]
    reason = chosen.reason if chosen.converged else f"{chosen.reason} (column {index})"
    return replace(chosen, x=x, reason=reason, columns=tuple(columns))
