"""What a conversion did to each layer, as a table and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from sparse_core.nm.pattern import Pattern
from sparse_core.nm.text_table import shape_cell, size_cells, text_table


@dataclass(frozen=True)
class ConvertedLayer:
    """One layer that is packed now.

    Attributes:
        name: dotted name; ``""`` where the model itself is the layer.
        shape: out, in.
        pattern: n:m or blocks.
        kind: class of the new layer.
        bytes_before: of the dense weight.
        bytes_after: of the packed weight with its indices and scales.
        kept_magnitude: Σ|w| of the kept weights over Σ|w| before; 1 for an all-zero weight.
        note: what else happened; mostly empty.
    """

    name: str
    shape: tuple[int, int]
    pattern: Pattern
    kind: str
    bytes_before: int
    bytes_after: int
    kept_magnitude: float
    note: str = ""


@dataclass(frozen=True)
class SkippedLayer:
    """One layer that stays as it is.

    Attributes:
        name: dotted name; ``""`` where the model itself is the layer.
        kind: its class.
        reason: why it was left out.
    """

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class ConversionReport:
    """The result of :func:`sparse_core.nm.convert.sparsify`; ``str(report)`` is a table.

    Attributes:
        model: the converted model: the one given, a copy, or the new layer where the model was one layer.
        converted: packed layers in the model's order.
        skipped: the other modules with a weight matrix.
        notes: what else was changed.
    """

    model: nn.Module = field(repr=False)
    converted: list[ConvertedLayer]
    skipped: list[SkippedLayer]
    notes: list[str]

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights of all converted layers while they were dense."""
        return sum(layer.bytes_before for layer in self.converted)

    @property
    def bytes_after(self) -> int:
        """Bytes of the same weights packed."""
        return sum(layer.bytes_after for layer in self.converted)

    def to_json(self) -> dict[str, Any]:
        """Everything but the model, in types that ``json`` writes."""
        return {
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "converted": [
                {
                    "name": layer.name,
                    "shape": list(layer.shape),
                    "pattern": str(layer.pattern),
                    "kind": layer.kind,
                    "bytes_before": layer.bytes_before,
                    "bytes_after": layer.bytes_after,
                    "kept_magnitude": layer.kept_magnitude,
                    "note": layer.note,
                }
                for layer in self.converted
            ],
            "skipped": [
                {"name": layer.name, "kind": layer.kind, "reason": layer.reason} for layer in self.skipped
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        header = ("layer", "shape", "pattern", "now", "bytes before", "after", "saved", "kept |w|")
        rows = [_row(layer) for layer in self.converted]
        sizes = size_cells(self.bytes_before, self.bytes_after)
        parts = [text_table(header, [*rows, ("total", "", "", "", *sizes, "")], align="llllrrrr")]
        remarks = [f"{layer.name or '(model)'}: {layer.note}" for layer in self.converted if layer.note]
        if remarks or self.notes:
            parts.append("\n".join(["notes:", *remarks, *self.notes]))
        if self.skipped:
            left_out = [(layer.name or "(model)", layer.kind, layer.reason) for layer in self.skipped]
            parts.append("left out:\n" + text_table(("layer", "type", "reason"), left_out, align="lll"))
        return "\n\n".join(parts)


def _row(layer: ConvertedLayer) -> tuple[str, ...]:
    return (
        layer.name or "(model)",
        shape_cell(layer.shape),
        str(layer.pattern),
        layer.kind,
        *size_cells(layer.bytes_before, layer.bytes_after),
        f"{layer.kept_magnitude:.2%}",
    )
