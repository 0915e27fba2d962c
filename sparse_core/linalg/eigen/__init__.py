"""Extreme eigenvalues and eigenvectors of large Hermitian matrices."""

from sparse_core.linalg.eigen.lobpcg import lobpcg
from sparse_core.linalg.eigen.result import EigenResult

__all__ = ["EigenResult", "lobpcg"]
