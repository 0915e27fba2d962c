"""What ``@`` between matrices and tensors means."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparse_core.formats import SparseMatrix
from sparse_core.linalg.products.api import spmm, spmv
from sparse_core.linalg.spgemm import spgemm


def matmul(left: Any, right: Any) -> Any:
    """``left @ right``, of which one at least is a sparse matrix.

    Returns:
        CSR for two matrices, a dense tensor for a matrix and a tensor or a numpy array, ``NotImplemented``
        for anything else.

    Raises:
        TypeError: a numpy array beside a matrix on a GPU, or one of numbers that torch has no type for.
    """
    left, right = (_from_numpy(one, other) for one, other in ((left, right), (right, left)))
    if isinstance(left, SparseMatrix):
        if isinstance(right, SparseMatrix):
            return spgemm(left, right)
        if isinstance(right, Tensor):
            return spmm(left, right)
        return NotImplemented
    if not isinstance(left, Tensor):
        return NotImplemented
    if left.ndim == 1:
        return spmv(right, left, transpose=True)
    return spmm(right, left.mT, transpose=True).mT


def _from_numpy(operand: Any, matrix: Any) -> Any:
    """A numpy array as a tensor; anything else as it is."""
    if not isinstance(operand, np.ndarray):
        return operand
    if matrix.device.type != "cpu":
        raise TypeError(
            f"a numpy array cannot be multiplied with a matrix on {matrix.device}: move it there with"
            f" torch.from_numpy(array).to({str(matrix.device)!r})"
        )
    if operand.dtype.kind not in "fc":
        raise TypeError(
            f"a numpy array to multiply must be floating or complex, got {operand.dtype}: convert it with"
            " array.astype(numpy.float32)"
        )
    # torch takes neither negative strides nor another order of bytes, and warns of memory that is read-only.
    return torch.from_numpy(np.array(operand, dtype=operand.dtype.newbyteorder("="), order="C"))
