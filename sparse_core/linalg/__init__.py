"""Products, factorisations and solvers of sparse matrices."""

from sparse_core.linalg.factorisation.cholesky_incomplete import ICFactors, ic0
from sparse_core.linalg.factorisation.colouring import MulticolourOrder, multicolour_order
from sparse_core.linalg.factorisation.direct import CholeskyFactors, LUFactors, cholesky, lu
from sparse_core.linalg.factorisation.ilu import FactorisationReport, ILUFactors, ilu0, iluk
from sparse_core.linalg.krylov import (
    SolveResult,
    bicgstab,
    cg,
    gmres,
    minres,
    save_convergence_picture,
    solve,
)
from sparse_core.linalg.preconditioner import ApproximateSolver, Preconditioner
from sparse_core.linalg.preconditioners.multigrid import (
    AlgebraicMultigrid,
    MultigridLevel,
    algebraic_multigrid,
)
from sparse_core.linalg.preconditioners.relaxation import GaussSeidel, Jacobi, gauss_seidel, jacobi
from sparse_core.linalg.products import sddmm, spmm, spmv
from sparse_core.linalg.spgemm import spgemm
from sparse_core.linalg.triangular import triangular_solve

__all__ = [
    "AlgebraicMultigrid",
    "ApproximateSolver",
    "CholeskyFactors",
    "FactorisationReport",
    "GaussSeidel",
    "ICFactors",
    "ILUFactors",
    "Jacobi",
    "LUFactors",
    "MulticolourOrder",
    "MultigridLevel",
    "Preconditioner",
    "SolveResult",
    "algebraic_multigrid",
    "bicgstab",
    "cg",
    "cholesky",
    "gauss_seidel",
    "gmres",
    "ic0",
    "ilu0",
    "iluk",
    "jacobi",
    "lu",
    "minres",
    "multicolour_order",
    "save_convergence_picture",
    "sddmm",
    "solve",
    "spgemm",
    "spmm",
    "spmv",
    "triangular_solve",
]
