"""Sparse matrix times a sparse matrix."""

from sparse_core.linalg.spgemm.api import spgemm

__all__ = ["spgemm"]
