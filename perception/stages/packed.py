"""Whether weights are still those that something was packed from."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

#: Every so manieth number of a weight is looked at to see whether it was changed behind torch's back.
_SAMPLED = 64


class WeightWatch:
    """Remembers the weights of some modules as they are now.

    Args:
        parts: the modules; not what is below them.
    """

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        given = _weights(parts)
        self._versions = _versions(given)
        self._samples = [weight.detach().view(-1)[::_SAMPLED] for weight in map(_in_memory_order, given)]
        self._sampled = torch.cat(self._samples)

    def holds(self, parts: Iterable[nn.Module]) -> bool:
        """Whether the modules have the same weights still, as far as samples tell."""
        return _versions(_weights(parts)) == self._versions and torch.equal(
            torch.cat(self._samples), self._sampled
        )


def _weights(parts: Iterable[nn.Module]) -> list[Tensor]:
    return [weight for part in parts for weight in part._parameters.values() if weight is not None]


def _versions(weights: list[Tensor]) -> list[tuple[int, int, int]]:
    """Identity, place and version of each."""
    return [(id(weight), weight.data_ptr(), weight._version) for weight in weights]


def _in_memory_order(weight: Tensor) -> Tensor:
    """A contiguous view of a weight in whatever layout."""
    return weight.permute(sorted(range(weight.ndim), key=weight.stride, reverse=True))
