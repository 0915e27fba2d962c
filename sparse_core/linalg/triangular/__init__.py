"""Level-scheduled sparse triangular solve."""

from sparse_core.linalg.triangular.api import triangular_solve

__all__ = ["triangular_solve"]
