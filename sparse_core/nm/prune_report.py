"""What pruning did to each layer, as a table and as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sparse_core.nm.pattern import Pattern
from sparse_core.nm.text_table import shape_cell, text_table


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
class PruneReport:
    """What :func:`sparse_core.nm.pruning.prune` did to a model; ``str(report)`` is a table.

    Attributes:
        layers: pruned layers, in the order in which they were pruned.
        skipped: why each other layer was left out.
        masks: bool tensor of the weight's shape by layer name, true where a weight is kept.
    """

    layers: list[LayerReport]
    skipped: dict[str, str]
    masks: dict[str, Tensor] = field(repr=False)

    @property
    def sparsity(self) -> float:
        """Share of zeros among the weights of the pruned layers."""
        weights = sum(layer.weights for layer in self.layers)
        return sum(layer.zeros_after for layer in self.layers) / weights

    def to_json(self) -> dict[str, Any]:
        """Everything but the masks, in types that ``json`` writes."""
        return {
            "sparsity": self.sparsity,
            "layers": [
                {
                    "name": layer.name,
                    "shape": list(layer.shape),
                    "pattern": str(layer.pattern),
                    "method": layer.method,
                    "kept_magnitude": layer.kept_magnitude,
                    "zeros_before": layer.zeros_before,
                    "zeros_after": layer.zeros_after,
                    "damping_used": layer.damping_used,
                    "note": layer.note,
                }
                for layer in self.layers
            ],
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        header = ("layer", "shape", "pattern", "method", "kept |w|", "zeros before", "zeros after", "note")
        rows = [_row(layer) for layer in self.layers]
        before = sum(layer.zeros_before for layer in self.layers)
        weights = sum(layer.weights for layer in self.layers)
        rows.append(
            ("total", f"{weights}", "", "", "", f"{before / weights:.2%}", f"{self.sparsity:.2%}", "")
        )
        parts = [text_table(header, rows, align="llllrrrl")]
        if self.skipped:
            left_out = [(name or "(model)", reason) for name, reason in self.skipped.items()]
            parts.append("left out:\n" + text_table(("layer", "reason"), left_out, align="ll"))
        return "\n\n".join(parts)


def _row(layer: LayerReport) -> tuple[str, ...]:
    damping = "" if layer.damping_used is None else f"damping {layer.damping_used:g}"
    return (
        layer.name or "(model)",
        shape_cell(layer.shape),
        str(layer.pattern),
        layer.method,
        f"{layer.kept_magnitude:.2%}",
        f"{layer.zeros_before / layer.weights:.2%}",
        f"{layer.zeros_after / layer.weights:.2%}",
        "; ".join(part for part in (damping, layer.note) if part),
    )
