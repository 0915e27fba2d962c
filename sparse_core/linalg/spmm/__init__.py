"""Sparse matrix times a dense matrix."""

from sparse_core.linalg.spmm.api import spmm

__all__ = ["spmm"]
