"""Merging state dicts in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sparse_core.merging.combining import Elect, Rule, Share, merge_tensor, slerp_tensor
from sparse_core.merging.methods import find_method
from sparse_core.merging.pieces import Delta
from sparse_core.merging.task_vector import State, TaskVector, check_same_tensors, state_of

__all__ = ["merge"]


@torch.no_grad()
def merge(
    base: State,
    vectors: Sequence[TaskVector | Mapping[str, Tensor]],
    method: str = "task_arithmetic",
    weight: float | Sequence[float] = 0.5,
    density: float | Sequence[float] = 1.0,
    seed: int = 0,
    *,
    scale: float = 1.0,
    normalize: bool | None = None,
    elect: Elect = "mass",
    gamma: float | Sequence[float] = 0.01,
    rescale: bool = True,
) -> dict[str, Tensor]:
    """Add task vectors to a base.

    The formulas and defaults are mergekit's: ``task_arithmetic`` adds the weighted vectors; ``ties`` trims
    each to its largest magnitudes, elects a sign for each position and takes the weighted mean of those that
    have it (so one weight for all changes nothing: ``scale`` does); ``dare`` (``dare_linear``) drops at
    random and rescales; ``dare_ties`` drops at random and elects; ``breadcrumbs`` and ``breadcrumbs_ties``
    drop the largest and smallest; ``linear`` is the weighted mean of the models; ``slerp`` goes from the
    base along the sphere towards its one vector's model, by ``weight``.

    Args:
        base: state dict or module; its whole-number tensors are copied.
        vectors: of :meth:`TaskVector.between`, or deltas by name.
        method: see above.
        weight: of all vectors, or one for each.
        density: share of each delta to keep, in (0, 1]; one for all or for each. For ``ties``, ``dare*`` and
            ``breadcrumbs*``.
        seed: of the random shares of ``dare*``.
        scale: factor of the merged delta (lambda).
        normalize: divide by the weights that took part; by default for ``ties`` and ``linear`` only.
        elect: the sign with the larger ``mass``, or the one of more vectors (``count``).
        gamma: share of the largest magnitudes that ``breadcrumbs*`` drop.
        rescale: for ``dare*``: divide what is kept by the probability to be kept.

    Returns:
        Merged tensors by name, in the base's types.

    Raises:
        ValueError: unknown method, no vectors, other tensors or shapes, numbers out of range, NaN or
            infinity.
    """
    chosen = find_method(method)
    before = state_of(base, "the base")
    deltas = [
        vector.deltas if isinstance(vector, TaskVector) else state_of(vector, "a vector")
        for vector in vectors
    ]
    if not deltas or (chosen.name == "slerp" and len(deltas) != 1):
        raise ValueError(
            f"{chosen.name} needs {'one vector' if chosen.name == 'slerp' else 'vectors'}, got {len(deltas)}"
        )
    _check_vectors(before, deltas)
    weights = _each(weight, len(deltas), "weight", None, None)
    densities = _each(density, len(deltas), "density", 0.0, 1.0)
    gammas = _each(gamma, len(deltas), "gamma", None, None)
    if 0.0 in densities:
        raise ValueError("density must be above 0 and at most 1, got 0")
    if not all(0 <= share < 1 for share in gammas):
        raise ValueError(f"gamma must be at least 0 and below 1, got {gammas}")
    if elect not in ("mass", "count"):
        raise ValueError(f"elect must be 'mass' or 'count', got {elect!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number from 0, got {seed!r}")
    rule = Rule(chosen, scale, normalize, elect, rescale, seed)
    merged = {}
    for name, value in before.items():
        if not value.is_floating_point():
            merged[name] = value.clone()
            continue
        labels = [f"vector {number}, tensor {name!r}," for number in range(len(deltas))]
        if chosen.name == "slerp":
            model = Delta(value + deltas[0][name].to(value.dtype), label=labels[0])
            merged[name] = slerp_tensor(value, model, weights[0], name=name)
            continue
        shares = [
            Share(Delta(delta[name], label=label), w, d, g, number)
            for number, (delta, label, w, d, g) in enumerate(
                zip(deltas, labels, weights, densities, gammas, strict=True)
            )
        ]
        merged[name] = merge_tensor(value, shares, rule, name=name)
    if chosen.name == "linear" and not rule.divides:
        # Without division the base counts as often as the models weigh, not once.
        extra = math.fsum(weights) * scale - 1
        for name, value in merged.items():
            if value.is_floating_point():
                value.add_(before[name], alpha=extra)
    return merged


def _check_vectors(base: Mapping[str, Tensor], deltas: Sequence[Mapping[str, Tensor]]) -> None:
    floating = {name: tuple(value.shape) for name, value in base.items() if value.is_floating_point()}
    for number, delta in enumerate(deltas):
        found = {name: tuple(value.shape) for name, value in delta.items() if value.is_floating_point()}
        check_same_tensors(floating, found, f"vector {number}", "the base")


def _each(
    value: float | Sequence[float], count: int, what: str, least: float | None, most: float | None
) -> list[float]:
    """One number for each vector."""
    listed = [float(value)] * count if isinstance(value, int | float) else [float(entry) for entry in value]
    if len(listed) != count:
        raise ValueError(f"{what}: {len(listed)} numbers for {count} vectors")
    for number in listed:
        if (
            not math.isfinite(number)
            or (least is not None and number < least)
            or (most is not None and number > most)
        ):
            raise ValueError(
                f"{what} must be {'finite' if least is None else f'from {least:g} to {most:g}'}, got {number}"
            )
    return listed
