"""Density of each layer at each training step; pure functions of the step, without state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sparse_core.common.table import Table, cell

Order = Literal["shallow", "deep"]


@dataclass(frozen=True)
class LinearDensity:
    """Target densities that change linearly from the first to the last layer.

    Args:
        first: of the first layer, in (0, 1].
        last: of the last layer, in (0, 1].
    """

    first: float
    last: float

    def of(self, layer: int, layers: int) -> float:
        """Return the target of a layer, counted from 0."""
        place = layer / (layers - 1) if layers > 1 else 0.0
        return (1 - place) * self.first + place * self.last


@dataclass(frozen=True)
class DensitySchedule:
    """Schedule from dense to a target density, layer by layer.

    A layer is dense until its turn. At time ``t`` in [0, 1] of its turn, its density is
    ``target + (1 - target) (1 - t)³``: fast first and slow at the end (Zhu and Gupta, "To prune, or not to
    prune", 2017, eq. 1). Turns are equally long; the first begins at ``begin`` and the last ends at ``end``.

    Args:
        layers: number of layers.
        target: final share of the blocks, in (0, 1]; for all layers, per layer, or linear.
        begin: last step at which all layers are dense.
        end: first step at which all layers have their target.
        order: ``"shallow"`` begins with the first layer, ``"deep"`` with the last.
        overlap: share of a turn that overlaps the next one: 0 for one after the other, 1 for all layers
            together.

    Raises:
        ValueError: sizes, steps, shares or names outside these ranges.
    """

    layers: int
    target: float | Sequence[float] | LinearDensity
    begin: int
    end: int
    order: Order = "shallow"
    overlap: float = 0.5

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ValueError(f"layers must be at least 1, got {self.layers}")
        if not 0 <= self.begin < self.end:
            raise ValueError(f"steps must satisfy 0 <= begin < end, got begin={self.begin}, end={self.end}")
        if self.order not in get_args(Order):
            raise ValueError(f"order must be one of {', '.join(get_args(Order))}; got {self.order!r}")
        if not 0.0 <= self.overlap <= 1.0:
            raise ValueError(f"overlap must be from 0 to 1, got {self.overlap}")
        if isinstance(self.target, Sequence) and len(self.target) != self.layers:
            raise ValueError(
                f"target must have a density for each of {self.layers} layers, got {self.target}"
            )
        for layer, target in enumerate(self.targets):
            if not 0.0 < target <= 1.0:
                raise ValueError(f"target of layer {layer} must be above 0 and at most 1, got {target}")

    @property
    def targets(self) -> tuple[float, ...]:
        """Final density of each layer."""
        if isinstance(self.target, LinearDensity):
            return tuple(self.target.of(layer, self.layers) for layer in range(self.layers))
        if isinstance(self.target, Sequence):
            return tuple(self.target)
        return (self.target,) * self.layers

    def turn(self, layer: int) -> tuple[float, float]:
        """Return the first and last step at which the density of a layer, counted from 0, changes.

        Raises:
            IndexError: there is no such layer.
        """
        if not 0 <= layer < self.layers:
            raise IndexError(f"layer must be from 0 to {self.layers - 1}, got {layer}")
        place = layer if self.order == "shallow" else self.layers - 1 - layer
        turns_apart = 1 - self.overlap
        length = (self.end - self.begin) / (1 + (self.layers - 1) * turns_apart)
        if place == self.layers - 1:
            return self.end - length, self.end
        return self.begin + place * turns_apart * length, self.begin + (place * turns_apart + 1) * length

    def density_at(self, step: int, layer: int) -> float:
        """Return the share of the blocks that a layer keeps at ``step``, from 1 down to its target."""
        first, last = self.turn(layer)
        time = min(1.0, max(0.0, (step - first) / (last - first)))
        target = self.targets[layer]
        return target + (1 - target) * (1 - time) ** 3

    def densities_at(self, step: int) -> tuple[float, ...]:
        """Return :meth:`density_at` of all layers."""
        return tuple(self.density_at(step, layer) for layer in range(self.layers))

    def __str__(self) -> str:
        rows = [
            (layer, *(cell(step, ".1f") for step in self.turn(layer)), cell(target, ".1%"))
            for layer, target in enumerate(self.targets)
        ]
        return str(Table(("layer", "from step", "to step", "density"), rows))
