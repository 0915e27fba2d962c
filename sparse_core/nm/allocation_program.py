"""The integer program of :func:`sparse_core.nm.pruning.allocation.allocate`, solved by HiGHS through scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from sparse_core.nm.pruning.allocation import LayerAllocation

RELATIVE_GAP = 1e-7
"""Proof that HiGHS is asked for; none at all takes it minutes for hundreds of layers and changes nothing."""

_INFEASIBLE = 2  # In the result of milp.


def cheapest(
    options: Sequence[Sequence[LayerAllocation]], target: float, overshoot: float
) -> list[LayerAllocation]:
    """The option of each layer with the least sum of sensitivities: a multiple-choice knapsack.

    Args:
        options: what each layer may become.
        target: sparsity that is reached at least.
        overshoot: share of the weights that may be dropped beyond it; where no choice is that close, the
            closest ones are compared.

    Raises:
        ValueError: the target cannot be reached.
    """
    total = sum(layer[0].weights for layer in options)
    least = sum(min(option.kept for option in layer) for layer in options)
    # A thousandth of a weight more, so that targets such as 0.7 are met by exactly seven tenths.
    budget = math.floor((1 - target) * total + 1e-3)
    if least > budget:
        raise ValueError(
            f"target_sparsity={target:g} cannot be reached: the candidates allow at most"
            f" {1 - least / total:.6f}"
        )
    program = _Program(options)
    cost = np.array([option.sensitivity for option in program.options])
    # The solver stops at an absolute gap of 1e-6.
    scaled = cost * (1e4 / cost.max()) if cost.max() > 0 else cost
    found = program.solved(scaled, math.ceil((1 - target - overshoot) * total - 1e-3), budget)
    if found is None:
        closest = program.solved(-program.kept, 0, budget)
        assert closest is not None  # The sparsest choice is within the budget.
        found = program.solved(scaled, sum(option.kept for option in closest), budget)
    assert found is not None
    return found


class _Program:
    """One option for each layer, with bounds for the weights that are kept altogether."""

    def __init__(self, options: Sequence[Sequence[LayerAllocation]]) -> None:
        self.options = [option for layer in options for option in layer]
        # In units of the greatest common divisor, so that numbers are small.
        self.unit = math.gcd(*(option.kept for option in self.options))
        self.kept = np.array([option.kept // self.unit for option in self.options], dtype=np.float64)
        layer_of = np.repeat(np.arange(len(options)), [len(layer) for layer in options])
        shape = (len(options), len(self.options))
        choices = csr_array((np.ones(shape[1]), (layer_of, np.arange(shape[1]))), shape=shape)
        self.one_each = LinearConstraint(choices, 1, 1)

    def solved(self, cost: NDArray[np.float64], least: int, most: int) -> list[LayerAllocation] | None:
        """The cheapest choice that keeps ``least`` to ``most`` weights; None where there is none."""
        # Half a unit further: counts are whole, so this allows nothing more, and the solver's tolerance
        # cannot decide.
        bounds = (-(-least // self.unit) - 0.5, most // self.unit + 0.5)
        found = milp(
            cost,
            integrality=np.ones(len(cost)),
            bounds=Bounds(0, 1),
            constraints=[self.one_each, LinearConstraint(csr_array(self.kept[None]), *bounds)],
            options={"mip_rel_gap": RELATIVE_GAP},
        )
        if found.status == _INFEASIBLE:
            return None
        if not found.success:
            raise RuntimeError(f"the integer program was not solved: {found.message}")
        return [option for option, taken in zip(self.options, found.x > 0.5, strict=True) if taken]
