"""Transfer of finished weights to other classes, several sweeps and velocities.

Classes of the same name keep their rows. Weights for ages of points start at zero, a velocity head at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from perception.errors import CheckpointError
from perception.model.head import BOX_CODE
from perception.model.network import Network
from perception.model.refine import RefineStage
from sparse_core.common.surgery import shapes_of, state_difference

#: Columns of a box code with the logarithm of length, width and height over the class mean.
_SIZES = slice(3, 6)


@dataclass(frozen=True)
class Transfer:
    """Report on transferred weights.

    Attributes:
        kept: classes of both, whose rows were copied.
        new: classes with new rows.
        left: classes of the weights that the target does not have.
        layers: layers with rows or columns per class.
        added: further parts that the weights do not have.
    """

    kept: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]
    layers: tuple[str, ...]
    added: tuple[str, ...] = ()

    def sentence(self, weights: str) -> str:
        """Describe the transfer in words; ``weights`` is the name of the source."""
        parts = [
            f"from {weights}: copied everything except class-specific values in {', '.join(self.layers)}"
        ]
        if self.new:
            parts.append(f"new: {', '.join(self.new)}")
        if self.kept:
            parts.append(f"kept: {', '.join(self.kept)}")
        if self.left:
            parts.append(f"dropped: {', '.join(self.left)}")
        if self.added:
            parts.append(f"added: {', '.join(self.added)}")
        return "; ".join(parts)


class _Slot(NamedTuple):
    """Position of class values in a tensor: along ``axis`` from ``first``, ``each`` rows per class."""

    axis: int
    first: int
    each: int


def same_outputs(network: Network, other: Network) -> bool:
    """True if two networks read the same columns of points and have the same classes and heads.

    Classes must be in the same order and have the same mean sizes.
    """
    first, second = network.config, other.config
    read = first.pillars.columns == second.pillars.columns and first.head.velocity == second.head.velocity
    return (
        read
        and first.head.classes == second.head.classes
        and torch.equal(network.head.mean_sizes, other.head.mean_sizes)
    )


def transfer_weights(source: Network, target: Network, *, where: str) -> Transfer:
    """Copy everything that does not depend on classes, and the rows of classes of the same name.

    A network for several sweeps takes weights for one; ages then change nothing at first. Sizes are coded
    relative to the class mean. If the means differ, the copied biases are shifted so that they encode the
    same sizes in metres.

    Args:
        source: finished weights.
        target: random weights of the wanted configuration; modified.
        where: file or name of the weights, for messages.

    Raises:
        CheckpointError: the networks differ in more than classes, ages and velocities.
    """
    old, new = source.config.head.classes, target.config.head.classes
    found = {name: value for name, value in source.state_dict().items() if not name.startswith("embedding.")}
    wanted, slots = target.state_dict(), _slots(target)
    added = _add_parts(found, wanted, target)
    shapes = shapes_of(found)
    for name in slots.keys() & shapes.keys():
        shapes[name] = _resized(shapes[name], slots[name], len(new) - len(old))
    difference = state_difference(shapes_of(wanted), shapes, owner="the configuration")
    if difference is not None:
        raise CheckpointError(
            f"{where}: these weights do not fit the configuration: {difference}. Only classes, sweeps and"
            " velocities may differ"
        )
    pairs = [(old.index(name), row) for row, name in enumerate(new) if name in old]
    with torch.no_grad():
        for name, value in wanted.items():
            if name in slots:
                _copy_classes(found[name], value, slots[name], len(old), len(new), pairs)
            else:
                value.copy_(found[name])
        for before, after in pairs:
            shift = torch.log(source.head.mean_sizes[before] / target.head.mean_sizes[after])
            target.head.box.bias[after * BOX_CODE : (after + 1) * BOX_CODE][_SIZES] += shift
    return Transfer(
        kept=tuple(name for name in new if name in old),
        new=tuple(name for name in new if name not in old),
        left=tuple(name for name in old if name not in new),
        layers=tuple(dict.fromkeys(name.rpartition(".")[0] for name in slots)),
        added=added,
    )


def _add_parts(found: dict[str, Tensor], wanted: Mapping[str, Tensor], target: Network) -> tuple[str, ...]:
    """Add the tensors and columns that the weights lack, in place, and return their names."""
    added = []
    first = [f"refinements.{number}.point_layers.0" for number in range(len(target.refinements))]
    for layer in ("encoder.points", *first):
        name = f"{layer}.linear.weight"
        # The age is the last column.
        if name in found and name in wanted and found[name].shape[1] + 1 == wanted[name].shape[1]:
            found[name] = torch.nn.functional.pad(found[name], (0, 1))
            added.append(layer)
    names = [name for name in wanted if name.startswith("velocity.") and name not in found]
    found |= {name: wanted[name] for name in names}
    if names:
        added.append("velocity")
    return tuple(f"ages of points in {name}" if name != "velocity" else "the velocity head" for name in added)


def _slots(network: Network) -> dict[str, _Slot]:
    """Return the tensors of a network that contain values per class."""
    slots = {
        "head.heat.weight": _Slot(0, 0, 1),
        "head.heat.bias": _Slot(0, 0, 1),
        "head.box.weight": _Slot(0, 0, BOX_CODE),
        "head.box.bias": _Slot(0, 0, BOX_CODE),
    }
    for number, stage in enumerate(network.refinements):
        assert isinstance(stage, RefineStage)
        slots[f"refinements.{number}.hidden.0.linear.weight"] = _Slot(1, stage.class_columns.start, 1)
    return slots


def _resized(shape: tuple[int, ...], slot: _Slot, more: int) -> tuple[int, ...]:
    """Return the shape that a tensor would have with ``more`` classes."""
    sizes = list(shape)
    sizes[slot.axis] += more * slot.each
    return tuple(sizes)


def _copy_classes(
    source: Tensor, target: Tensor, slot: _Slot, old: int, new: int, pairs: Sequence[tuple[int, int]]
) -> None:
    """Copy the values outside the classes, and the classes of ``pairs`` (row before, row after)."""
    source, target = source.movedim(slot.axis, 0), target.movedim(slot.axis, 0)
    first, each = slot.first, slot.each
    target[:first] = source[:first]
    target[first + new * each :] = source[first + old * each :]
    for before, after in pairs:
        target[first + after * each : first + (after + 1) * each] = source[
            first + before * each : first + (before + 1) * each
        ]
