"""Notices when weights are no longer those that something was packed from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class WeightWatch:
    """Remembers the weights of some modules as they are now.

    Replaced weights are noticed, and all changes in place that torch counts: by an optimiser, by
    ``load_state_dict``, under ``torch.no_grad``. Torch does not count writes into ``weight.data`` or into a
    NumPy view. Call ``torch.autograd.graph.increment_version(weight)`` after such a write.

    Args:
        parts: the modules; not what is below them.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self._known = [_Known.of(weight) for weight in _weights(parts)]

    def holds(self, parts: Iterable[nn.Module]) -> bool:
        """Return True if the modules still have the same weights."""
        weights = _weights(parts)
        return len(weights) == len(self._known) and all(
            known.is_still(weight) for known, weight in zip(self._known, weights, strict=True)
        )


class _Known(NamedTuple):
    """A weight as it was.

    Attributes:
        weight: the tensor itself.
        memory: a view of what it held; it keeps the memory, so that no other weight gets the same address.
        version: changes counted by then; None for tensors of inference mode, which count none.
        values: a copy of these.
    """

    weight: Tensor
    memory: Tensor
    version: int | None
    values: Tensor | None

    @classmethod
    def of(cls, weight: Tensor) -> _Known:
        memory = weight.detach()
        if weight.is_inference():
            return cls(weight, memory, None, memory.clone())
        return cls(weight, memory, weight._version, None)

    def is_still(self, weight: Tensor) -> bool:
        """Return True if this is the same tensor of the same memory, unchanged."""
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
