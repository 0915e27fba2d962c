"""Choose n:m for each layer so that a model reaches a sparsity at the lowest total sensitivity."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from torch import Tensor, nn

from sparse_core.common.surgery import Select, choose_layers, weight_parameter
from sparse_core.common.table import Column, Report, Table, left_out
from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import NMPattern, Pattern
from sparse_core.nm.pruning.selection import PRUNABLE


@dataclass(frozen=True)
class LayerAllocation:
    """One layer under one pattern.

    Attributes:
        name: dotted name.
        shape: shape of the weight.
        pattern: n:m, or ``None`` for dense.
        kept: number of kept weights.
        value_bits: bits of one kept value, those of the layer's dtype.
        sensitivity: cost of the pattern.
    """

    name: str
    shape: tuple[int, ...]
    pattern: NMPattern | None
    kept: int
    value_bits: int
    sensitivity: float
    derived: ClassVar = ("weights", "density", "index_bits", "entropy_bits", "bits_a_weight")

    @property
    def weights(self) -> int:
        """Number of weights of the dense layer."""
        return math.prod(self.shape)

    @property
    def density(self) -> float:
        """Share of the weights that is kept."""
        return self.kept / self.weights

    @property
    def index_bits(self) -> int:
        """Whole bits per group for positions; 0 for dense."""
        return 0 if self.pattern is None else self.pattern.index_bits

    @property
    def entropy_bits(self) -> float:
        """Lower bound of the position bits per group; 0 for dense."""
        return 0.0 if self.pattern is None else self.pattern.entropy_bits

    @property
    def bits_a_weight(self) -> float:
        """Bits of values and positions per weight of the dense layer."""
        index = 0.0 if self.pattern is None else self.pattern.index_bits / self.pattern.m
        return self.density * self.value_bits + index


@dataclass(frozen=True)
class Allocation(Report):
    """A pattern for each layer.

    Attributes:
        layers: layers in the model's order.
        target: requested sparsity.
        skipped: reasons for the modules with weights that do not count.
    """

    layers: tuple[LayerAllocation, ...]
    target: float
    skipped: dict[str, str]
    derived: ClassVar = ("sparsity", "sensitivity", "bits_a_weight")

    @property
    def patterns(self) -> dict[str, NMPattern | None]:
        """Pattern of each layer by name; ``None`` is dense."""
        return {layer.name: layer.pattern for layer in self.layers}

    @property
    def weights(self) -> int:
        """Number of weights of all layers."""
        return sum(layer.weights for layer in self.layers)

    @property
    def sparsity(self) -> float:
        """Share of the layers' weights that is dropped."""
        return 1 - sum(layer.kept for layer in self.layers) / self.weights

    @property
    def sensitivity(self) -> float:
        """Sum of the layers' sensitivities."""
        return sum(layer.sensitivity for layer in self.layers)

    @property
    def bits_a_weight(self) -> float:
        """Mean bits per weight."""
        return sum(layer.bits_a_weight * layer.weights for layer in self.layers) / self.weights

    def tables(self) -> list[Table | str]:
        """Return one row per layer, the total, the sparsity, and the skipped modules."""
        columns: dict[str, Column] = {
            "layer": "name",
            "shape": "shape",
            "weights": "weights",
            "pattern": lambda layer: layer.pattern or "dense",
            "density": "density:.3f",
            "index bits per group": "index_bits",
            "entropy bound": "entropy_bits:.3f",
            "bits per weight": "bits_a_weight:.3f",
            "sensitivity": "sensitivity:.4g",
        }
        total = {
            "layer": "total",
            "weights": self.weights,
            "density": 1 - self.sparsity,
            "bits per weight": self.bits_a_weight,
            "sensitivity": self.sensitivity,
        }
        sparsity = f"sparsity {self.sparsity:.4f}, asked for {self.target:.4f}"
        return [Table.of(self.layers, columns, totals=[total]), sparsity, left_out(self.skipped)]


RELATIVE_GAP = 1e-7
"""Gap at which HiGHS may stop; an exact proof takes minutes for hundreds of layers and changes nothing."""

# Statuses of milp.
_SOLVED, _INFEASIBLE = 0, 2


def cheapest(
    options: Sequence[Sequence[LayerAllocation]], target: float, overshoot: float
) -> list[LayerAllocation]:
    """Return the option of each layer with the lowest total sensitivity: a multiple-choice knapsack.

    The result drops at least ``target`` of the weights and at most ``overshoot`` more. If no choice is that
    close, the closest ones are compared.
    """
    total = sum(layer[0].weights for layer in options)
    least = sum(min(option.kept for option in layer) for layer in options)
    # A thousandth of a weight of tolerance, so that exactly seven tenths meet a target of 0.7.
    budget = math.floor((1 - target) * total + 1e-3)
    if least > budget:
        raise ValueError(
            f"target_sparsity={target:g} cannot be reached: the candidates allow at most"
            f" {1 - least / total:.6f}"
        )
    program = _Program(options)
    cost = np.array([option.sensitivity for option in program.options])
    # The solver stops at an absolute gap of 1e-6.
    scaled = 1e4 * (cost / cost.max()) if cost.max() > 0 else cost
    found = program.solved(scaled, math.ceil((1 - target - overshoot) * total - 1e-3), budget)
    if found is None:
        closest = program.solved(-program.kept, 0, budget)
        assert closest is not None  # The sparsest choice is always within the budget.
        found = program.solved(scaled, sum(option.kept for option in closest), budget)
    assert found is not None
    return found


class _Program:
    """Integer program: one option per layer, with bounds for the total number of kept weights."""

    def __init__(self, options: Sequence[Sequence[LayerAllocation]]) -> None:
        self.options = [option for layer in options for option in layer]
        # In units of the greatest common divisor, to keep numbers small.
        self.unit = math.gcd(*(option.kept for option in self.options))
        self.kept = np.array([option.kept // self.unit for option in self.options], dtype=np.float64)
        layer_of = np.repeat(np.arange(len(options)), [len(layer) for layer in options])
        shape = (len(options), len(self.options))
        choices = csr_array((np.ones(shape[1]), (layer_of, np.arange(shape[1]))), shape=shape)
        self.one_each = LinearConstraint(choices, 1, 1)

    def solved(self, cost: NDArray[np.float64], least: int, most: int) -> list[LayerAllocation] | None:
        """Return the cheapest choice that keeps ``least`` to ``most`` weights; None if there is none."""
        # Counts are integers, so bounds half a unit wider allow nothing more and absorb the solver's
        # tolerance.
        bounds = (-(-least // self.unit) - 0.5, most // self.unit + 0.5)
        # The presolve of HiGHS fails on some infeasible programs; with scipy 1.15 it "solves" them wrongly.
        for presolve in (True, False):
            found = milp(
                cost,
                integrality=np.ones(len(cost)),
                bounds=Bounds(0, 1),
                constraints=[self.one_each, LinearConstraint(csr_array(self.kept[None]), *bounds)],
                options={"mip_rel_gap": RELATIVE_GAP, "presolve": presolve},
            )
            taken = found.x > 0.5 if found.status == _SOLVED else None
            if found.status == _INFEASIBLE or (taken is not None and self._is_choice(taken, bounds)):
                break
        if found.status == _INFEASIBLE:
            return None
        if taken is None or not self._is_choice(taken, bounds):
            raise RuntimeError(f"the integer program was not solved: {found.message}")
        return [option for option, chosen in zip(self.options, taken, strict=True) if chosen]

    def _is_choice(self, taken: NDArray[np.bool_], bounds: tuple[float, float]) -> bool:
        """Return True if the options are one per layer, and keep as much as the bounds allow."""
        kept = float(self.kept @ taken)
        return bool((self.one_each.A @ taken == 1).all()) and bounds[0] <= kept <= bounds[1]


CANDIDATES: tuple[NMPattern | None, ...] = (
    NMPattern(1, 4),
    NMPattern(2, 4),
    NMPattern(3, 4),
    NMPattern(1, 8),
    NMPattern(2, 8),
    None,
)
"""Patterns that :func:`allocate` chooses from; ``None`` is dense."""

OVERSHOOT = 0.03
"""Share of the weights that may be dropped beyond the target, if some choice is that close."""

Sensitivities = Mapping[str, Mapping[NMPattern, float]]
Conservative = str | Callable[[str, nn.Module], bool] | Collection[str]
"""A regular expression, a function of name and module, or layer names."""


def allocate(
    model: nn.Module,
    target_sparsity: float,
    *,
    candidates: Sequence[NMPattern | None] = CANDIDATES,
    sensitivity: Sensitivities | None = None,
    conservative: Conservative | None = None,
    conservative_density: float = 0.75,
    overshoot: float = OVERSHOOT,
    select: Select = None,
) -> Allocation:
    """Choose a pattern for each layer: the lowest total sensitivity at ``target_sparsity`` or more.

    HiGHS solves it as an integer program through ``scipy.optimize.milp``: one candidate per layer, and a
    bound on the total number of kept weights. The total is within 1e-7 of the optimum. Sensitivities of
    layers are assumed to add up. Decision 7 explains this cost and the bound.

    Args:
        model: any module; it does not change.
        target_sparsity: share of zeros among the weights of the selected layers, 0 to below 1. A layer that
            no candidate divides stays dense and counts.
        candidates: patterns to choose from; ``None``, dense, only if listed.
        sensitivity: cost of a layer under a pattern, by name and pattern. By default, the squares of the
            weights that magnitude pruning drops, as a share of the layer's squares. Dense costs nothing.
        conservative: layers that keep at least ``conservative_density``: names, a regular expression or
            a function, usually attention projections, the first layer and the last.
        conservative_density: minimum density of these layers, 0 to 1.
        overshoot: largest excess over the target, as a share of the weights. If layers are so few or large
            that no choice is that close, the closest ones are compared.
        select: layers to prune, see :data:`sparse_core.common.surgery.Select`; others do not count.

    Returns:
        The allocation; printing it gives a table.

    Raises:
        TypeError: a candidate that is not n:m.
        ValueError: the target or ``overshoot`` is out of range, the target cannot be reached (the message
            gives the largest that can), a layer has no candidate, a sensitivity is missing, negative or NaN,
            or nothing matches.
    """
    if not 0 <= target_sparsity < 1:
        raise ValueError(f"target_sparsity must be at least 0 and below 1, got {target_sparsity}")
    if not overshoot >= 0:
        raise ValueError(f"overshoot must be 0 or more, got {overshoot}")
    wanted = _check_candidates(candidates)
    selection = choose_layers(model, PRUNABLE, select)
    careful = _conservative_names(selection.layers, conservative)
    options = [
        _options(name, module, wanted, sensitivity, conservative_density if name in careful else 0.0)
        for name, module in selection.layers.items()
    ]
    chosen = cheapest(options, target_sparsity, overshoot)
    return Allocation(tuple(chosen), target_sparsity, dict(selection.skipped))


def _check_candidates(candidates: Sequence[NMPattern | None]) -> tuple[NMPattern | None, ...]:
    for candidate in candidates:
        if candidate is not None and not isinstance(candidate, NMPattern):
            raise TypeError(f"candidates must be NMPattern patterns or None for dense, got {candidate!r}")
    if not candidates:
        raise ValueError("candidates is empty")
    return tuple(dict.fromkeys(candidates))


def _conservative_names(layers: Mapping[str, nn.Module], conservative: Conservative | None) -> set[str]:
    """Return the names of the layers with a minimum density."""
    if conservative is None:
        return set()
    if isinstance(conservative, str):
        return {name for name in layers if re.search(conservative, name)}
    if callable(conservative):
        return {name for name, module in layers.items() if conservative(name, module)}
    unknown = [name for name in conservative if name not in layers]
    if unknown:
        raise ValueError(f"conservative names layers that are not selected: {', '.join(unknown)}")
    return set(conservative)


def _options(
    name: str,
    module: nn.Module,
    candidates: Sequence[NMPattern | None],
    sensitivity: Sensitivities | None,
    least_density: float,
) -> list[LayerAllocation]:
    """Return the valid options of a layer."""
    weight = weight_parameter(module).detach()
    columns = weight[0].numel()
    fitting = [candidate for candidate in candidates if candidate is None or columns % candidate.m == 0]
    if not any(fitting):
        fitting = [None]
    allowed = [candidate for candidate in fitting if (candidate.density if candidate else 1) >= least_density]
    if not allowed:
        raise ValueError(
            f"layer {name!r} has no candidate of density {least_density:g} or more among"
            f" {', '.join(map(_text, fitting))}: add a denser one or None"
        )
    return [
        LayerAllocation(
            name=name,
            shape=tuple(weight.shape),
            pattern=candidate,
            kept=weight.numel() if candidate is None else weight.numel() // candidate.m * candidate.n,
            value_bits=8 * weight.element_size(),
            sensitivity=0.0 if candidate is None else _cost(name, weight, candidate, sensitivity),
        )
        for candidate in allowed
    ]


def _cost(name: str, weight: Tensor, pattern: NMPattern, sensitivity: Sensitivities | None) -> float:
    if sensitivity is None:
        mask = nm_mask(weight, pattern.n, pattern.m, conv_layout=pattern.conv_layout)
        squares = weight.to(torch.float64).square()
        total = float(squares.sum())
        cost = float(squares.masked_fill(mask, 0).sum()) / total if total else 0.0
    elif name in sensitivity and pattern in sensitivity[name]:
        cost = float(sensitivity[name][pattern])
    else:
        raise ValueError(f"sensitivity has no number for layer {name!r} under {pattern}")
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(
            f"the sensitivity of layer {name!r} under {pattern} must be finite and 0 or more, got {cost}"
        )
    return cost


def _text(pattern: Pattern | None) -> str:
    return "dense" if pattern is None else str(pattern)
