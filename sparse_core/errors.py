"""Exceptions and warnings of sparse_core.

    SparseError
    ├── ConvergenceError      an iterative solver did not reach its tolerance
    └── ImplementationError   an explicit ``impl`` that cannot run here

    UserWarning
    ├── CapacityWarning       a fixed capacity was exceeded and something was left out
    └── FactorisationWarning  a factorisation broke down and was changed until it succeeded

Bad arguments raise the built-in ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparse_core.linalg.krylov.result import SolveResult


class SparseError(Exception):
    """Base of every error that sparse_core raises on purpose."""


class ConvergenceError(SparseError, RuntimeError):
    """An iterative solver did not reach its tolerance; ``result`` holds the last iterate and the history."""

    def __init__(self, message: str, *, result: SolveResult) -> None:
        super().__init__(message)
        self.result = result


class ImplementationError(SparseError, RuntimeError):
    """An implementation was asked for by name and cannot run on these tensors or this machine."""


class CapacityWarning(UserWarning):
    """A fixed capacity was exceeded; the message says what was left out and how to raise it."""


class FactorisationWarning(UserWarning):
    """A factorisation broke down and was changed until it succeeded; the message says how."""
