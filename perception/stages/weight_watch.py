"""Detect changes of weights after they were packed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class WeightWatch:
    """Snapshot of the weights of some modules.

    It detects replaced weights, and in-place changes that torch counts: by an optimiser, by
    ``load_state_dict``, or under ``torch.no_grad``. Torch does not count writes to ``weight.data`` or to a
    NumPy view. After such a write call ``torch.autograd.graph.increment_version(weight)``.

    Args:
        parts: modules, without their children.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self._known = [_WeightState.of(weight) for weight in _weights(parts)]

    def holds(self, parts: Iterable[nn.Module]) -> bool:
        """Return True if the modules still have the same weights."""
        weights = _weights(parts)
        return len(weights) == len(self._known) and all(
            known.is_still(weight) for known, weight in zip(self._known, weights, strict=True)
        )


class _WeightState(NamedTuple):
    """State of a weight.

    Attributes:
        weight: the tensor.
        memory: a view that keeps the memory alive, so that no other weight gets its address.
        version: torch's counter of changes; None for inference tensors, which have none.
        values: a copy of the values of an inference tensor.
    """

    weight: Tensor
    memory: Tensor
    version: int | None
    values: Tensor | None

    @classmethod
    def of(cls, weight: Tensor) -> _WeightState:
        memory = weight.detach()
        if weight.is_inference():
            return cls(weight, memory, None, memory.clone())
        return cls(weight, memory, weight._version, None)

    def is_still(self, weight: Tensor) -> bool:
        """Return True if the tensor, its memory and its values are the same."""
        return (
            weight is self.weight
            and weight.data_ptr() == self.memory.data_ptr()
            and (weight.dtype, weight.shape) == (self.memory.dtype, self.memory.shape)
            and weight.stride() == self.memory.stride()
            and (
                torch.equal(weight, self.values)
                if self.values is not None
                else weight._version == self.version
            )
        )


def _weights(parts: Iterable[nn.Module]) -> list[Tensor]:
    return [weight for part in parts for weight in part._parameters.values() if weight is not None]
