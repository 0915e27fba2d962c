"""A Krylov method as the loop around it sees it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from sparse_core.linalg.krylov.problem import LinearSystem
from sparse_core.linalg.krylov.progress import Progress


class Recurrence(Protocol):
    """Buffers on the device, changed in place."""

    method: str
    problem: LinearSystem
    progress: Progress
    x: Tensor

    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """Start, or restart ``columns`` (bool), from ``residual`` = ``b - A x``."""

    def step(self, slot: int) -> None:
        """One iteration that ends with ``progress.record(slot, ...)``."""
