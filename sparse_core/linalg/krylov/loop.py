"""Loop around a recurrence: residual checks, CUDA graphs, verification, the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.linalg.krylov.problem import safe_norms
from sparse_core.linalg.krylov.progress import WORTHWHILE, Snapshot, Status
from sparse_core.linalg.krylov.recurrence import Recurrence
from sparse_core.linalg.krylov.result import SolveResult
from sparse_core.linalg.krylov.verdict import reason_of, worst


class FiniteIterate(NamedTuple):
    """Replaced columns, () or (N,) bool, and ``‖b - A x‖`` of all columns, float64."""

    columns: Tensor
    norms: Tensor


def finite_iterate(recurrence: Recurrence, norms: Tensor, start: Tensor | None) -> FiniteIterate | None:
    """Replace non-finite iterates by those with the smallest residual; None if all are finite.

    Keeping the best iterate would cost every solve a pass over ``x``. Steps are bitwise reproducible, so a
    failed solve is repeated step by step instead.

    Args:
        recurrence: after the solve; its state is overwritten.
        norms: () or (N,) float64, ``‖b - A x‖`` of its ``x``.
        start: ``x`` before the first step; None is zero.
    """
    problem, x = recurrence.problem, recurrence.x
    finite = torch.isfinite(x).all(dim=0)
    overflowed = ~finite | (~torch.isfinite(norms) & (recurrence.progress.count > 0))
    if not overflowed.any():
        return None
    last = x.clone()
    x.copy_(torch.zeros_like(x) if start is None else start)
    best = torch.where(torch.isfinite(x).all(dim=0), x, torch.zeros_like(x))
    smallest = safe_norms(problem.residual(best)).double()
    recurrence.progress.reset()
    recurrence.begin(torch.ones_like(overflowed), problem.residual(x))
    while (recurrence.progress.running & overflowed).any():
        recurrence.step(0)
        fresh = safe_norms(problem.residual(x)).double()
        # NaN compares false. Empty matrix columns hide non-finite x from the norm, so check x too.
        better = (fresh < smallest) & torch.isfinite(x).all(dim=0)
        smallest = torch.where(better, fresh, smallest)
        torch.where(better, x, best, out=best)
    torch.where(overflowed, best, last, out=x)
    return FiniteIterate(overflowed, torch.where(overflowed, smallest, norms))


class Chunk:
    """``check_every`` steps: run once, then replayed as a CUDA graph if possible."""

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.steps = recurrence.problem.check_every
        self.refusal = recurrence.problem.graph_reason
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = False

    @property
    def execution(self) -> str:
        """Value of :class:`SolveResult`'s ``execution``."""
        if self.graph is not None:
            return f"CUDA graph of {self.steps} iterations"
        return f"plain: {self.refusal}" if self.refusal else "plain: finished before a graph was captured"

    def __call__(self) -> None:
        """Advance by ``check_every`` steps."""
        if self.graph is None and self.warm and not self.refusal:
            self._capture()
        if self.graph is not None:
            self.graph.replay()
            return
        self._run()
        self.warm = True

    def _run(self) -> None:
        for slot in range(self.steps):
            self.recurrence.step(slot)

    def _capture(self) -> None:
        """Record the steps; unlike torch.cuda.graph, do not empty the allocator's cache, which costs more."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        torch.cuda.synchronize()
        try:
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    self._run()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            if self.recurrence.problem.graph_required:
                raise ImplementationError(
                    f"use_graph=True, but the iterations cannot be captured: {error}. Use use_graph=None"
                ) from error
            self.refusal = f"capture failed ({str(error).splitlines()[0]})"
            torch.cuda.synchronize()
            return
        self.graph = graph


class _History:
    """Norms of every column over the iterations."""

    def __init__(self, columns: int) -> None:
        self.norms: list[list[float]] = [[] for _ in range(columns)]

    def start(self, reading: Snapshot) -> None:
        for norms, first in zip(self.norms, reading.norms[0], strict=True):
            norms.append(first)

    def extend(self, reading: Snapshot) -> None:
        for column, norms in enumerate(self.norms):
            # The first entry is the start. Slots that a frozen column wrote do not count.
            fresh = reading.count[column] + 1 - len(norms)
            norms.extend(row[column] for row in reading.norms[:fresh])


@torch.no_grad()
def run(recurrence: Recurrence) -> SolveResult:
    """Iterate until every right-hand side has converged or failed."""
    problem, progress = recurrence.problem, recurrence.progress
    chunk = Chunk(recurrence)
    all_columns = torch.ones_like(progress.status, dtype=torch.bool)
    start = None if problem.starts_at_zero else recurrence.x.clone()
    recurrence.begin(all_columns, problem.b if start is None else problem.residual(start))
    reading = progress.read()
    history = _History(len(reading.status))
    history.start(reading)
    check = _Verification(recurrence)
    while True:
        while Status.RUNNING in reading.status:
            chunk()
            reading = progress.read()
            history.extend(reading)
            if _stopped(recurrence, reading, history):
                progress.status.masked_fill_(progress.running, int(Status.STOPPED))
                reading = progress.read()
        if not check.restarted():
            break
        reading = progress.read()
    reading, norms = progress.read(), check.true_norms()
    fallback = finite_iterate(recurrence, norms, start)
    if fallback is not None:
        norms = fallback.norms
        _withdraw(reading, fallback.columns & ~(norms <= progress.tolerance))
    if not problem.scaling.identity:
        solution, norms, overflowed = problem.restore(recurrence.x)
        recurrence.x.copy_(solution)
        _withdraw(reading, overflowed | ~(norms <= progress.tolerance), Status.OUT_OF_RANGE)
    true_norms: list[float] = norms.reshape(-1).tolist()
    return _result(recurrence, reading, history, true_norms, chunk.execution)


def _withdraw(reading: Snapshot, columns: Tensor, status: Status = Status.NOT_FINITE) -> None:
    """Change the status of replaced columns from converged to failed."""
    for column, replaced in enumerate(columns.reshape(-1).tolist()):
        if replaced and reading.status[column] == Status.CONVERGED:
            reading.status[column] = status


def _stopped(recurrence: Recurrence, reading: Snapshot, history: _History) -> bool:
    callback: Callable | None = recurrence.problem.callback
    if callback is None:
        return False
    scaling = recurrence.problem.scaling
    largest = max(scaling.norm(norms[-1], column) for column, norms in enumerate(history.norms))
    return callback(max(reading.count), scaling.solution(recurrence.x), largest) is True


class _Verification:
    """Check of converged columns by the true residual ``‖b - A x‖``.

    The recurrence's residual drifts from the true one by rounding (Greenbaum, "Estimating the attainable
    accuracy of recursively computed residual methods", 1997). Restarting from the true residual corrects this
    as long as the dtype represents ``x`` well enough.
    """

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.norms: Tensor | None = None
        self.previous = torch.full_like(recurrence.progress.tolerance, float("inf"))
        self.best: Tensor | None = None

    def restarted(self) -> bool:
        """Check the converged columns and restart failed ones; True if any was restarted."""
        problem, progress, x = self.recurrence.problem, self.recurrence.progress, self.recurrence.x
        residual = problem.residual(x)
        self.norms = safe_norms(residual).double()
        short = (progress.status == Status.CONVERGED) & ~(self.norms <= progress.tolerance)
        if not short.any():
            return False
        hopeless = short & ~(self.norms <= WORTHWHILE * self.previous)
        restarting = short & ~hopeless
        self._give_up(hopeless)
        self.previous.copy_(torch.where(restarting, self.norms, self.previous))
        if not restarting.any():
            return False
        self.best = x.clone()
        self.recurrence.begin(restarting, residual)
        return True

    def _give_up(self, columns: Tensor) -> None:
        """Mark ``columns`` as stagnated, with the better of their last two verified solutions."""
        progress, x = self.recurrence.progress, self.recurrence.x
        if self.norms is None or not columns.any():
            return
        progress.status.masked_fill_(columns, int(Status.STAGNATED))
        worse = columns & ~(self.norms <= self.previous)
        if self.best is not None:
            torch.where(worse, self.best, x, out=x)
            self.norms = torch.where(worse, self.previous, self.norms)
        progress.detail.copy_(torch.where(columns, self.norms, progress.detail))

    def true_norms(self) -> Tensor:
        """Return the final ``‖b - A x‖`` of every column, () or (N,) float64."""
        if self.norms is None:
            self.norms = safe_norms(self.recurrence.problem.residual(self.recurrence.x)).double()
        return self.norms


def _result(
    recurrence: Recurrence, reading: Snapshot, history: _History, true_norms: list[float], execution: str
) -> SolveResult:
    problem, scaled = recurrence.problem, recurrence.problem.scaling.norm
    tolerances = recurrence.progress.tolerance.reshape(-1).tolist()
    columns = [
        SolveResult(
            x=recurrence.x if problem.b.ndim == 1 else recurrence.x[:, column],
            converged=status == Status.CONVERGED,
            iterations=reading.count[column],
            residuals=tuple(scaled(norm, column) for norm in history.norms[column]),
            tolerance=scaled(tolerances[column], column),
            reason=reason_of(Status(status), reading, column, problem, recurrence.method),
            true_residual=scaled(true_norms[column], column),
            method=recurrence.method,
            execution=execution,
        )
        for column, status in enumerate(reading.status)
    ]
    return columns[0] if problem.b.ndim == 1 else worst(columns, recurrence.x, recurrence.method, execution)
