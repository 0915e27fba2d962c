"""Which numbers of a delta take part: the largest, a band of magnitudes, or a random share."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sparse_core.merging.pieces import Delta
from sparse_core.merging.selection import (
    Threshold,
    kept_count,
    magnitude_threshold,
    magnitude_thresholds,
)

__all__ = ["Keep", "RandomShare", "band", "largest", "largest_of_each", "random_share"]

#: Sets to zero in place what is dropped, given a piece and the position of its first number.
Keep = Callable[[Tensor, int], Tensor]
_RANGE = 1 << 32


def largest(delta: Delta, density: float) -> Keep | None:
    """Trimming of TIES (Yadav et al. 2023): the share of the largest magnitudes; None where that is all."""
    return largest_of_each([delta], [density])[0]


def largest_of_each(deltas: Sequence[Delta], densities: Sequence[float]) -> list[Keep | None]:
    """:func:`largest` of deltas of one size, which a GPU finds together."""
    counts = [kept_count(density, delta.count) for delta, density in zip(deltas, densities, strict=True)]
    return [
        None if found.kept >= delta.count else found.apply
        for delta, found in zip(deltas, magnitude_thresholds(deltas, counts), strict=True)
    ]


@dataclass(frozen=True)
class _Band:
    lower: Threshold
    upper: Threshold

    def __call__(self, piece: Tensor, start: int) -> Tensor:
        top = self.upper.apply(piece.clone(), start)
        # Exact: a number minus itself, or minus zero.
        return self.lower.apply(piece, start).sub_(top)


def band(delta: Delta, density: float, gamma: float) -> Keep | None:
    """Model breadcrumbs (Davari and Belilovsky 2024): without the largest and the smallest magnitudes.

    Args:
        delta: any.
        density: share that is kept.
        gamma: share of the largest that are dropped, less where ``density`` would not be reached; as many of
            the smallest are dropped as it takes.
    """
    count = delta.count
    keep = kept_count(density, count)
    top = min(int(gamma * count + 1e-6), count - keep)
    if keep >= count:
        return None
    lower = magnitude_threshold(delta, keep + top)
    return lower.apply if top == 0 else _Band(lower, magnitude_threshold(delta, top))


class RandomShare:
    """Dropping of DARE (Yu et al. 2024): each number stays with a probability, decided by a seed.

    The bits depend on the seed, the number of the vector, the name of the tensor and the position in it, on
    nothing else: neither on the order of tensors nor on how they are cut into pieces.

    Args:
        density: probability to stay, in (0, 1].
        seed: any whole number from 0.
        vector: number of the task vector in the merge.
        name: of the tensor.
    """

    def __init__(self, density: float, *, seed: int, vector: int, name: str) -> None:
        words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype="<u4")
        self._entropy = (seed, vector, *map(int, words))
        self._limit = max(1, round(density * _RANGE))
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(self._entropy))
        self._position = 0

    @property
    def probability(self) -> float:
        """Exactly how probable it is that a number stays; dividing by it preserves the expectation."""
        return self._limit / _RANGE

    def for_thread(self) -> RandomShare:
        """The same choice with a state of its own, since a thread goes its own way through the tensor."""
        twin = copy.copy(self)
        twin._bits = np.random.PCG64DXSM(np.random.SeedSequence(self._entropy))
        twin._position = 0
        return twin

    def __call__(self, piece: Tensor, start: int) -> Tensor:
        """Drop from one piece, which starts at an even position and, but for the last, is of even length."""
        if start != self._position:
            self._bits.advance((start - self._position) // 2)
        # The generator gives 64 bits at a time, for two numbers.
        pairs = -(-piece.numel() // 2)
        self._position = start + 2 * pairs
        drawn = self._bits.random_raw(pairs).astype("<u8", copy=False).view("<u4")[: piece.numel()]
        mask = torch.from_numpy(drawn < self._limit)
        return piece.mul_(mask.to(piece.device))


def random_share(density: float, *, seed: int, vector: int, name: str) -> RandomShare | None:
    """:class:`RandomShare`, or None where everything stays."""
    return None if density >= 1 else RandomShare(density, seed=seed, vector=vector, name=name)
