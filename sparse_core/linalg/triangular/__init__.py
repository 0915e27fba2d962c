"""Sparse triangular solve: level-scheduled."""

from sparse_core.linalg.triangular.api import triangular_solve

__all__ = ["triangular_solve"]
