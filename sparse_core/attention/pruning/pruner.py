"""Pruning of the patterns of several attention layers during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.pruning.average import BlockImportance
from sparse_core.attention.pruning.importance import Measure
from sparse_core.attention.pruning.layer import PrunableAttention, PrunedLayer
from sparse_core.attention.pruning.report import PruningReport
from sparse_core.attention.pruning.schedule import DensitySchedule


class AttentionPruner:
    """Prune layers from dense to target densities during training, by the importance of their blocks.

    Call :meth:`step` once per training step, after the backward pass. Every ``every`` steps, and at the last
    step of the schedule, each layer keeps its most important blocks. Dropped blocks can return, see
    :func:`block_importance`. Each measured backward pass takes about as long as a dense one;
    ``measure_every`` makes measurements rarer, and ``freeze_after`` ends them. Lengths and heads must stay
    the same. Only this process is measured: with several, each would find its own patterns.

    Args:
        layers: from shallow to deep, see :class:`PrunableAttention`. If a layer already has a pattern, it
            keeps a part of it, and densities are relative to it.
        schedule: for as many layers.
        every: steps between refreshes.
        measure_every: steps between measurements.
        freeze_after: step after which patterns stay; None for never.
        momentum: of the moving average of the importance, see :class:`BlockImportance`.
        measure: see :func:`block_importance`.
        block_size: for layers without a pattern, a multiple of 16 from 16 to 128.
        causal: patterns drop keys after the query. Layers without a pattern must do so themselves while
            they are dense.
        shared: use one pattern for all heads of a layer, by the sum of their importance.

    Attributes:
        count: calls of :meth:`step` so far.
        importance: one :class:`BlockImportance` per layer.
        report: of the last refresh, or None.

    Raises:
        TypeError: a layer without ``attend``, or with a pattern that is not a BlockPattern.
        ValueError: numbers do not match, or a layer is listed twice.
    """

    def __init__(
        self,
        layers: Sequence[PrunableAttention],
        schedule: DensitySchedule,
        *,
        every: int = 100,
        measure_every: int = 1,
        freeze_after: int | None = None,
        momentum: float = 0.9,
        measure: Measure = "score",
        block_size: int = 64,
        causal: bool = False,
        shared: bool = False,
    ) -> None:
        _check_layers(layers, schedule, shared)
        for name, value in (("every", every), ("measure_every", measure_every)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1 step, got {value}")
        if measure_every > every:
            raise ValueError(f"measure_every={measure_every} must be at most every={every}")
        if freeze_after is not None and freeze_after < schedule.end:
            raise ValueError(
                f"freeze_after={freeze_after} is before the schedule ends (step {schedule.end}):"
                f" use {schedule.end} or more"
            )
        self.schedule = schedule
        self.count = 0
        self.report: PruningReport | None = None
        self._every, self._measure_every, self._freeze_after = every, measure_every, freeze_after
        self._layers = []
        for layer in layers:
            size = block_size if layer.pattern is None else layer.pattern.block_size
            importance = BlockImportance(momentum, block_size=size, measure=measure)
            self._layers.append(
                PrunedLayer(layer, importance, measuring=lambda: self.measuring, causal=causal, shared=shared)
            )

    @property
    def importance(self) -> tuple[BlockImportance, ...]:
        """Average importance of each layer."""
        return tuple(layer.importance for layer in self._layers)

    @property
    def measuring(self) -> bool:
        """True if a backward pass before the next :meth:`step` is measured."""
        ended = self._freeze_after is not None and self.count >= self._freeze_after
        return not ended and (self.count + 1) % self._measure_every == 0

    @torch.no_grad()
    def step(self) -> PruningReport | None:
        """Count a training step; refresh the patterns if due, and return a report or None.

        Raises:
            ValueError: a layer must be pruned but was not measured.
        """
        self.count += 1
        if self._freeze_after is not None and self.count > self._freeze_after:
            return None
        if self.count % self._every and self.count not in (self.schedule.end, self._freeze_after):
            return None
        densities = self.schedule.densities_at(self.count)
        found = []
        for number, (layer, density) in enumerate(zip(self._layers, densities, strict=True)):
            if density < 1.0 and not layer.importance.count:
                raise ValueError(
                    f"no importance was measured in layer {number} before step {self.count}: run it with"
                    " gradients enabled and a backward pass"
                )
            found.append(layer.refresh(density))
        self.report = PruningReport(self.count, tuple(found))
        return self.report

    def state_dict(self) -> dict[str, Any]:
        """Return count, importance and patterns, from which training resumes exactly."""
        return {"count": self.count, "layers": [layer.state_dict() for layer in self._layers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state_dict` for a pruner with the same arguments.

        Raises:
            ValueError: the state has another number of layers.
        """
        if len(state["layers"]) != len(self._layers):
            raise ValueError(
                f"the state has {len(state['layers'])} layers but the pruner has {len(self._layers)}:"
                " make the pruner with the same layers"
            )
        self.count = int(state["count"])
        for layer, found in zip(self._layers, state["layers"], strict=True):
            layer.load_state_dict(found)

    def remove(self) -> None:
        """Restore the layers' own ``attend``; patterns stay."""
        for layer in self._layers:
            layer.remove()


def _check_layers(layers: Sequence[PrunableAttention], schedule: DensitySchedule, shared: bool) -> None:
    if len(layers) != schedule.layers:
        raise ValueError(f"the schedule is for {schedule.layers} layers, got {len(layers)}")
    if len({id(layer) for layer in layers}) != len(layers):
        raise ValueError("a layer is listed twice: list each once")
    for number, layer in enumerate(layers):
        if not callable(getattr(layer, "attend", None)) or not hasattr(layer, "pattern"):
            raise TypeError(
                f"layer {number} ({type(layer).__name__}) must have a pattern and a method"
                " attend(q, k, v, pattern, **options)"
            )
        if layer.pattern is None:
            continue
        if not isinstance(layer.pattern, BlockPattern):
            raise TypeError(
                f"the pattern of layer {number} must be a BlockPattern or None,"
                f" got {type(layer.pattern).__name__}"
            )
        if shared and layer.pattern.heads > 1:
            raise ValueError(
                f"shared=True needs patterns with 1 head; that of layer {number} has {layer.pattern.heads}"
            )
