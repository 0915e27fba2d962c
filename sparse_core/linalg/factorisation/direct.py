"""Direct factorisations by SuperLU (scipy), on the CPU.

Right-hand sides on another device are copied there and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import splu
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg.factorisation.pattern import check_factorisable, check_same_structure
from sparse_core.linalg.preconditioner import ApproximateSolver, check_right_side


class LUFactors(ApproximateSolver):
    """``P_r A P_c = L U`` by SuperLU.

    Attributes:
        shape: rows and columns.
        column_order: (M,) int64 numpy array, matrix column at each place.
        factors: scipy's ``SuperLU`` object of the matrix with its columns reordered, None without rows.
    """

    graph_safe = False

    def __init__(self, matrix: CSR, column_order: Any | None = None) -> None:
        check_factorisable(matrix)
        self.shape = matrix.shape
        self._matrix = matrix
        self.factors: Any = None
        self.column_order = np.arange(matrix.shape[0])
        if matrix.shape[0] == 0:
            return
        columns = _scipy(matrix).tocsc()
        if column_order is None:
            # The first factorisation finds the ordering.
            self.factors = _superlu(columns, permc_spec="COLAMD")
            self.column_order = np.argsort(self.factors.perm_c)
            self._reordered = False
        else:
            self.factors = _superlu(columns[:, column_order], permc_spec="NATURAL")
            self.column_order = column_order
            self._reordered = True

    def solve(self, b: Tensor) -> Tensor:
        """Solve for ``b`` of shape (M,) or (M, N), on the device of ``b``; not differentiable."""
        check_right_side(b, self.shape)
        if b.numel() == 0:
            return torch.empty_like(b)
        solution = _solve_superlu(self.factors, b)
        if not self._reordered:
            return solution
        place = torch.from_numpy(np.argsort(self.column_order)).to(b.device)
        return solution[place]

    def refactor(self, matrix: CSR) -> LUFactors:
        """Factorise a matrix with the same structure and new values, reusing the column ordering.

        Raises:
            ValueError: another structure, or a singular matrix.
        """
        check_same_structure(self._matrix, matrix)
        return LUFactors(matrix, self.column_order)


class CholeskyFactors(ApproximateSolver):
    """``P A P^T = L U`` with a symmetric ``P`` and positive pivots, by SuperLU's symmetric mode.

    Attributes:
        shape: rows and columns.
    """

    graph_safe = False

    def __init__(self, matrix: CSR, order: Any | None = None) -> None:
        check_factorisable(matrix)
        if matrix.dtype.is_complex:
            raise TypeError(f"cholesky supports real values, got {matrix.dtype}: use lu")
        self.shape = matrix.shape
        self._matrix = matrix
        self._order = order
        self._factors: Any = None
        if matrix.shape[0] == 0:
            return
        array = _scipy(matrix).tocsc()
        _check_symmetric(array)
        symmetric = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        if self._order is None:
            self._order = np.argsort(_superlu(array, permc_spec="MMD_AT_PLUS_A", **symmetric).perm_c)
        order = self._order
        # Without pivoting, all pivots are positive exactly if the matrix is positive definite.
        self._factors = factors = _superlu(array[order][:, order], permc_spec="NATURAL", **symmetric)
        _check_pivots(np.where(factors.perm_r == np.arange(len(order)), factors.U.diagonal(), -1.0), order)

    def solve(self, b: Tensor) -> Tensor:
        """Solve for ``b`` of shape (M,) or (M, N), on the device of ``b``; not differentiable."""
        check_right_side(b, self.shape)
        if b.numel() == 0:
            return torch.empty_like(b)
        order = torch.from_numpy(self._order).to(b.device)
        solution = _solve_superlu(self._factors, b[order])
        return torch.empty_like(solution).index_copy_(0, order, solution)

    def refactor(self, matrix: CSR) -> CholeskyFactors:
        """Factorise a matrix with the same structure and new values, reusing the ordering.

        Raises:
            ValueError: another structure, not symmetric, or not positive definite.
        """
        check_same_structure(self._matrix, matrix)
        return CholeskyFactors(matrix, self._order)


def lu(matrix: CSR) -> LUFactors:
    """Compute the direct LU factorisation by SuperLU (scipy) with partial pivoting, on the CPU.

    Args:
        matrix: (M, M) CSR, float32, float64 or complex; a CUDA matrix is copied to the CPU.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, or singular.
    """
    return LUFactors(matrix)


def cholesky(matrix: CSR) -> CholeskyFactors:
    """Compute the direct Cholesky factorisation of a symmetric positive definite matrix, on the CPU.

    Args:
        matrix: (M, M) CSR, float32 or float64, both triangles stored; a CUDA matrix is copied to the CPU.

    Raises:
        TypeError: not CSR, or values of another type.
        ValueError: not square, not symmetric, singular, or not positive definite.
    """
    return CholeskyFactors(matrix)


def _scipy(matrix: CSR) -> Any:
    return matrix.detach().to("cpu").to_scipy()


def _superlu(array: Any, **options: Any) -> Any:
    # SuperLU needs 32-bit indices.
    array.indices, array.indptr = array.indices.astype(np.int32), array.indptr.astype(np.int32)
    try:
        return splu(array, **options)
    except RuntimeError as error:
        raise ValueError(
            f"SuperLU cannot factorise the matrix: {error}. For a singular matrix use minres or gmres, or add"
            " a small multiple of the identity"
        ) from error


def _solve_superlu(factors: Any, b: Tensor) -> Tensor:
    """Solve in the dtype of the factors; complex right-hand sides of real factors in two parts."""
    dtype = torch.from_numpy(np.zeros(0, factors.L.dtype)).dtype
    wide = torch.promote_types(b.dtype, dtype)
    right = b.detach().cpu()
    if wide.is_complex and not dtype.is_complex:
        parts = [_solve_superlu(factors, part) for part in (right.real, right.imag)]
        return torch.complex(*parts).to(b.device, wide)
    solution = factors.solve(right.to(dtype).contiguous().numpy())
    return torch.from_numpy(np.ascontiguousarray(solution)).to(b.device, wide)


def _check_symmetric(array: Any) -> None:
    difference = abs(array - array.T).tocoo()
    allowed = np.finfo(array.dtype).eps ** 0.5 * abs(array).max()
    wrong = np.flatnonzero(difference.data > allowed)
    if len(wrong):
        row, column = sorted((difference.row[wrong[0]], difference.col[wrong[0]]))
        raise ValueError(f"matrix is not symmetric: entries ({row}, {column}) and ({column}, {row}) differ")


def _check_pivots(pivots: Any, order: Any) -> None:
    bad = np.flatnonzero(~(pivots > 0))
    if len(bad):
        raise ValueError(
            f"matrix is not positive definite: the pivot of row {int(order[bad[0]])} is not positive"
        )
