"""Parallel cyclic reduction in plain torch: ``log2(n)`` steps over all rows of all systems at once.

Hockney and Jesshope, "Parallel computers", 1981. A step eliminates the neighbours at distance d by the rows
at distance d, which leaves couplings at distance 2 d; in the end the rows are uncoupled. No pivoting: stable
for diagonally dominant and for Hermitian positive definite systems.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.linalg.tridiagonal.common import Solution


def solve(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> Solution:
    """Solve all systems; see :mod:`sparse_core.linalg.tridiagonal.common`."""
    size = diagonal.shape[1]
    zero = diagonal == 0
    distance = 1
    while distance < size:
        above = -lower / _shift(diagonal, distance, 1)
        below = -upper / _shift(diagonal, -distance, 1)
        diagonal = diagonal + above * _shift(upper, distance, 0) + below * _shift(lower, -distance, 0)
        b = b + above[..., None] * _shift(b, distance, 0) + below[..., None] * _shift(b, -distance, 0)
        lower = above * _shift(lower, distance, 0)
        upper = below * _shift(upper, -distance, 0)
        zero |= diagonal == 0
        distance *= 2
    first = torch.where(zero.any(dim=1), zero.int().argmax(dim=1), -1)
    return Solution(b / diagonal[..., None], first)


def _shift(rows: Tensor, distance: int, outside: float) -> Tensor:
    """Move row ``i - distance`` to row ``i``; fill with ``outside``."""
    size = rows.shape[1]
    rows_left = max(size - abs(distance), 0)
    filler = rows.new_full((rows.shape[0], size - rows_left, *rows.shape[2:]), outside)
    if distance > 0:
        return torch.cat([filler, rows[:, :rows_left]], dim=1)
    return torch.cat([rows[:, size - rows_left :], filler], dim=1)
