"""What is handed back where a recurrence overflowed: the best finite iterate instead of NaN or infinity."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.linalg.krylov.problem import safe_norms
from sparse_core.linalg.krylov.recurrence import Recurrence


class FiniteIterate(NamedTuple):
    """Which columns were replaced, () or (N,) bool, and ``‖b - A x‖`` of all columns, float64."""

    columns: Tensor
    norms: Tensor


def finite_iterate(recurrence: Recurrence, norms: Tensor, start: Tensor | None) -> FiniteIterate | None:
    """Put the iterate with the smallest residual where the last one is not finite; None if it is finite.

    An iterate is not kept while a solve runs, which would cost every solve a pass over ``x``. Steps repeat
    to the bit, so those of a solve that failed are taken once more, one by one.

    Args:
        recurrence: as the solve left it; its state is used up.
        norms: () or (N,) float64, ``‖b - A x‖`` of its ``x``.
        start: what ``x`` was before the first step; None is zero.
    """
    problem, x = recurrence.problem, recurrence.x
    finite = torch.isfinite(x).all(dim=0)
    lost = ~finite | (~torch.isfinite(norms) & (recurrence.progress.count > 0))
    if not lost.any():
        return None
    last = x.clone()
    x.copy_(torch.zeros_like(x) if start is None else start)
    best = torch.where(torch.isfinite(x).all(dim=0), x, torch.zeros_like(x))
    smallest = safe_norms(problem.residual(best)).double()
    recurrence.progress.reset()
    recurrence.begin(torch.ones_like(lost), problem.residual(x))
    while (recurrence.progress.running & lost).any():
        recurrence.step(0)
        fresh = safe_norms(problem.residual(x)).double()
        # A NaN compares false; the columns of a matrix may be empty, so the norm says nothing about x.
        better = (fresh < smallest) & torch.isfinite(x).all(dim=0)
        smallest = torch.where(better, fresh, smallest)
        torch.where(better, x, best, out=best)
    torch.where(lost, best, last, out=x)
    return FiniteIterate(lost, torch.where(lost, smallest, norms))
