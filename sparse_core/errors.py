"""Exceptions and warnings of sparse_core.

    SparseError
    ├── ConvergenceError         an iterative solver did not reach its tolerance
    ├── EnergyUnavailableError   this machine has no readable energy counter
    └── ImplementationError      the implementation named by ``impl`` cannot run here

    UserWarning
    ├── CapacityWarning       a fixed capacity was exceeded and entries were dropped
    └── FactorisationWarning  a factorisation broke down and was changed until it succeeded

Bad arguments raise the built-in ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations

from typing import Any


class SparseError(Exception):
    """Base of every error that sparse_core raises on purpose."""


class ConvergenceError(SparseError, RuntimeError):
    """An iterative solver did not reach its tolerance.

    Attributes:
        result: the solver's ``SolveResult``, with the last iterate and the history.
    """

    def __init__(self, message: str, *, result: Any) -> None:
        super().__init__(message)
        self.result = result


class EnergyUnavailableError(SparseError, RuntimeError):
    """The machine has no readable energy counter; the message gives the reason and the fix."""


class ImplementationError(SparseError, RuntimeError):
    """The implementation named by ``impl`` cannot run on these tensors or this machine."""


class CapacityWarning(UserWarning):
    """A fixed capacity was exceeded; the message names what was dropped and how to raise the capacity."""


class FactorisationWarning(UserWarning):
    """A factorisation broke down and was changed until it succeeded; the message describes the change."""
