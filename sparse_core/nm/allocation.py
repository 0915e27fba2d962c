"""Which n:m each layer gets, so that the model reaches a sparsity at the least total sensitivity."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from torch import Tensor, nn

from sparse_core.nm.allocation_report import Allocation, LayerAllocation
from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import NM, Pattern
from sparse_core.nm.selection import Select, selected_layers, weight_parameter
from sparse_core.nm.sensitivity_report import SensitivityReport

CANDIDATES: tuple[NM | None, ...] = (NM(1, 4), NM(2, 4), NM(3, 4), NM(1, 8), NM(2, 8), None)
"""Patterns that :func:`allocate` chooses from; ``None`` is dense."""

ATTENTION = r"(?i)attention|attn|(^|[._])(qkv|[qkv]|query|key|value|out|o)_?proj"
"""Regular expression for the usual names of attention projections."""

RELATIVE_GAP = 1e-7
"""Proof that HiGHS is asked for; none at all takes it minutes for hundreds of layers and changes nothing."""

Sensitivities = SensitivityReport | Mapping[str, Mapping[NM, float]]
Conservative = str | Callable[[str, nn.Module], bool] | Collection[str]
"""A regular expression, a function of name and module, or layer names."""


def allocate(
    model: nn.Module,
    target_sparsity: float,
    *,
    candidates: Sequence[NM | None] = CANDIDATES,
    sensitivity: Sensitivities | None = None,
    conservative: Conservative | None = None,
    conservative_density: float = 0.75,
    select: Select = None,
) -> Allocation:
    """Choose a pattern for each layer: the least total sensitivity at ``target_sparsity`` or more.

    Solved as an integer program (one candidate a layer, at most so many kept weights altogether) by HiGHS
    through ``scipy.optimize.milp``; the total is proven to be within 1e-7 of the least. The sensitivities of
    layers are taken to add up.

    Args:
        model: any module; it is not changed.
        target_sparsity: share of zeros among the weights of the selected layers, 0 to below 1. A layer that
            no candidate divides stays dense and counts.
        candidates: patterns to choose from; ``None``, dense, is one only if listed.
        sensitivity: cost of a layer under a pattern: a report of :func:`layer_sensitivity`, or numbers by
            name and pattern. Without it, the sum of squares of the weights that magnitude pruning drops.
            Dense costs nothing.
        conservative: layers that keep at least ``conservative_density``; :func:`attention_and_ends` names
            the usual ones.
        conservative_density: for these layers, 0 to 1.
        select: which layers, see :data:`sparse_core.nm.selection.Select`; the others do not count.

    Returns:
        The choice; printing it gives a table.

    Raises:
        TypeError: a candidate that is not n:m.
        ValueError: the target is out of range or cannot be reached (the message gives the largest that can),
            a layer has no candidate, a sensitivity is missing, negative or NaN, or nothing matches.
    """
    if not 0 <= target_sparsity < 1:
        raise ValueError(f"target_sparsity must be at least 0 and below 1, got {target_sparsity}")
    wanted = _checked(candidates)
    # Every width can be cut into groups of one, so this only filters by type and name.
    selection = selected_layers(model, NM(1, 1), select)
    careful = _careful(selection.layers, conservative)
    options = [
        _options(name, module, wanted, sensitivity, conservative_density if name in careful else 0.0)
        for name, module in selection.layers.items()
    ]
    chosen = _cheapest(options, target_sparsity)
    return Allocation(tuple(chosen), target_sparsity, dict(selection.skipped))


def attention_and_ends(
    model: nn.Module, *, select: Select = None, attention: str | None = ATTENTION, ends: int = 1
) -> tuple[str, ...]:
    """Layers that pruning usually hurts most: attention projections, and the first and last layers.

    Args:
        model: any module.
        select: which layers, as for :func:`allocate`.
        attention: regular expression for names of attention layers; ``None`` for none.
        ends: layers at each end, in the order in which the model defines them.

    Returns:
        Names in the model's order, for ``allocate(conservative=…)``.

    Raises:
        ValueError: ``ends`` is negative or nothing matches ``select``.
    """
    if ends < 0:
        raise ValueError(f"ends must be 0 or more, got {ends}")
    names = list(selected_layers(model, NM(1, 1), select).layers)
    outer = {*names[:ends], *names[len(names) - ends :]}
    return tuple(
        name for name in names if name in outer or (attention is not None and re.search(attention, name))
    )


def _checked(candidates: Sequence[NM | None]) -> tuple[NM | None, ...]:
    for candidate in candidates:
        if candidate is not None and not isinstance(candidate, NM):
            raise TypeError(f"candidates must be NM patterns or None for dense, got {candidate!r}")
    if not candidates:
        raise ValueError("candidates is empty")
    return tuple(dict.fromkeys(candidates))


def _careful(layers: Mapping[str, nn.Module], conservative: Conservative | None) -> set[str]:
    """Names of the layers with a minimum density."""
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
    candidates: Sequence[NM | None],
    sensitivity: Sensitivities | None,
    least_density: float,
) -> list[LayerAllocation]:
    """What this layer may become."""
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


def _cost(name: str, weight: Tensor, pattern: NM, sensitivity: Sensitivities | None) -> float:
    if sensitivity is None:
        mask = nm_mask(weight, pattern.n, pattern.m, conv_layout=pattern.conv_layout)
        cost = float(weight.masked_fill(mask, 0).to(torch.float64).square().sum())
    elif isinstance(sensitivity, SensitivityReport):
        cost = sensitivity.of(name, pattern).sensitivity
    elif name in sensitivity and pattern in sensitivity[name]:
        cost = float(sensitivity[name][pattern])
    else:
        raise ValueError(f"sensitivity has no number for layer {name!r} under {pattern}")
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(
            f"the sensitivity of layer {name!r} under {pattern} must be finite and 0 or more, got {cost}"
        )
    return cost


def _cheapest(options: Sequence[Sequence[LayerAllocation]], target: float) -> list[LayerAllocation]:
    """The option of each layer: an exact multiple-choice knapsack."""
    total = sum(layer[0].weights for layer in options)
    least = sum(min(option.kept for option in layer) for layer in options)
    # A thousandth of a weight more, so that targets such as 0.7 are met by exactly seven tenths.
    budget = math.floor((1 - target) * total + 1e-3)
    if least > budget:
        raise ValueError(
            f"target_sparsity={target:g} cannot be reached: the candidates allow at most"
            f" {1 - least / total:.6f}"
        )
    flat = [option for layer in options for option in layer]
    layer_of = np.repeat(np.arange(len(options)), [len(layer) for layer in options])
    one_each = csr_array(
        (np.ones(len(flat)), (layer_of, np.arange(len(flat)))), shape=(len(options), len(flat))
    )
    # In units of the greatest common divisor, and half a unit above the budget: counts are whole, so this
    # allows nothing more, and the solver's tolerance cannot decide.
    unit = math.gcd(*(option.kept for option in flat))
    kept = np.array([[option.kept // unit for option in flat]], dtype=np.float64)
    cost = np.array([option.sensitivity for option in flat])
    # The solver stops at an absolute gap of 1e-6.
    scaled = cost * (1e4 / cost.max()) if cost.max() > 0 else cost
    solved = milp(
        scaled,
        integrality=np.ones(len(flat)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(csr_array(kept), -np.inf, budget // unit + 0.5),
        ],
        options={"mip_rel_gap": RELATIVE_GAP},
    )
    if not solved.success:
        raise RuntimeError(f"the integer program was not solved: {solved.message}")
    return [option for option, taken in zip(flat, solved.x > 0.5, strict=True) if taken]


def _text(pattern: Pattern | None) -> str:
    return "dense" if pattern is None else str(pattern)
