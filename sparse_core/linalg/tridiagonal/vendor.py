"""LAPACK's ``gtsv`` through scipy: Gaussian elimination with partial pivoting, on a CPU.

One call solves all systems, concatenated with zeros between them. The zeros separate them, also in pivoting.
"""

from __future__ import annotations

import torch
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from sparse_core.linalg.tridiagonal.common import Solution


def solve(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Solution:
    """Solve all systems; see :mod:`sparse_core.linalg.tridiagonal.common`."""
    systems, _, columns = b.shape
    bands_finite = (lower.isfinite() & diagonal.isfinite() & upper.isfinite()).all(dim=1)
    finite = bands_finite[:, None] & b.isfinite().all(dim=1)
    # Zero times NaN is NaN, so non-finite numbers would reach the neighbouring systems.
    lower, diagonal, upper, b = (part.clone() for part in (lower, diagonal, upper, b))
    lower[~bands_finite], diagonal[~bands_finite], upper[~bands_finite] = 0, 1, 0
    b.masked_fill_(~finite[:, None, :], 0)
    x, row = _gtsv(lower.reshape(-1), diagonal.reshape(-1), upper.reshape(-1), b.reshape(-1, columns))
    x, zero_pivot = x.reshape(b.shape), torch.full((systems,), -1)
    if row >= 0 or not x.isfinite().all():
        # A singular system stops LAPACK, and an overflow spreads: solve the systems one by one.
        x, zero_pivot = _solve_separately(lower, diagonal, upper, b)
    return Solution(x.masked_fill(~finite[:, None, :], float("nan")), zero_pivot)


def _gtsv(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> tuple[Tensor, int]:
    """Solve one system; return the solution, and the row of a zero pivot or -1."""
    numbers = [part.numpy() for part in (lower[1:], diagonal, upper[:-1], b)]
    if len(diagonal) == 1:
        return b / diagonal[:, None], 0 if bool(diagonal == 0) else -1
    (gtsv,) = get_lapack_funcs(("gtsv",), numbers)
    *_, x, info = gtsv(*numbers)
    return torch.from_numpy(x).contiguous(), info - 1


def _solve_separately(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Solve every system in its own call; NaN for singular ones."""
    solved = [_gtsv(*system) for system in zip(lower, diagonal, upper, b, strict=True)]
    zero_pivot = torch.tensor([row for _, row in solved])
    x = torch.stack([part for part, _ in solved])
    x[zero_pivot >= 0] = float("nan")
    return x, zero_pivot
