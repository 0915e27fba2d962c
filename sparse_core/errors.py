"""Exceptions and warnings of sparse_core.

    SparseError
    ├── ConvergenceError         an iterative solver did not reach its tolerance
    ├── EnergyUnavailableError   no counter of energy can be read here
    └── ImplementationError      an explicit ``impl`` that cannot run here

    UserWarning
    ├── CapacityWarning       a fixed capacity was exceeded and something was left out
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
    """No counter of a device's energy can be read; the message says which, why, and what mends it."""


class ImplementationError(SparseError, RuntimeError):
    """An implementation was asked for by name and cannot run on these tensors or this machine."""


class CapacityWarning(UserWarning):
    """A fixed capacity was exceeded; the message says what was left out and how to raise it."""


class FactorisationWarning(UserWarning):
    """A factorisation broke down and was changed until it succeeded; the message says how."""
