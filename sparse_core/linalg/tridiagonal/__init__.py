"""Batches of tridiagonal systems."""

from sparse_core.linalg.tridiagonal.api import tridiagonal_solve

__all__ = ["tridiagonal_solve"]
