"""Factorisations: incomplete ones to precondition with, direct ones to solve with, and orderings for both."""

from sparse_core.linalg.factorisation.approximate_inverse import (
    ApproximateInverse,
    sparse_approximate_inverse,
)
from sparse_core.linalg.factorisation.cholesky_incomplete import ICFactors, ic0
from sparse_core.linalg.factorisation.colouring import MulticolourOrder, multicolour_order
from sparse_core.linalg.factorisation.direct import CholeskyFactors, LUFactors, cholesky, lu
from sparse_core.linalg.factorisation.ilu import FactorisationReport, ILUFactors, ilu0, iluk

__all__ = [
    "ApproximateInverse",
    "CholeskyFactors",
    "FactorisationReport",
    "ICFactors",
    "ILUFactors",
    "LUFactors",
    "MulticolourOrder",
    "cholesky",
    "ic0",
    "ilu0",
    "iluk",
    "lu",
    "multicolour_order",
    "sparse_approximate_inverse",
]
