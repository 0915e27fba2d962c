"""Triangular solves by libraries: SuperLU (scipy) on a CPU, cuSPARSE (torch) on CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import splu, spsolve_triangular
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.linalg.library import torch_csr
from sparse_core.linalg.structure import row_of_entry
from sparse_core.linalg.triangular.common import System, check_diagonal

if TYPE_CHECKING:
    from sparse_core.formats import CSR


def solve(matrix: CSR, system: System, b: Tensor) -> Tensor:
    """Return the solution (M, N) for ``b`` (M, N), in float32, float64 or complex."""
    if b.is_cuda:
        return _solve_cusparse(matrix, system, b)
    factors = matrix.cached_values(
        system.key(f"superlu.{b.dtype}"), lambda: _factors(_scipy_triangle(matrix, system, b.dtype))
    )
    if factors is not None:
        solution = torch.from_numpy(np.ascontiguousarray(factors.solve(b.numpy())))
        # SuperLU's blocks contain explicit zeros, through which NaN would spread.
        if bool(solution.isfinite().all()):
            return solution
    triangle = matrix.cached_values(
        system.key(f"scipy.{b.dtype}"), lambda: _scipy_triangle(matrix, system, b.dtype)
    )
    solution = spsolve_triangular(
        triangle, b.numpy(), lower=system.forward, unit_diagonal=system.unit_diagonal
    )
    return torch.from_numpy(solution).to(b.dtype)


def _factors(triangle: Any) -> Any | None:
    """Return SuperLU's object for a triangle, None if it would reorder it.

    ``spsolve_triangular`` checks and converts its matrix in every call. Making this object takes as long as
    two such calls, and a solve with it a fifth of one.
    """
    if not np.isfinite(triangle.data).all():
        return None
    # Threshold 0 always takes a nonzero diagonal as pivot. Relaxed supernodes and panels only help with
    # elimination, which a triangle does not need.
    factors = splu(
        triangle,
        permc_spec="NATURAL",
        diag_pivot_thresh=0,
        relax=1,
        panel_size=1,
        options={"Equil": False},
    )
    natural = np.arange(triangle.shape[0])
    natural_order = np.array_equal(factors.perm_r, natural) and np.array_equal(factors.perm_c, natural)
    return factors if natural_order else None


def _scipy_triangle(matrix: CSR, system: System, dtype: torch.dtype) -> Any:
    """Return the triangle as a scipy CSC array, with a checked diagonal."""
    if not system.unit_diagonal:
        check_diagonal(matrix)
    row, col = row_of_entry(matrix), matrix.col
    inside = (col <= row) if system.lower else (col >= row)
    if system.unit_diagonal:
        inside &= col != row
    values = matrix.values.detach().to(dtype)[inside].numpy()
    place = row[inside].numpy(), col[inside].numpy()
    triangle = scipy.sparse.coo_array((values, place), shape=matrix.shape)
    if system.unit_diagonal:
        # SuperLU needs stored ones.
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
