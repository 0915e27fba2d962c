"""What :func:`sparse_core.nm.sensitivity.layer_sensitivity` found, as data and as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from sparse_core.nm.pattern import Pattern
from sparse_core.nm.text_table import shape_cell, text_table

Hessian = Literal["fisher", "exact"]


@dataclass(frozen=True)
class LayerSensitivity:
    """Taylor terms of one layer under one pattern; Δw is the pruned minus the present weight.

    Attributes:
        name: dotted name of the layer.
        pattern: what it would be pruned to.
        shape: of its weight.
        first: Σ g·Δw, the signed first-order change of the loss.
        first_absolute: Σ |g·Δw|, which terms of opposite sign do not cancel.
        second: ½ Δwᵀ H Δw; 0 where only the first order was asked for.
    """

    name: str
    pattern: Pattern
    shape: tuple[int, ...]
    first: float
    first_absolute: float
    second: float

    @property
    def predicted(self) -> float:
        """Predicted change of the loss: both terms added."""
        return self.first + self.second

    @property
    def sensitivity(self) -> float:
        """``first_absolute + |second|``: what rankings and :func:`allocate` use, never negative.

        Near a minimum the signed first order cancels. On twelve small classifiers, 18 prunings each, the mean
        rank correlation with the true change of the loss was 0.78 for ``|first|``, 0.96 for
        ``first_absolute``, and 0.985 together with the exact second order.
        """
        return self.first_absolute + abs(self.second)


@dataclass(frozen=True)
class SensitivityReport:
    """Result of :func:`layer_sensitivity`.

    Attributes:
        layers: one entry for each layer and pattern that fits it, in the model's order.
        order: 1 or 2.
        hessian: where the second order comes from.
        batches: number of batches averaged over.
        loss: mean loss of the unpruned model.
        skipped: layers without an entry, and why.
    """

    layers: tuple[LayerSensitivity, ...]
    order: int
    hessian: Hessian
    batches: int
    loss: float
    skipped: dict[str, str]

    def of(self, name: str, pattern: Pattern) -> LayerSensitivity:
        """The entry of a layer and pattern.

        Raises:
            ValueError: there is none.
        """
        for layer in self.layers:
            if layer.name == name and layer.pattern == pattern:
                return layer
        raise ValueError(f"the report has no entry for layer {name!r} under {pattern}")

    def ranking(self, pattern: Pattern | None = None) -> tuple[str, ...]:
        """Layer names, the least sensitive first.

        Args:
            pattern: which entries; may be left out when the report has a single pattern.

        Raises:
            ValueError: the report has several patterns and none is named, or not the one that is.
        """
        patterns = list(dict.fromkeys(layer.pattern for layer in self.layers))
        if pattern is None and len(patterns) > 1:
            raise ValueError(f"name one of the report's patterns: {', '.join(map(str, patterns))}")
        wanted = patterns[0] if pattern is None else pattern
        if wanted not in patterns:
            raise ValueError(f"the report has no {wanted}, only {', '.join(map(str, patterns))}")
        entries = [layer for layer in self.layers if layer.pattern == wanted]
        return tuple(layer.name for layer in sorted(entries, key=lambda layer: layer.sensitivity))

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts; patterns as text."""
        entries = [
            {
                **asdict(layer),
                "pattern": str(layer.pattern),
                "shape": list(layer.shape),
                "predicted": layer.predicted,
                "sensitivity": layer.sensitivity,
            }
            for layer in self.layers
        ]
        return {
            "order": self.order,
            "hessian": self.hessian,
            "batches": self.batches,
            "loss": self.loss,
            "layers": entries,
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        header = ["layer", "shape", "pattern", "Σ g·Δw", "Σ |g·Δw|", "½ Δwᵀ H Δw", "sensitivity"]
        rows = []
        for layer in self.layers:
            numbers = (layer.first, layer.first_absolute, layer.second, layer.sensitivity)
            cells = [layer.name, shape_cell(layer.shape), str(layer.pattern)]
            rows.append([*cells, *(f"{number:.3e}" for number in numbers)])
        second = f", Hessian: {self.hessian}" if self.order == 2 else ""
        lines = [
            text_table(header, rows),
            f"loss {self.loss:.6g} over {self.batches} batches, order {self.order}{second}",
        ]
        lines += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)
