"""Library solves: SuperLU's by way of scipy on a CPU, cuSPARSE's by way of torch on CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scipy.sparse
import torch
from scipy.sparse.linalg import spsolve_triangular
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.linalg.library import torch_csr
from sparse_core.linalg.structure import row_of_entry
from sparse_core.linalg.triangular.common import System, check_diagonal

if TYPE_CHECKING:
    from sparse_core.formats import CSR


def solve(matrix: CSR, system: System, b: Tensor) -> Tensor:
    """Solution of the system.

    Args:
        matrix: square; the other triangle is not read.
        system: the triangle.
        b: (M, N), float32, float64 or complex, the dtype of the arithmetic.

    Returns:
        (M, N).
    """
    if b.is_cuda:
        return _solve_cusparse(matrix, system, b)
    triangle = matrix.cached_values(
        system.key(f"scipy.{b.dtype}"), lambda: _scipy_triangle(matrix, system, b.dtype)
    )
    solution = spsolve_triangular(
        triangle, b.numpy(), lower=system.forward, unit_diagonal=system.unit_diagonal
    )
    return torch.from_numpy(solution).to(b.dtype)


def _scipy_triangle(matrix: CSR, system: System, dtype: torch.dtype) -> Any:
    """The triangle as a scipy array, its diagonal checked; CSC as SuperLU has it."""
    if not system.unit_diagonal:
        check_diagonal(matrix)
    row, col = row_of_entry(matrix), matrix.col
    kept = (col <= row) if system.lower else (col >= row)
    if system.unit_diagonal:
        kept &= col != row
    values = matrix.values.detach().to(dtype)[kept].numpy()
    place = row[kept].numpy(), col[kept].numpy()
    triangle = scipy.sparse.coo_array((values, place), shape=matrix.shape)
    if system.unit_diagonal:
        # SuperLU wants the ones stored.
        triangle = triangle + scipy.sparse.eye_array(matrix.shape[0], dtype=values.dtype)
    return (triangle.T if system.transpose else triangle).tocsc()


def _solve_cusparse(matrix: CSR, system: System, b: Tensor) -> Tensor:
    if not system.unit_diagonal:
        check_diagonal(matrix)
    try:
        return torch.triangular_solve(
            b,
            torch_csr(matrix, b.dtype),
            upper=not system.lower,
            transpose=system.transpose,
            unitriangular=system.unit_diagonal,
        ).solution
    except RuntimeError as error:
        raise ImplementationError(f"torch cannot solve with a CSR matrix on {b.device}: {error}") from error
