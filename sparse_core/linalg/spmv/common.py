"""What the implementations of the sparse matrix-vector product share."""

from __future__ import annotations

from torch import Tensor

from sparse_core.formats import SparseMatrix


def prefers_vendor(matrix: SparseMatrix, x: Tensor) -> bool:
    """Whether ``impl="auto"`` leaves this CUDA product to cuSPARSE, because it was measured to win there.

    Args:
        matrix: as it will be multiplied, after transposition.
        x: (K,) vector.
    """
    return False
