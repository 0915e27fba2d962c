"""Operator ``@`` between matrices and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats import SparseMatrix
from sparse_core.linalg.products.api import spmm, spmv
from sparse_core.linalg.spgemm import spgemm


def matmul(left: Any, right: Any) -> Any:
    """Return ``left @ right``, at least one of which is a sparse matrix.

    Returns:
        CSR for two matrices, a dense tensor for a matrix and a tensor or a numpy array, ``NotImplemented``
        for anything else.
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
    """Convert a numpy array to a tensor; return anything else unchanged."""
    if scipy.sparse.issparse(operand):
        # scipy would convert the other matrix to a dense array, row by row.
        raise TypeError("a scipy matrix cannot multiply a sparse matrix: convert it with CSR.from_scipy")
    if not isinstance(operand, np.ndarray):
        return operand
    if matrix.device.type != "cpu":
        raise TypeError(
            f"the matrix is on {matrix.device}, which cannot multiply a numpy array: use"
            f" torch.from_numpy(array).to({str(matrix.device)!r})"
        )
    if operand.dtype.kind not in "fc":
        raise TypeError(
            f"a numpy array to multiply must be floating or complex, got {operand.dtype}: convert it with"
            " array.astype(numpy.float32)"
        )
    # torch rejects negative strides and foreign byte order, and warns about read-only memory.
    return torch.from_numpy(np.array(operand, dtype=operand.dtype.newbyteorder("="), order="C"))
