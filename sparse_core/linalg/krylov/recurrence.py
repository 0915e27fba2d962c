"""Interface of a Krylov method for the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from sparse_core.linalg.krylov.problem import LinearSystem
from sparse_core.linalg.krylov.progress import Progress


class Recurrence(ABC):
    """State of a solve on the device, updated in place; every column has its own coefficients."""

    method: ClassVar[str]

    def __init__(self, problem: LinearSystem) -> None:
        self.problem = problem
        self.progress = Progress(problem.tolerance, problem.check_every, problem.max_iterations)
        self.x = problem.x
        self.residual = problem.b.clone(memory_format=torch.contiguous_format)

    @abstractmethod
    def begin(self, columns: Tensor, residual: Tensor) -> None:
        """Start, or restart ``columns`` (bool), from ``residual`` = ``b - A x``."""

    @abstractmethod
    def step(self, slot: int) -> None:
        """Run one iteration without the host; it must end with ``progress.record(slot, ...)``."""
