"""Where a solve stands, kept on the device: nothing here is read by the host while iterations run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

#: A restart from the true residual that leaves more than this share of it is taken for rounding.
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
    """What the host sees at a look: one entry for each right-hand side."""

    status: list[int]
    count: list[int]
    detail: list[float]
    norms: list[list[float]]


class Progress:
    """Status, iteration count and residual norms of every right-hand side.

    A column that is no longer running is frozen: later steps leave its solution, count and norms alone.
    Results therefore do not depend on how many steps lie between two looks of the host.

    Attributes:
        status: () or (N,) int64, :class:`Status`.
        count: same shape, int64, iterations done.
        detail: same shape, float64, the number that a breakdown message quotes.
        norms: (steps, ...) float64, residual norms of the steps since the last look.
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
        """() or (N,) bool."""
        return self.status == Status.RUNNING

    def reset(self) -> None:
        """Forget all iterations: every column runs again from its first."""
        for number in (self.status, self.count, self.detail):
            number.zero_()

    def begin(self, norm: Tensor, columns: Tensor) -> None:
        """Judge the residual norms that ``columns`` (bool) start or restart from."""
        self.status.copy_(torch.where(columns, self._verdict(norm.to(torch.float64)), self.status))
        self.norms[0] = norm

    def record(self, slot: int, norm: Tensor, failure: Tensor, detail: Tensor) -> None:
        """End step ``slot``.

        Args:
            slot: steps since the last look.
            norm: residual norm after the step.
            failure: :class:`Status` of a step that could not be taken, 0 where it was.
            detail: number that explains the failure.
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
        """Bring everything to the host in one transfer."""
        rows = [self.status.double(), self.count.double(), self.detail, *self.norms.unbind()]
        report = torch.stack(rows).reshape(len(rows), self.status.numel()).tolist()
        status, count, detail, *norms = report
        return Snapshot([int(code) for code in status], [int(number) for number in count], detail, norms)


def add_scaled(target: Tensor, factor: Tensor, direction: Tensor, allowed: Tensor) -> None:
    """``target += factor * direction`` in the columns that ``allowed`` (bool); others stay bit for bit.

    A product with zero would not do: ``direction`` may hold infinities where it is not allowed.
    """
    if allowed.ndim == 0 and not allowed.is_cuda:
        if allowed:
            target.add_(direction, alpha=factor.item())
        return
    torch.where(allowed, torch.addcmul(target, direction, factor.to(target.dtype)), target, out=target)
