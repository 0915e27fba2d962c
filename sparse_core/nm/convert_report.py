"""What a conversion did to each layer, as a table and as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from sparse_core.common.table import Column, Report, Table, share_saved
from sparse_core.nm.pattern import Pattern


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
class ConversionReport(Report):
    """The result of :func:`sparse_core.nm.layers.conversion.sparsify`; ``str(report)`` is a table.

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
    derived: ClassVar = ("bytes_before", "bytes_after")

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights of all converted layers while they were dense."""
        return sum(layer.bytes_before for layer in self.converted)

    @property
    def bytes_after(self) -> int:
        """Bytes of the same weights packed."""
        return sum(layer.bytes_after for layer in self.converted)

    def tables(self) -> list[Table | str]:
        """A row for each layer, the total, notes, and what was left out."""
        columns: dict[str, Column] = {
            "layer": lambda layer: layer.name or "(model)",
            "shape": "shape",
            "pattern": "pattern",
            "now": "kind",
            "bytes before": "bytes_before",
            "after": "bytes_after",
            "saved": _saved,
            "kept |w|": "kept_magnitude:.2%",
        }
        total = {
            "layer": "total",
            "bytes before": self.bytes_before,
            "after": self.bytes_after,
            "saved": _saved(self),
        }
        parts: list[Table | str] = [Table.of(self.converted, columns, totals=[total])]
        remarks = [f"{layer.name or '(model)'}: {layer.note}" for layer in self.converted if layer.note]
        if remarks or self.notes:
            parts.append("\n".join(["notes:", *remarks, *self.notes]))
        if self.skipped:
            kinds = [(layer.name or "(model)", layer.kind, layer.reason) for layer in self.skipped]
            parts.append(Table(("layer", "type", "reason"), kinds, title="left out:"))
        return parts


def _saved(sizes: ConvertedLayer | ConversionReport) -> str:
    return share_saved(sizes.bytes_before, sizes.bytes_after)
