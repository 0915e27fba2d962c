"""Fallback of a recurrence that overflowed: the best finite iterate instead of NaN or infinity."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.linalg.krylov.problem import safe_norms
from sparse_core.linalg.krylov.recurrence import Recurrence


class FiniteIterate(NamedTuple):
    """Replaced columns, () or (N,) bool, and ``‖b - A x‖`` of all columns, float64."""

    columns: Tensor
    norms: Tensor


def finite_iterate(recurrence: Recurrence, norms: Tensor, start: Tensor | None) -> FiniteIterate | None:
    """Replace non-finite iterates by those with the smallest residual; None if all are finite.

    Keeping the best iterate would cost every solve a pass over ``x``. Steps are bitwise reproducible, so a
    failed solve is repeated step by step instead.

    Args:
        recurrence: after the solve; its state is overwritten.
        norms: () or (N,) float64, ``‖b - A x‖`` of its ``x``.
        start: ``x`` before the first step; None is zero.
    """
    problem, x = recurrence.problem, recurrence.x
    finite = torch.isfinite(x).all(dim=0)
    overflowed = ~finite | (~torch.isfinite(norms) & (recurrence.progress.count > 0))
    if not overflowed.any():
        return None
    last = x.clone()
    x.copy_(torch.zeros_like(x) if start is None else start)
    best = torch.where(torch.isfinite(x).all(dim=0), x, torch.zeros_like(x))
    smallest = safe_norms(problem.residual(best)).double()
    recurrence.progress.reset()
    recurrence.begin(torch.ones_like(overflowed), problem.residual(x))
    while (recurrence.progress.running & overflowed).any():
        recurrence.step(0)
        fresh = safe_norms(problem.residual(x)).double()
        # NaN compares false. Empty matrix columns hide non-finite x from the norm, so check x too.
        better = (fresh < smallest) & torch.isfinite(x).all(dim=0)
        smallest = torch.where(better, fresh, smallest)
        torch.where(better, x, best, out=best)
    torch.where(overflowed, best, last, out=x)
    return FiniteIterate(overflowed, torch.where(overflowed, smallest, norms))
