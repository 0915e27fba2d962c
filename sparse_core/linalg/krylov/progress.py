"""Progress of a solve, kept on the device so that iterations do not wait for the host."""

from __future__ import annotations

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
    def running(self) -> Tensor:
        """Columns that are still running, () or (N,) bool."""
        return self.status == Status.RUNNING

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
        norm = norm.to(torch.float64)
        running = self.running
        self.count += running & (failure == 0)
        self.norms[slot] = norm
        verdict = torch.where(failure == 0, self._verdict(norm), failure)
        self.detail.copy_(torch.where(running, detail.to(torch.float64), self.detail))
        self.status.copy_(torch.where(running, verdict, self.status))

    def _verdict(self, norm: Tensor) -> Tensor:
        status = torch.where(
            self.count >= self.max_iterations, int(Status.MAX_ITERATIONS), int(Status.RUNNING)
        )
        status = torch.where(norm <= self.tolerance, int(Status.CONVERGED), status)
        # Last, because an infinite right-hand side has an infinite tolerance.
        return torch.where(torch.isfinite(norm), status, int(Status.NOT_FINITE))

    def read(self) -> Snapshot:
        """Copy everything to the host in one transfer."""
        rows = [self.status.double(), self.count.double(), self.detail, *self.norms.unbind()]
        report = torch.stack(rows).reshape(len(rows), self.status.numel()).tolist()
        status, count, detail, *norms = report
        return Snapshot([int(code) for code in status], [int(number) for number in count], detail, norms)


def add_scaled(target: Tensor, factor: Tensor, direction: Tensor, allowed: Tensor) -> None:
    """Compute ``target += factor * direction`` in the ``allowed`` (bool) columns only.

    A zero factor would not suffice, because ``direction`` may hold infinities in the other columns.
    """
    if allowed.ndim == 0 and not allowed.is_cuda:
        if allowed:
            target.add_(direction, alpha=factor.item())
        return
    torch.where(allowed, torch.addcmul(target, direction, factor.to(target.dtype)), target, out=target)
