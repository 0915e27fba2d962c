"""Level-scheduled solve in plain torch: the oracle, on any device.

Each level gathers the solved unknowns of its equations and sums them in a fixed order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.linalg.structure import segment_sum
from sparse_core.linalg.triangular.common import TriangularPlan, TriangularValues


def solve(plan: TriangularPlan, values: TriangularValues, b: Tensor) -> Tensor:
    """Return the solution (M, N) of the planned system for ``b`` (M, N), in the dtype of the values."""
    x = torch.empty_like(b)
    for level, first in enumerate(plan.levels.bounds[:-1]):
        last = plan.levels.bounds[level + 1]
        rows = plan.levels.order[first:last]
        known = b[rows]
        begin, end = plan.entry_bounds[level], plan.entry_bounds[level + 1]
        if end > begin:
            terms = values.entry[begin:end, None] * x[plan.column[begin:end]]
            known = known - segment_sum(terms, plan.entry_ptr[first : last + 1] - begin)
        if values.inverse_diagonal is not None:
            known = known * values.inverse_diagonal[rows, None]
        x[rows] = known
    return x
