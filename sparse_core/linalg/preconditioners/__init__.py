"""Preconditioners: relaxations, algebraic multigrid, and the protocol that they and factorisations follow."""

from sparse_core.linalg.preconditioner import ApproximateSolver, Preconditioner
from sparse_core.linalg.preconditioners.multigrid import (
    AlgebraicMultigrid,
    MultigridLevel,
    algebraic_multigrid,
)
from sparse_core.linalg.preconditioners.near_nullspace import rigid_body_modes
from sparse_core.linalg.preconditioners.relaxation import GaussSeidel, Jacobi, gauss_seidel, jacobi

__all__ = [
    "AlgebraicMultigrid",
    "ApproximateSolver",
    "GaussSeidel",
    "Jacobi",
    "MultigridLevel",
    "Preconditioner",
    "algebraic_multigrid",
    "gauss_seidel",
    "jacobi",
    "rigid_body_modes",
]
