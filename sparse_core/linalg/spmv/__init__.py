"""Sparse matrix times a vector."""

from sparse_core.linalg.spmv.api import spmv

__all__ = ["spmv"]
