"""Pruning of a tensor or of a model's layers: zero all but the best weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import Select
from sparse_core.common.table import Column, Report, Table, cell, left_out
from sparse_core.nm.pattern import TWO_FOUR, Pattern
from sparse_core.nm.pruning.arguments import (
    WITH_INPUTS,
    Score,
    as_pattern,
    check_inputs,
    model_scores,
    plain_weight,
    tensor_score,
    writable_layers,
)
from sparse_core.nm.pruning.calibration import InputStatistics, collect_inputs
from sparse_core.nm.pruning.scores import GradientScore
from sparse_core.nm.pruning.selection import outputs_first
from sparse_core.nm.pruning.single_weight import PrunedWeight, PruneOptions, prune_weight


@dataclass(frozen=True)
class LayerReport:
    """One pruned layer.

    Attributes:
        name: dotted name; ``""`` if the model itself is the layer.
        shape: shape of its weight.
        pattern: n:m or blocks.
        method: score that selected the weights.
        kept_magnitude: Σ|w| of the kept weights over Σ|w| of all, before pruning; 1 for an all-zero weight.
        zeros_before: number of zeros before pruning.
        zeros_after: number of zeros after pruning.
        damping_used: SparseGPT's damping as a share of the mean diagonal; ``None`` for other methods.
        note: further remarks; usually empty.
    """

    name: str
    shape: tuple[int, ...]
    pattern: Pattern
    method: str
    kept_magnitude: float
    zeros_before: int
    zeros_after: int
    damping_used: float | None = None
    note: str = ""

    @property
    def weights(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class PruneReport(Report):
    """Result of :func:`sparse_core.nm.pruning.prune` for a model; ``str(report)`` is a table.

    Attributes:
        layers: pruned layers in the order of pruning.
        skipped: reason for each layer that was not pruned.
        masks: bool masks of the weights' shapes by layer name; true where a weight is kept.
    """

    layers: list[LayerReport]
    skipped: dict[str, str]
    masks: dict[str, Tensor] = field(repr=False)
    derived: ClassVar = ("sparsity",)

    @property
    def sparsity(self) -> float:
        """Share of zeros among the weights of the pruned layers."""
        weights = sum(layer.weights for layer in self.layers)
        return sum(layer.zeros_after for layer in self.layers) / weights

    def tables(self) -> list[Table | str]:
        """Return one row per layer, the total, and the skipped layers."""
        columns: dict[str, Column] = {
            "layer": lambda layer: layer.name or "(model)",
            "shape": "shape",
            "pattern": "pattern",
            "method": "method",
            "kept |w|": "kept_magnitude:.2%",
            "zeros before": lambda layer: cell(layer.zeros_before / layer.weights, ".2%"),
            "zeros after": lambda layer: cell(layer.zeros_after / layer.weights, ".2%"),
            "note": _note,
        }
        weights = sum(layer.weights for layer in self.layers)
        total = {
            "layer": "total",
            "shape": f"{weights}",
            "zeros before": cell(sum(layer.zeros_before for layer in self.layers) / weights, ".2%"),
            "zeros after": cell(self.sparsity, ".2%"),
        }
        return [Table.of(self.layers, columns, totals=[total]), left_out(self.skipped)]


def _note(layer: LayerReport) -> str:
    damping = "" if layer.damping_used is None else f"damping {layer.damping_used:g}"
    return "; ".join(part for part in (damping, layer.note) if part)


@overload
def prune(
    target: Tensor,
    n_or_pattern: int | Pattern = ...,
    m: int | None = ...,
    *,
    score: Score | Tensor = ...,
    statistics: InputStatistics | None = ...,
    gradient: Tensor | None = ...,
    compensate: bool = ...,
    damping: float = ...,
) -> Tensor: ...


@overload
def prune(
    target: nn.Module,
    n_or_pattern: int | Pattern | Mapping[str, Pattern | None] = ...,
    m: int | None = ...,
    *,
    score: Score | Mapping[str, Tensor] = ...,
    statistics: Mapping[str, InputStatistics] | None = ...,
    gradient: GradientScore | None = ...,
    calibration: Iterable[Any] | None = ...,
    sequential: bool = ...,
    select: Select = ...,
    compensate: bool = ...,
    damping: float = ...,
    progress: bool = ...,
) -> PruneReport: ...


def prune(
    target: Tensor | nn.Module,
    n_or_pattern: int | Pattern | Mapping[str, Pattern | None] = TWO_FOUR,
    m: int | None = None,
    *,
    score: Any = "magnitude",
    statistics: Any = None,
    gradient: Any = None,
    calibration: Iterable[Any] | None = None,
    sequential: bool = False,
    select: Select = None,
    compensate: bool = False,
    damping: float = 0.01,
    progress: bool = False,
) -> Tensor | PruneReport:
    """Zero all but the best weights: of a tensor, returned as a new one, or of a model in place.

    Args:
        target: a weight (out, in) or (out, in, kernel height, kernel width), or a model. Pruned are Linear
            and Conv2d layers, ``in_proj_weight`` of ``nn.MultiheadAttention`` (unless inputs must be
            collected), and ``Conv1D`` of transformers, whose weight is (in, out) with groups along in.
            ``report.skipped`` lists other matrices, for example of recurrent layers and fused experts.
            Weights are changed in place, so optimisers keep working; attach ``report.masks`` to keep the
            zeros during training.
        n_or_pattern: ``NMPattern``, ``Block``, n followed by ``m``, or for a model a pattern by layer name.
        m: weights per group if ``n_or_pattern`` is n.
        score: ``"magnitude"``; ``"gradient"``, |w|·|gradient|; ``"wanda"``; ``"sparsegpt"``, which also
            changes kept weights; or scores of the weight's shape (a dictionary by name for a model).
        statistics: result of :func:`collect_inputs` for Wanda and SparseGPT (for a tensor one of its values).
        gradient: for a model a :class:`GradientScore`, by default the current gradients; for a tensor its
            gradient.
        calibration: batches from which missing statistics are collected; models only.
        sequential: collect each layer's statistics after the layers before it are pruned, as in the SparseGPT
            paper. Runs the batches once per layer and holds them in memory.
        select: layers of a model to prune, see :data:`sparse_core.common.surgery.Select`.
        compensate: scale each output row, see :func:`compensate_scale`: by least squares if the inputs'
            Hessian is known, otherwise to restore its norm.
        damping: damping of SparseGPT.
        progress: show progress bars.

    Returns:
        The pruned tensor, detached; or a :class:`PruneReport` with the masks.

    Raises:
        TypeError: an argument of another type, or SparseGPT with blocks.
        ValueError: nothing matches, inputs or gradients are missing, or scores are NaN: all found before any
            layer changes. Or a Hessian cannot be factored; layers before that one are already pruned.

    Warns:
        CalibrationWarning: SparseGPT needed more damping or more inputs.
    """
    pattern = as_pattern(n_or_pattern, m)
    if isinstance(target, Tensor):
        if isinstance(pattern, Mapping) or calibration is not None or sequential or select is not None:
            raise TypeError("a tensor takes one pattern, and neither calibration, sequential nor select")
        plain = tensor_score(target, score, gradient)
        return prune_weight(target, pattern, PruneOptions(plain, statistics, compensate, damping)).weight
    if not isinstance(target, nn.Module):
        raise TypeError(f"target must be a tensor or a module, got {type(target).__name__}")
    needs_inputs = compensate or (isinstance(score, str) and score in WITH_INPUTS)
    collecting = calibration is not None and statistics is None and needs_inputs
    selection = writable_layers(
        target, pattern, select, collecting=collecting, statistics=statistics if needs_inputs else None
    )
    scores = model_scores(selection.layers, score, gradient)
    check_inputs(selection.layers, pattern, score, statistics, calibration, sequential)
    inputs = _Inputs(target, selection.layers, statistics, progress)
    if collecting and calibration is not None:
        inputs.collect(calibration, hessian=compensate or score == "sparsegpt", sequential=sequential)
    reports, masks = [], {}
    for name in track(inputs.order, "pruning", disable=not progress):
        module = selection.layers[name]
        before = plain_weight(module)
        wanted = pattern[name] if isinstance(pattern, Mapping) else pattern
        assert wanted is not None  # selected_layers skips those.
        options = PruneOptions(scores[name], inputs.of(name), compensate, damping)
        result = prune_weight(before, wanted, options, name=name)
        method = score if isinstance(score, str) else "given scores"
        shape = tuple(outputs_first(module, before).shape)
        reports.append(_report(name, shape, before, wanted, method, result))
        masks[name] = outputs_first(module, result.mask).contiguous()
        with torch.no_grad():
            before.copy_(result.weight)
    return PruneReport(reports, selection.skipped, masks)


class _Inputs:
    """Statistics of each layer, and the order in which layers are pruned."""

    def __init__(
        self,
        model: nn.Module,
        layers: dict[str, nn.Module],
        statistics: Mapping[str, InputStatistics] | None,
        progress: bool,
    ) -> None:
        self.model, self.layers, self.progress = model, layers, progress
        self.order = list(layers)
        self.hessian = False
        self._statistics = dict(statistics or {})
        self._batches: list[Any] | None = None

    def collect(self, calibration: Iterable[Any], *, hessian: bool, sequential: bool) -> None:
        """Collect statistics now; for sequential pruning only the order of the layers."""
        self.hessian = hessian
        if sequential:
            self._batches = list(calibration)
            self.order = list(collect_inputs(self.model, self._batches[:1], layers=self.layers))
            return
        self._statistics = collect_inputs(
            self.model, calibration, layers=self.layers, hessian=hessian, progress=self.progress
        )
        self.order = list(self._statistics)

    def of(self, name: str) -> InputStatistics | None:
        """Return the statistics of a layer, collected now if pruning is sequential; ``None`` without any."""
        if self._batches is None:
            return self._statistics.get(name)
        only = {name: self.layers[name]}
        return collect_inputs(self.model, self._batches, layers=only, hessian=self.hessian)[name]


def _report(
    name: str, shape: tuple[int, ...], before: Tensor, pattern: Pattern, method: str, result: PrunedWeight
) -> LayerReport:
    absolute = before.abs().to(torch.float64)
    total, kept = float(absolute.sum()), float((absolute * result.mask).sum())
    return LayerReport(
        name=name,
        shape=shape,
        pattern=pattern,
        method=method,
        kept_magnitude=kept / total if total else 1.0,
        zeros_before=int((before == 0).sum()),
        zeros_after=int((result.weight == 0).sum()),
        damping_used=result.damping_used,
        note=result.note,
    )
