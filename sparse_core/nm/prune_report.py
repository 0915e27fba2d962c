"""What pruning did to each layer, as a table and as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from sparse_core.common.table import Column, Report, Table, cell, left_out
from sparse_core.nm.pattern import Pattern


@dataclass(frozen=True)
class LayerReport:
    """One pruned layer.

    Attributes:
        name: dotted name; ``""`` where the model itself is the layer.
        shape: of its weight.
        pattern: n:m or blocks.
        method: score that chose the weights.
        kept_magnitude: Σ|w| of the kept weights over Σ|w| of all, before pruning; 1 for an all-zero weight.
        zeros_before: zeros among the weights before pruning.
        zeros_after: and after.
        damping_used: SparseGPT's damping as a share of the mean diagonal; ``None`` for other methods.
        note: what else happened; mostly empty.
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
        """Number of weights, zero or not."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class PruneReport(Report):
    """What :func:`sparse_core.nm.pruning.prune` did to a model; ``str(report)`` is a table.

    Attributes:
        layers: pruned layers, in the order in which they were pruned.
        skipped: why each other layer was left out.
        masks: bool tensor of the weight's shape by layer name, true where a weight is kept.
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
        """A row for each layer, the total, and what was left out."""
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
