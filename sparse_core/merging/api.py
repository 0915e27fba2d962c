"""Merge state dicts in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparse_core.merging.arithmetic.pieces import Delta, compute_dtype
from sparse_core.merging.arithmetic.sums import Share, merge_tensor
from sparse_core.merging.arithmetic.tensor import merge_one
from sparse_core.merging.methods import METHODS, Method, find_method
from sparse_core.merging.rules import Elect, Rescale, Rule, read_options, read_rescale
from sparse_core.merging.task_vector import State, TaskVector, check_same_tensors, state_of

#: Fewer numbers than this may resemble the base by chance.
_LEAST_MODEL = 64


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
    epsilon: float | Sequence[float] = 0.15,
    rescale: bool | Rescale | None = None,
    **options: float | bool,
) -> dict[str, Tensor]:
    """Add task vectors to a base model.

    Formulas and defaults are mergekit's:

    - ``task_arithmetic`` adds the weighted vectors.
    - ``ties`` trims each vector to its largest magnitudes, elects a sign per position and takes the weighted
      mean of the values with that sign. One common weight changes nothing; use ``scale``.
    - ``dare`` (``dare_linear``) drops at random and rescales; ``dare_ties`` also elects.
    - ``breadcrumbs`` and ``breadcrumbs_ties`` drop the largest and smallest magnitudes.
    - ``della_linear`` and ``della`` drop at random, small magnitudes more often; ``della`` elects.
    - ``linear`` is the weighted mean of the models, ``karcher`` their mean on the sphere.
    - ``slerp`` interpolates on the sphere from the base to one model, by ``weight``. ``nuslerp`` interpolates
      between two vectors, by the share of the second weight.
    - ``model_stock`` moves from the base towards the mean by the angles between the vectors.
    - ``sce`` weighs vectors by their change; ``passthrough`` scales one model by its ``weight``.

    Args:
        base: state dict or module; its integer tensors are copied.
        vectors: from :meth:`TaskVector.between`, or deltas by name; not the tuned models themselves.
        method: see above.
        weight: one for all vectors, or one for each.
        density: share of each delta to keep, in (0, 1]; one for all or for each. Only for ``ties``,
            ``dare*``, ``breadcrumbs*`` and ``della*``.
        seed: seed of the random shares of ``dare*`` and ``della*``.
        scale: factor of the merged delta (lambda).
        normalize: divide by the weights that took part; by default for ``ties``, ``della`` and ``linear``.
        elect: elect the sign with the larger ``mass``, or the sign of more vectors (``count``).
        gamma: share of the largest magnitudes that ``breadcrumbs*`` drop.
        epsilon: largest distance of ``della*``'s keep probabilities from ``density``.
        rescale: ``"probability"`` divides kept values by their keep probability, as in the DARE paper;
            ``"l1"`` restores the sum of magnitudes of the whole delta, as mergekit does. True is the former
            for ``dare*`` and the latter for others; by default true for ``dare*`` and ``della*``.
        options: settings of one method, by mergekit's names: ``select_topk`` (1.0) of ``sce``,
            ``filter_wise`` (False) of ``model_stock``, ``nuslerp_flatten`` (True) and ``nuslerp_row_wise``
            (False), ``max_iter`` (10) and ``tol`` (1e-5) of ``karcher``.

    Returns:
        Merged tensors by name, in the base's types.

    Raises:
        TypeError: a vector is a module, or ``vectors`` is a single one instead of a list.
        ValueError: unknown method, no vectors, other tensors or shapes, numbers out of range, a density,
            gamma or epsilon for a method without one, NaN or infinity, or a mapping that is closer to the
            base than to zero: it holds a model, not deltas.
    """
    chosen = find_method(method)
    before = state_of(base, "the base")
    if isinstance(vectors, TaskVector | Mapping | nn.Module):
        raise TypeError(f"vectors must be a list, got one {type(vectors).__name__}: pass [vector]")
    deltas = [_deltas_of(vector, number) for number, vector in enumerate(vectors)]
    _check_count(chosen, len(deltas))
    _check_vectors(before, deltas)
    for number, vector in enumerate(vectors):
        if not isinstance(vector, TaskVector):
            _check_no_model(before, deltas[number], number)
    _check_parameters(chosen, density=(density, 1.0), gamma=(gamma, 0.01), epsilon=(epsilon, 0.15))
    settings = _vector_settings(len(deltas), weight, density, gamma, epsilon)
    if elect not in ("mass", "count"):
        raise ValueError(f"elect must be 'mass' or 'count', got {elect!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed must be a whole number from 0, got {seed!r}")
    random = chosen.sparsifier in ("random", "ranked")
    on: Rescale = "probability" if chosen.sparsifier == "random" else "l1"
    rescaled = read_rescale(chosen, rescale, "rescale", on=on, default=random)
    rule = Rule(chosen, scale, normalize, elect, rescaled, seed, read_options(chosen, options, ""))
    merged = {
        name: _merge_tensor(name, value, [delta[name] for delta in deltas], settings, rule)
        if value.is_floating_point()
        else value.clone()
        for name, value in before.items()
    }
    if chosen.name == "linear" and not rule.divides:
        # Without division the base counts with the sum of the weights, not once.
        extra = math.fsum(setting.weight for setting in settings) * scale - 1
        for name, value in merged.items():
            if value.is_floating_point():
                value.add_(before[name], alpha=extra)
    return merged


def _deltas_of(vector: TaskVector | Mapping[str, Tensor], number: int) -> Mapping[str, Tensor]:
    if isinstance(vector, TaskVector):
        return vector.deltas
    if isinstance(vector, nn.Module):
        raise TypeError(f"vector {number} is a model: pass TaskVector.between(base, model)")
    return state_of(vector, f"vector {number}")


def _check_no_model(base: Mapping[str, Tensor], delta: Mapping[str, Tensor], number: int) -> None:
    """Raise ``ValueError`` if a mapping is much closer to the base than to zero, as tuned models are."""
    floating = [name for name, value in base.items() if value.is_floating_point()]
    if sum(base[name].numel() for name in floating) < _LEAST_MODEL:
        return
    distance = size = 0.0
    for name in floating:
        dtype = compute_dtype(base[name], delta[name])
        added = delta[name].to(dtype)
        size += float(added.square().sum(dtype=torch.float64))
        distance += float((added - base[name].to(dtype)).square().sum(dtype=torch.float64))
    if distance < 0.25 * size:
        raise ValueError(
            f"vector {number} looks like a tuned model, not like its difference from the base:"
            " pass TaskVector.between(base, model), or TaskVector(deltas) if these are deltas"
        )


class _VectorSettings(NamedTuple):
    """Settings of one vector."""

    weight: float
    density: float
    gamma: float
    epsilon: float


def _vector_settings(
    count: int,
    weight: float | Sequence[float],
    density: float | Sequence[float],
    gamma: float | Sequence[float],
    epsilon: float | Sequence[float],
) -> list[_VectorSettings]:
    weights = _each(weight, count, "weight", None, None)
    densities = _each(density, count, "density", 0.0, 1.0)
    gammas = _each(gamma, count, "gamma", None, None)
    epsilons = _each(epsilon, count, "epsilon", 0.0, 0.5)
    if 0.0 in densities:
        raise ValueError("density must be above 0 and at most 1, got 0")
    if not all(0 <= share < 1 for share in gammas):
        raise ValueError(f"gamma must be at least 0 and below 1, got {gammas}")
    return list(map(_VectorSettings, weights, densities, gammas, epsilons))


def _merge_tensor(
    name: str, value: Tensor, deltas: Sequence[Tensor], settings: Sequence[_VectorSettings], rule: Rule
) -> Tensor:
    """Merge the deltas of one tensor of the base."""
    method = rule.method
    linear = method.name == "linear"
    shares = []
    for number, (delta, setting) in enumerate(zip(deltas, settings, strict=True)):
        # A linear merge of models equals one of deltas, but for the sum of the weights.
        added = value + delta.to(value.dtype) if method.takes_models and not linear else delta
        shares.append(Share(Delta(added, label=f"vector {number}, tensor {name!r},"), *setting, number))
    if linear:
        return merge_tensor(value, shares, rule, name=name)
    out = torch.empty_like(value, memory_format=torch.contiguous_format)
    return merge_one(value if method.base != "unused" else None, shares, rule, name=name, out=out)


def _check_count(method: Method, count: int) -> None:
    if count < method.least or (method.most is not None and count > method.most):
        wanted = {(1, 1): "one vector", (1, None): "vectors", (2, 2): "two vectors"}
        needs = wanted.get((method.least, method.most), f"{method.least} vectors or more")
        raise ValueError(f"{method.name} needs {needs}, got {count}")


def _check_parameters(method: Method, **given: tuple[float | Sequence[float], float]) -> None:
    """Raise ``ValueError`` if a parameter (value, default) has no meaning for the method."""
    for name, (value, default) in given.items():
        if name in method.parameters or value == default:
            continue
        having = ", ".join(other.name for other in METHODS.values() if name in other.parameters)
        raise ValueError(f"{method.name} has no {name}: leave it out, or use a method that has one: {having}")


def _check_vectors(base: Mapping[str, Tensor], deltas: Sequence[Mapping[str, Tensor]]) -> None:
    floating = {name: tuple(value.shape) for name, value in base.items() if value.is_floating_point()}
    for number, delta in enumerate(deltas):
        found = {name: tuple(value.shape) for name, value in delta.items() if value.is_floating_point()}
        check_same_tensors(floating, found, f"vector {number}", "the base")


def _each(
    value: float | Sequence[float], count: int, what: str, least: float | None, most: float | None
) -> list[float]:
    """Return one number per vector."""
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
