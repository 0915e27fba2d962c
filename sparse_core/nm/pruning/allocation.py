"""Which n:m each layer gets, so that the model reaches a sparsity at the least total sensitivity."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import Select, choose_layers, weight_parameter
from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import NMPattern, Pattern
from sparse_core.nm.pruning.allocation import Allocation, LayerAllocation, cheapest
from sparse_core.nm.pruning.selection import PRUNABLE
from sparse_core.nm.pruning.sensitivity import SensitivityReport

CANDIDATES: tuple[NMPattern | None, ...] = (
    NMPattern(1, 4),
    NMPattern(2, 4),
    NMPattern(3, 4),
    NMPattern(1, 8),
    NMPattern(2, 8),
    None,
)
"""Patterns that :func:`allocate` chooses from; ``None`` is dense."""

ATTENTION = r"(?i)attention|attn|(^|[._])(qkv|[qkv]|query|key|value|out|o)_?proj"
"""Regular expression for the usual names of attention projections."""

OVERSHOOT = 0.03
"""Share of the weights that may be dropped beyond the target, where some choice is as close."""

Sensitivities = SensitivityReport | Mapping[str, Mapping[NMPattern, float]]
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
    """Choose a pattern for each layer: the least total sensitivity at ``target_sparsity`` or more.

    Solved as an integer program (one candidate a layer, at most so many kept weights altogether) by HiGHS
    through ``scipy.optimize.milp``; the total is proven to be within 1e-7 of the least. The sensitivities of
    layers are taken to add up.

    Two choices were measured on four small networks for scikit-learn's digits, pruned without training to 50,
    62.5 and 75 %. The default cost is relative to the layer because absolute squares follow the scale of a
    layer's weights, which says little: at 75 % a three-layer perceptron kept 81 % of its answers right and 52
    % by absolute squares (47 % with 1:4 everywhere), a Transformer 29 and 25 % (23 %). And without a bound on
    the overshoot a network of three large convolutions went to 57 % instead of 50 %, at 38 % accuracy where
    2:4 everywhere has 51 %.

    Args:
        model: any module; it is not changed.
        target_sparsity: share of zeros among the weights of the selected layers, 0 to below 1. A layer that
            no candidate divides stays dense and counts.
        candidates: patterns to choose from; ``None``, dense, is one only if listed.
        sensitivity: cost of a layer under a pattern: a report of :func:`layer_sensitivity`, or numbers by
            name and pattern. Without it, the squares of the weights that magnitude pruning drops as a share
            of the layer's squares. Dense costs nothing.
        conservative: layers that keep at least ``conservative_density``; :func:`attention_and_ends` names
            the usual ones.
        conservative_density: for these layers, 0 to 1.
        overshoot: how much sparser than the target the model may become, as a share of the weights. Where
            the layers are so few or large that no choice is that close, the closest ones are compared.
        select: which layers, see :data:`sparse_core.common.surgery.Select`; the others do not count.

    Returns:
        The choice; printing it gives a table.

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
    wanted = _checked(candidates)
    selection = choose_layers(model, PRUNABLE, select)
    careful = _careful(selection.layers, conservative)
    options = [
        _options(name, module, wanted, sensitivity, conservative_density if name in careful else 0.0)
        for name, module in selection.layers.items()
    ]
    chosen = cheapest(options, target_sparsity, overshoot)
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
    names = list(choose_layers(model, PRUNABLE, select).layers)
    outer = {*names[:ends], *names[len(names) - ends :]}
    return tuple(
        name for name in names if name in outer or (attention is not None and re.search(attention, name))
    )


def _checked(candidates: Sequence[NMPattern | None]) -> tuple[NMPattern | None, ...]:
    for candidate in candidates:
        if candidate is not None and not isinstance(candidate, NMPattern):
            raise TypeError(f"candidates must be NMPattern patterns or None for dense, got {candidate!r}")
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
    candidates: Sequence[NMPattern | None],
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


def _cost(name: str, weight: Tensor, pattern: NMPattern, sensitivity: Sensitivities | None) -> float:
    if sensitivity is None:
        mask = nm_mask(weight, pattern.n, pattern.m, conv_layout=pattern.conv_layout)
        squares = weight.to(torch.float64).square()
        total = float(squares.sum())
        cost = float(squares.masked_fill(mask, 0).sum()) / total if total else 0.0
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


def _text(pattern: Pattern | None) -> str:
    return "dense" if pattern is None else str(pattern)
