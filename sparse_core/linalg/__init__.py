"""Products, factorisations and solvers of sparse matrices."""

from sparse_core.linalg.batched import BatchedCholesky, BatchedLU, batched_cholesky, batched_lu
from sparse_core.linalg.eigen import EigenResult, lobpcg
from sparse_core.linalg.factorisation import (
    ApproximateInverse,
    CholeskyFactors,
    FactorisationReport,
    ICFactors,
    ILUFactors,
    LUFactors,
    MulticolourOrder,
    cholesky,
    ic0,
    ilu0,
    iluk,
    lu,
    multicolour_order,
    sparse_approximate_inverse,
)
from sparse_core.linalg.krylov import (
    SolveResult,
    bicgstab,
    cg,
    gmres,
    lsqr,
    minres,
    save_convergence_picture,
    solve,
)
from sparse_core.linalg.preconditioners import (
    AlgebraicMultigrid,
    ApproximateSolver,
    GaussSeidel,
    Jacobi,
    MultigridLevel,
    Preconditioner,
    algebraic_multigrid,
    gauss_seidel,
    jacobi,
    rigid_body_modes,
)
from sparse_core.linalg.sddmm import sddmm
from sparse_core.linalg.spgemm import spgemm
from sparse_core.linalg.spmm import spmm
from sparse_core.linalg.spmv import spmv
from sparse_core.linalg.triangular import triangular_solve
from sparse_core.linalg.tridiagonal import tridiagonal_solve

__all__ = [
    "AlgebraicMultigrid",
    "ApproximateInverse",
    "ApproximateSolver",
    "BatchedCholesky",
    "BatchedLU",
    "CholeskyFactors",
    "EigenResult",
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
    "batched_cholesky",
    "batched_lu",
    "bicgstab",
    "cg",
    "cholesky",
    "gauss_seidel",
    "gmres",
    "ic0",
    "ilu0",
    "iluk",
    "jacobi",
    "lobpcg",
    "lsqr",
    "lu",
    "minres",
    "multicolour_order",
    "rigid_body_modes",
    "save_convergence_picture",
    "sddmm",
    "solve",
    "sparse_approximate_inverse",
    "spgemm",
    "spmm",
    "spmv",
    "triangular_solve",
    "tridiagonal_solve",
]
