"""Product of two sparse matrices."""

from sparse_core.linalg.spgemm.api import spgemm

__all__ = ["spgemm"]
