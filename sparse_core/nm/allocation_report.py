"""What :func:`sparse_core.nm.allocation.allocate` chose, as data and as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.text_table import shape_cell, text_table


@dataclass(frozen=True)
class LayerAllocation:
    """One layer under one pattern.

    Attributes:
        name: dotted name.
        shape: of the weight.
        pattern: n:m, or ``None`` for dense.
        kept: weights that are kept.
        value_bits: bits of one kept value, those of the layer's dtype.
        sensitivity: cost of the pattern.
    """

    name: str
    shape: tuple[int, ...]
    pattern: NMPattern | None
    kept: int
    value_bits: int
    sensitivity: float

    @property
    def weights(self) -> int:
        """Weights of the dense layer."""
        return math.prod(self.shape)

    @property
    def density(self) -> float:
        """Share of the weights that is kept."""
        return self.kept / self.weights

    @property
    def index_bits(self) -> int:
        """Whole bits that say which weights a group keeps; 0 for dense."""
        return 0 if self.pattern is None else self.pattern.index_bits

    @property
    def entropy_bits(self) -> float:
        """Lower bound of the bits a group; 0 for dense."""
        return 0.0 if self.pattern is None else self.pattern.entropy_bits

    @property
    def bits_a_weight(self) -> float:
        """Bits of values and indices for each weight of the dense layer."""
        index = 0.0 if self.pattern is None else self.pattern.index_bits / self.pattern.m
        return self.density * self.value_bits + index


@dataclass(frozen=True)
class Allocation:
    """A pattern for each layer.

    Attributes:
        layers: in the model's order.
        target: sparsity that was asked for.
        skipped: other modules with weights, and why they do not count.
    """

    layers: tuple[LayerAllocation, ...]
    target: float
    skipped: dict[str, str]

    @property
    def patterns(self) -> dict[str, NMPattern | None]:
        """The pattern of each layer by name; ``None`` is dense."""
        return {layer.name: layer.pattern for layer in self.layers}

    @property
    def weights(self) -> int:
        """Weights of all layers together."""
        return sum(layer.weights for layer in self.layers)

    @property
    def sparsity(self) -> float:
        """Share of the layers' weights that is dropped."""
        return 1 - sum(layer.kept for layer in self.layers) / self.weights

    @property
    def sensitivity(self) -> float:
        """Sum over the layers."""
        return sum(layer.sensitivity for layer in self.layers)

    @property
    def bits_a_weight(self) -> float:
        """Mean over all weights."""
        return sum(layer.bits_a_weight * layer.weights for layer in self.layers) / self.weights

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts; patterns as text, dense as ``None``."""
        layers = [
            {
                "name": layer.name,
                "shape": list(layer.shape),
                "weights": layer.weights,
                "pattern": None if layer.pattern is None else str(layer.pattern),
                "density": layer.density,
                "index_bits": layer.index_bits,
                "entropy_bits": layer.entropy_bits,
                "bits_a_weight": layer.bits_a_weight,
                "sensitivity": layer.sensitivity,
            }
            for layer in self.layers
        ]
        return {
            "target": self.target,
            "sparsity": self.sparsity,
            "sensitivity": self.sensitivity,
            "bits_a_weight": self.bits_a_weight,
            "layers": layers,
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        header = [
            "layer",
            "shape",
            "weights",
            "pattern",
            "density",
            "index bits a group",
            "entropy bound",
            "bits a weight",
            "sensitivity",
        ]
        rows = [
            [
                layer.name,
                shape_cell(layer.shape),
                f"{layer.weights:,}",
                "dense" if layer.pattern is None else str(layer.pattern),
                f"{layer.density:.3f}",
                str(layer.index_bits),
                f"{layer.entropy_bits:.3f}",
                f"{layer.bits_a_weight:.3f}",
                f"{layer.sensitivity:.4g}",
            ]
            for layer in self.layers
        ]
        total = ["total", "", f"{self.weights:,}", "", f"{1 - self.sparsity:.3f}", "", ""]
        rows.append([*total, f"{self.bits_a_weight:.3f}", f"{self.sensitivity:.4g}"])
        lines = [
            text_table(header, rows),
            f"sparsity {self.sparsity:.4f}, asked for {self.target:.4f}",
            *(f"skipped {name}: {reason}" for name, reason in self.skipped.items()),
        ]
        return "\n".join(lines)
