"""What :func:`sparse_core.nm.pruning.allocation.allocate` chose, as data and as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sparse_core.common.table import Column, Report, Table, left_out
from sparse_core.nm.pattern import NMPattern


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
    derived: ClassVar = ("weights", "density", "index_bits", "entropy_bits", "bits_a_weight")

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
class Allocation(Report):
    """A pattern for each layer.

    Attributes:
        layers: in the model's order.
        target: sparsity that was asked for.
        skipped: other modules with weights, and why they do not count.
    """

    layers: tuple[LayerAllocation, ...]
    target: float
    skipped: dict[str, str]
    derived: ClassVar = ("sparsity", "sensitivity", "bits_a_weight")

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

    def tables(self) -> list[Table | str]:
        """A row for each layer, the total, the sparsity, and what was left out."""
        columns: dict[str, Column] = {
            "layer": "name",
            "shape": "shape",
            "weights": "weights",
            "pattern": lambda layer: layer.pattern or "dense",
            "density": "density:.3f",
            "index bits a group": "index_bits",
            "entropy bound": "entropy_bits:.3f",
            "bits a weight": "bits_a_weight:.3f",
            "sensitivity": "sensitivity:.4g",
        }
        total = {
            "layer": "total",
            "weights": self.weights,
            "density": 1 - self.sparsity,
            "bits a weight": self.bits_a_weight,
            "sensitivity": self.sensitivity,
        }
        sparsity = f"sparsity {self.sparsity:.4f}, asked for {self.target:.4f}"
        return [Table.of(self.layers, columns, totals=[total]), sparsity, left_out(self.skipped)]
