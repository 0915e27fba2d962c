"""Parallel cyclic reduction in plain torch: ``log2(n)`` steps over all rows of all systems at once.

Hockney and Jesshope, "Parallel computers", 1981. A step eliminates the neighbours at distance d with the
rows at distance d, which leaves couplings at distance 2 d; in the end every row stands alone. No pivoting:
stable for diagonally dominant and for Hermitian positive definite systems.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.linalg.tridiagonal.common import Solution


def solve(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Solution:
    """Solve all systems; see :mod:`sparse_core.linalg.tridiagonal.common` for the arguments."""
    size = diagonal.shape[1]
    zero = diagonal == 0
    distance = 1
    while distance < size:
        above = -lower / _shifted(diagonal, distance, 1)
        below = -upper / _shifted(diagonal, -distance, 1)
        diagonal = diagonal + above * _shifted(upper, distance, 0) + below * _shifted(lower, -distance, 0)
        b = b + above[..., None] * _shifted(b, distance, 0) + below[..., None] * _shifted(b, -distance, 0)
        lower = above * _shifted(lower, distance, 0)
        upper = below * _shifted(upper, -distance, 0)
        zero |= diagonal == 0
        distance *= 2
    first = torch.where(zero.any(dim=1), zero.int().argmax(dim=1), -1)
    return Solution(b / diagonal[..., None], first)


def _shifted(rows: Tensor, distance: int, outside: float) -> Tensor:
    """Row ``i - distance`` in the place of row ``i``, ``outside`` where there is none."""
    size = rows.shape[1]
    kept = max(size - abs(distance), 0)
    filler = rows.new_full((rows.shape[0], size - kept, *rows.shape[2:]), outside)
    if distance > 0:
        return torch.cat([filler, rows[:, :kept]], dim=1)
    return torch.cat([rows[:, size - kept :], filler], dim=1)
