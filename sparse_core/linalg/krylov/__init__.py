"""Krylov solvers CG, MINRES, BiCGSTAB and GMRES, their result, and a differentiable solve."""

from sparse_core.linalg.krylov.bicgstab import bicgstab
from sparse_core.linalg.krylov.cg import cg
from sparse_core.linalg.krylov.differentiable import solve
from sparse_core.linalg.krylov.gmres import gmres
from sparse_core.linalg.krylov.minres import minres
from sparse_core.linalg.krylov.picture import save_convergence_picture
from sparse_core.linalg.krylov.result import SolveResult

__all__ = ["SolveResult", "bicgstab", "cg", "gmres", "minres", "save_convergence_picture", "solve"]
