"""Progress of a solve, kept on the device so that iterations do not wait for the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

#: A restart must reduce the true residual to this share; otherwise rounding dominates.
WORTHWHILE = 0.8


class Status(IntEnum):
    """State of one right-hand side; kernels use the numbers."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITERATIONS = 2
    NOT_FINITE = 3
    NOT_POSITIVE_DEFINITE = 4
    PRECONDITIONER_NOT_POSITIVE_DEFINITE = 5
    RHO_VANISHED = 6
    DENOMINATOR_VANISHED = 7
    OMEGA_VANISHED = 8
    STAGNATED = 9
    STOPPED = 10
    LEAST_SQUARES = 11
    OUT_OF_RANGE = 12


@dataclass(frozen=True)
class Snapshot:
    """Copy of the progress on the host, one entry per right-hand side."""

    status: list[int]
    count: list[int]
    detail: list[float]
    norms: list[list[float]]


class Progress:
    """Status, iteration count and residual norms of every right-hand side.

    A column that is not running is frozen: later steps do not change its solution, count and norms. Results
    therefore do not depend on the number of steps between two checks.

    Attributes:
        status: () or (N,) int64, :class:`Status`.
        count: same shape, int64, number of iterations.
        detail: same shape, float64, the number that a breakdown message quotes.
        norms: (steps, ...) float64, residual norms of the steps since the last check.
        tolerance: same shape, float64.
    """

    def __init__(self, tolerance: Tensor, steps: int, max_iterations: int) -> None:
        self.tolerance = tolerance.to(torch.float64)
        self.status = torch.zeros_like(self.tolerance, dtype=torch.int64)
        self.count = torch.zeros_like(self.status)
        self.detail = torch.zeros_like(self.tolerance)
        self.norms = self.tolerance.new_zeros(steps, *self.tolerance.shape)
        self.max_iterations = max_iterations

    @property
    def is_single(self) -> bool:
        """True for one right-hand side on a CPU."""
        return self.status.ndim == 0 and not self.status.is_cuda

    @property
    def running(self) -> Tensor:
        """Columns that are still running, () or (N,) bool."""
        return self.status == Status.RUNNING

    def allows(self, failure: Tensor) -> Tensor | bool:
        """Return the columns that take a step, () or (N,) bool, given their failures (0: none)."""
        if self.is_single:
            return int(self.status) == Status.RUNNING and int(failure) == 0
        return self.running & (failure == 0)

    def reset(self) -> None:
        """Restart all columns from iteration 0."""
        for number in (self.status, self.count, self.detail):
            number.zero_()

    def begin(self, norm: Tensor, columns: Tensor) -> None:
        """Evaluate the residual norms from which ``columns`` (bool) start or restart."""
        self.status.copy_(torch.where(columns, self._verdict(norm.to(torch.float64)), self.status))
        self.norms[0] = norm

    def record(self, slot: int, norm: Tensor, failure: Tensor, detail: Tensor) -> None:
        """End step ``slot``.

        Args:
            failure: :class:`Status` of a forbidden step, 0 for an allowed one.
        """
        if self.is_single:
            self._record_single(slot, norm.item(), int(failure), detail.item())
            return
        norm = norm.to(torch.float64)
        running = self.running
        self.count += running & (failure == 0)
        self.norms[slot] = norm
        verdict = torch.where(failure == 0, self._verdict(norm), failure)
        self.detail.copy_(torch.where(running, detail.to(torch.float64), self.detail))
        self.status.copy_(torch.where(running, verdict, self.status))

    def _record_single(self, slot: int, norm: float, failure: int, detail: float) -> None:
        """Record numbers instead of tensors, whose operations take as long as a step of a small system."""
        self.norms[slot] = norm
        if int(self.status) != Status.RUNNING:
            return
        count = int(self.count) + (failure == 0)
        status = Status(failure)
        if failure == 0 and not math.isfinite(norm):
            status = Status.NOT_FINITE
        elif failure == 0 and norm <= float(self.tolerance):
            status = Status.CONVERGED
        elif failure == 0 and count >= self.max_iterations:
            status = Status.MAX_ITERATIONS
        self.count.fill_(count)
        self.detail.fill_(detail)
        self.status.fill_(int(status))

    def _verdict(self, norm: Tensor) -> Tensor:
        status = torch.where(
            self.count >= self.max_iterations, int(Status.MAX_ITERATIONS), int(Status.RUNNING)
        )
        status = torch.where(norm <= self.tolerance, int(Status.CONVERGED), status)
        # Last, because an infinite right-hand side has an infinite tolerance.
        return torch.where(torch.isfinite(norm), status, int(Status.NOT_FINITE))

    def read(self) -> Snapshot:
        """Copy everything to the host in one transfer."""
        if self.is_single:
            norms = [[norm] for norm in self.norms.tolist()]
            return Snapshot([int(self.status)], [int(self.count)], [self.detail.item()], norms)
        rows = [self.status.double(), self.count.double(), self.detail, *self.norms.unbind()]
        report = torch.stack(rows).reshape(len(rows), self.status.numel()).tolist()
        status, count, detail, *norms = report
        return Snapshot([int(code) for code in status], [int(number) for number in count], detail, norms)


def add_scaled(target: Tensor, factor: Tensor, direction: Tensor, allowed: Tensor | bool) -> None:
    """Compute ``target += factor * direction`` in the ``allowed`` (bool) columns only.

    A zero factor would not suffice, because ``direction`` may hold infinities in the other columns.
    """
    if isinstance(allowed, bool):
        if allowed:
            target.add_(direction, alpha=factor.item())
        return
    torch.where(allowed, torch.addcmul(target, direction, factor.to(target.dtype)), target, out=target)
