"""Exceptions and warnings of sparse_core.

    SparseError
    └── ImplementationError   an explicit ``impl`` that cannot run here

    UserWarning
    └── CapacityWarning       a fixed capacity was exceeded and something was left out

Bad arguments raise the built-in ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations


class SparseError(Exception):
    """Base of every error that sparse_core raises on purpose."""


class ImplementationError(SparseError, RuntimeError):
    """An implementation was asked for by name and cannot run on these tensors or this machine."""


class CapacityWarning(UserWarning):
    """A fixed capacity was exceeded; the message says what was left out and how to raise it."""
