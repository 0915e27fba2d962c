"""Prune one weight: choose the mask by a score, then change or scale the kept weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import NMPattern, Pattern
from sparse_core.nm.pruning.calibration import InputStatistics
from sparse_core.nm.pruning.scores import wanda
from sparse_core.nm.pruning.sparsegpt import SparseGPTResult, sparsegpt

Method = Literal["magnitude", "wanda", "sparsegpt"]


@dataclass(frozen=True)
class PruneOptions:
    """Options for pruning one weight: ``score`` is a method, or scores of the weight's shape."""

    score: Method | Tensor = "magnitude"
    statistics: InputStatistics | None = None
    compensate: bool = False
    damping: float = 0.01


@dataclass(frozen=True)
class PrunedWeight:
    """A pruned weight, zero where ``mask`` is false; ``damping_used`` is SparseGPT's."""

    weight: Tensor
    mask: Tensor
    damping_used: float | None = None
    note: str = ""


def prune_weight(
    weight: Tensor, pattern: Pattern, options: PruneOptions, *, name: str = "weight"
) -> PrunedWeight:
    """Return a weight pruned to a pattern; ``name`` names the layer in errors and warnings."""
    source = weight.detach()
    if options.compensate and not bool(source.isfinite().all()):
        raise ValueError(f"{name} has NaN or infinite values: compensation needs finite values")
    if isinstance(options.score, str) and options.score == "sparsegpt":
        pruned = _by_sparsegpt(source, pattern, options, name)
    else:
        mask = _mask(source, pattern, options, name)
        pruned = PrunedWeight(source.masked_fill(~mask, 0), mask)
    return _compensate(source, pruned, options) if options.compensate else pruned


def _mask(weight: Tensor, pattern: Pattern, options: PruneOptions, name: str) -> Tensor:
    score: Tensor | Literal["magnitude"]
    if isinstance(options.score, Tensor):
        score = options.score
    elif options.score == "wanda":
        score = wanda(weight, _statistics(options, name).norm, name=name)
    else:
        score = "magnitude"
    try:
        return pattern_mask(weight, pattern, score)
    except ValueError as error:
        raise ValueError(f"layer {name!r}: {error}") from error


def _by_sparsegpt(weight: Tensor, pattern: Pattern, options: PruneOptions, name: str) -> PrunedWeight:
    if not isinstance(pattern, NMPattern):
        raise TypeError(f"SparseGPT prunes to n:m patterns, got {pattern} for layer {name!r}")
    hessian = _statistics(options, name).hessian
    if hessian is None:
        raise ValueError(f"SparseGPT needs the Hessian of layer {name!r}: collect_inputs(…, hessian=True)")
    # Each group of a convolution has its own inputs.
    hessians = hessian.reshape(-1, *hessian.shape[-2:])
    if len(weight) % len(hessians):
        raise ValueError(f"{len(hessians)} groups of statistics do not divide {len(weight)} rows of {name!r}")
    parts: list[SparseGPTResult] = [
        sparsegpt(
            part, second, pattern, damping=options.damping, rows=_statistics(options, name).rows, name=name
        )
        for part, second in zip(weight.chunk(len(hessians)), hessians, strict=True)
    ]
    attempts = max(part.attempts for part in parts)
    return PrunedWeight(
        torch.cat([part.weight for part in parts]),
        torch.cat([part.mask for part in parts]),
        max(part.damping_used for part in parts),
        f"factored at attempt {attempts}" if attempts > 1 else "",
    )


def _compensate(weight: Tensor, pruned: PrunedWeight, options: PruneOptions) -> PrunedWeight:
    known = options.statistics is not None and options.statistics.hessian is not None
    factor = compensate_scale(
        weight, pruned.mask, options.statistics if known else None, pruned=pruned.weight
    )
    scaled = pruned.weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    how = "rows scaled by least squares" if known else "rows scaled to their old norm"
    return replace(
        pruned, weight=scaled.to(weight.dtype), note="; ".join(part for part in (pruned.note, how) if part)
    )


def _statistics(options: PruneOptions, name: str) -> InputStatistics:
    if options.statistics is None:
        raise ValueError(f"layer {name!r} needs statistics of its inputs for this score: see collect_inputs")
    return options.statistics


def compensate_scale(
    weight: Tensor, mask: Tensor, statistics: InputStatistics | None = None, *, pruned: Tensor | None = None
) -> Tensor:
    """Return factors for the rows of ``weight * mask``.

    Without statistics a factor restores the row's Euclidean norm. With them it is the least-squares optimum a
    = (w H vᵀ) / (v H vᵀ) for v = w * mask and H = 2/rows · XᵀX, the factor that best restores the outputs on
    those inputs. Rows that are or become zero have factor 1.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width), before pruning.
        mask: bool of the same shape.
        statistics: inputs of the layer with their Hessian.
        pruned: the weight after pruning, if it is not ``weight * mask``.

    Returns:
        (out,) factors, float32, or float64 for a float64 weight.

    Raises:
        ValueError: shapes do not fit, or the statistics have no Hessian.
    """
    if mask.shape != weight.shape:
        raise ValueError(f"mask must have the weight's shape {tuple(weight.shape)}, got {tuple(mask.shape)}")
    if pruned is not None and pruned.shape != weight.shape:
        raise ValueError(
            f"pruned must have the weight's shape {tuple(weight.shape)}, got {tuple(pruned.shape)}"
        )
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    # float64, because the factor is a ratio of sums that may nearly cancel.
    before = weight.detach().to(torch.float64).flatten(1)
    after = (weight.detach() * mask if pruned is None else pruned.detach()).to(torch.float64).flatten(1)
    if statistics is None:
        above, below = before.square().sum(1).sqrt(), after.square().sum(1).sqrt()
    else:
        hessian = _hessian(statistics, weight)
        shape = (len(hessian), -1, before.shape[1])
        response = after.reshape(shape) @ hessian
        above = (before.reshape(shape) * response).sum(2).flatten()
        below = (after.reshape(shape) * response).sum(2).flatten()
    usable = below > 0
    factor = torch.where(usable, above / torch.where(usable, below, 1.0), 1.0)
    return factor.to(dtype)


def _hessian(statistics: InputStatistics, weight: Tensor) -> Tensor:
    """Return the Hessian (groups, columns, columns), float64."""
    if statistics.hessian is None:
        raise ValueError(
            "compensation by least squares needs the Hessian: collect_inputs(..., hessian=True), or leave the"
            " statistics out to keep each row's norm"
        )
    columns = weight.shape[1:].numel()
    hessian = statistics.hessian.to(weight.device, torch.float64).reshape(-1, *statistics.hessian.shape[-2:])
    if hessian.shape[-1] != columns or len(weight) % len(hessian):
        raise ValueError(
            f"the Hessian of shape {tuple(statistics.hessian.shape)} does not fit a weight of shape"
            f" {tuple(weight.shape)}, which has {columns} columns"
        )
    return hessian
