"""Selection of a delta's numbers: the largest, a band of magnitudes, or a random share."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from sparse_core.merging.arithmetic.pieces import Delta, piece_size, spans
from sparse_core.merging.arithmetic.thresholds import (
    Threshold,
    kept_count,
    magnitude_threshold,
    magnitude_thresholds,
)

#: Zeroes the dropped numbers in place, given a piece and the position of its first number.
Keep = Callable[[Tensor, int], Tensor]
_RANGE = 1 << 32


def largest(delta: Delta, density: float) -> Keep | None:
    """Return TIES trimming (Yadav et al. 2023) to the largest magnitudes; None if nothing is dropped."""
    return largest_of_each([delta], [density])[0]


def largest_of_each(deltas: Sequence[Delta], densities: Sequence[float]) -> list[Keep | None]:
    """Return :func:`largest` for deltas of one size; a GPU finds them together."""
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
        # Exact: subtracts the number itself, or zero.
        return self.lower.apply(piece, start).sub_(top)


def band(delta: Delta, density: float, gamma: float) -> Keep | None:
    """Return the selection of model breadcrumbs (Davari and Belilovsky 2024), without extremes.

    It keeps the share ``density``. It drops the share ``gamma`` of the largest magnitudes, less if
    ``density`` would not be reached, and fills up with the smallest.
    """
    count = delta.count
    keep = kept_count(density, count)
    top = min(int(gamma * count + 1e-6), count - keep)
    if keep >= count:
        return None
    lower = magnitude_threshold(delta, keep + top)
    return lower.apply if top == 0 else _Band(lower, magnitude_threshold(delta, top))


def _stream(seed: int, vector: int, name: str) -> np.random.PCG64DXSM:
    """Return random bits that depend only on the arguments."""
    words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], dtype="<u4")
    return np.random.PCG64DXSM(np.random.SeedSequence((seed, vector, *map(int, words))))


def _draw(bits: np.random.PCG64DXSM, count: int) -> np.ndarray:
    """Return integers from 0 to 2³² - 1; the generator produces two at a time."""
    drawn: np.ndarray = bits.random_raw(-(-count // 2)).astype("<u8", copy=False).view("<u4")[:count]
    return drawn


def random_words(seed: int, vector: int, name: str, count: int) -> np.ndarray:
    """Return the first integers from 0 to 2³² - 1 of the stream that :class:`RandomShare` reads."""
    return _draw(_stream(seed, vector, name), count)


class RandomShare:
    """Dropping of DARE (Yu et al. 2024): each number is kept with a probability.

    The random bits depend only on the seed, the vector's number, the tensor's name and the position in it.
    They do not depend on the order of tensors or on their division into pieces.

    Args:
        density: probability to keep, in (0, 1].
        seed: integer from 0.
        vector: number of the task vector in the merge.
        name: name of the tensor.
    """

    def __init__(self, density: float, *, seed: int, vector: int, name: str) -> None:
        self._limit = max(1, round(density * _RANGE))
        self._fresh = partial(_stream, seed, vector, name)
        self._bits = self._fresh()
        self._position = 0

    @property
    def probability(self) -> float:
        """Exact probability to keep a number; dividing by it preserves the expectation."""
        return self._limit / _RANGE

    def for_thread(self) -> RandomShare:
        """Return the same selection with its own state for another thread."""
        twin = copy.copy(self)
        twin._bits = self._fresh()
        twin._position = 0
        return twin

    def __call__(self, piece: Tensor, start: int) -> Tensor:
        """Drop from one piece that starts at an even position; only the last may have an odd length."""
        if start != self._position:
            self._bits.advance((start - self._position) // 2)
        self._position = start + piece.numel() + piece.numel() % 2
        mask = torch.from_numpy(_draw(self._bits, piece.numel()) < self._limit)
        return piece.mul_(mask.to(piece.device))


def random_share(density: float, *, seed: int, vector: int, name: str) -> RandomShare | None:
    """Return a :class:`RandomShare`, or None if everything is kept."""
    return None if density >= 1 else RandomShare(density, seed=seed, vector=vector, name=name)


def ranked_share(
    delta: Delta, shape: torch.Size, density: float, epsilon: float, *, seed: int, vector: int, name: str
) -> Keep | None:
    """Return DELLA's dropping (Deep, Bhardwaj and Poria 2024): larger magnitudes are kept more often.

    Probabilities rise linearly with the rank, from ``density - epsilon`` to ``density + epsilon``. Ranks run
    over the second dimension of a tensor, or over a whole vector. None if everything is kept.
    """
    if density >= 1 or not delta.count:
        return None
    if not 0 < density - epsilon <= density + epsilon < 1:
        raise ValueError(
            f"{delta.label or 'a delta'}: density {density:g} with epsilon {epsilon:g} leaves the range of"
            " probabilities: density - epsilon must be above 0 and density + epsilon below 1"
        )
    sizes = delta.buffer(delta.count)
    for start, stop in spans(0, delta.count, piece_size(delta.device)):
        delta.read(start, stop, sizes[start:]).abs_()
    delta.require_finite(sizes)
    rows = sizes.view(shape) if len(shape) > 1 else sizes.view(1, -1)
    ranks = rows.argsort(dim=1, stable=True).argsort(dim=1).to(torch.float64)
    middle = 0.5 if rows.shape[1] == 1 else 0.0
    probability = density - epsilon + 2 * epsilon * (ranks / max(1, rows.shape[1] - 1) + middle)
    limits = (probability * _RANGE).round_().to(torch.int64).reshape(-1)
    words = random_words(seed, vector, name, delta.count)
    mask = torch.from_numpy(words.astype(np.int64)).to(delta.device) < limits
    return lambda piece, start: piece.mul_(mask[start : start + piece.numel()])


def sums_of_magnitudes(delta: Delta, keep: Keep) -> tuple[float, float]:
    """Return Σ |number| of a delta and of its kept part; independent of the number of threads."""
    if isinstance(keep, RandomShare):
        keep = keep.for_thread()
    buffer = delta.buffer()
    sums = torch.zeros(2, dtype=torch.float64, device=delta.device)
    for start, stop in spans(0, delta.count, piece_size(delta.device)):
        piece = delta.read(start, stop, buffer)
        delta.require_finite(piece)
        sums[0] += piece.abs().sum(dtype=torch.float64)
        sums[1] += keep(piece, start).abs().sum(dtype=torch.float64)
    before, after = sums.tolist()
    return before, after
