"""The largest magnitudes of a tensor, found by their threshold instead of a sort.

An evenly spaced sample gives a bracket for the threshold. One pass counts the magnitudes above it and gathers
the one or two per cent within, and a partial sort of those gives the exact value. If the sample misleads, the
bracket is widened and the pass repeated, so the result never depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparse_core.merging.arithmetic.pieces import Delta, piece_size, spans

#: Smaller tensors are partially sorted as a whole.
_SMALL = 1 << 17
_SAMPLE = 1 << 16
#: Total size of tensors whose thresholds a GPU finds at once.
_TOGETHER = 1 << 25
#: Half width of the bracket in standard deviations of a rank in the sample.
_SIGMAS = 6.0


class Threshold(NamedTuple):
    """Threshold of the largest magnitudes; ties are kept up to a position.

    Attributes:
        value: magnitude; infinite if nothing is kept.
        cut: flat position; magnitudes equal to ``value`` are kept before it and dropped from it on.
        kept: how many numbers are kept.
    """

    value: float
    cut: int
    kept: int

    def apply(self, piece: Tensor, start: int) -> Tensor:
        """Zero the dropped numbers of a flat piece in place; ``start`` is its position in the tensor."""
        before = min(max(self.cut - start, 0), piece.numel())
        if before:
            _shrink(piece[:before], _next_smaller(self.value, piece.dtype))
        if before < piece.numel():
            _shrink(piece[before:], self.value)
        return piece


def kept_count(density: float, count: int) -> int:
    """Return how many of ``count`` numbers a density keeps: rounded down, at least one.

    Rounding errors do not count: 0.29 of 100 is 29.
    """
    return min(count, max(1, math.floor(density * count + 1e-6))) if count else 0


def magnitude_threshold(delta: Delta, keep: int) -> Threshold:
    """Return the threshold that keeps exactly the ``keep`` largest magnitudes; ties go to lower positions."""
    if keep >= delta.count:
        return Threshold(0.0, delta.count, delta.count)
    if keep <= 0:
        return Threshold(math.inf, 0, 0)
    if delta.device.type != "cpu":
        return _device_thresholds([delta], keep)[0]
    if delta.count <= _SMALL:
        return _sorted_threshold(delta, keep)
    low, high = _bracket(delta, keep)
    found = _scan(delta, low, high)
    # The last bracket always holds the threshold, even if the sample misleads.
    if found.above >= keep:
        found = _scan(delta, high, math.inf)
    elif found.above + found.inside < keep:
        found = _scan(delta, 0.0, low)
    need = keep - found.above
    if found.candidates is None:
        value, ties = low, found.inside
    else:
        place = len(found.candidates) - need
        value = float(np.partition(found.candidates, place)[place])
        need -= int(np.count_nonzero(found.candidates > value))
        ties = int(np.count_nonzero(found.candidates == value))
    return Threshold(value, delta.count if need == ties else _position_of_tie(delta, value, need) + 1, keep)


def magnitude_thresholds(deltas: Sequence[Delta], keeps: Sequence[int]) -> list[Threshold]:
    """Return :func:`magnitude_threshold` for deltas of one size; on a GPU as many at once as fit."""
    if deltas[0].device.type == "cpu":
        return [magnitude_threshold(delta, keep) for delta, keep in zip(deltas, keeps, strict=True)]
    found: list[Threshold] = []
    alike = groupby(zip(deltas, keeps, strict=True), key=lambda pair: (pair[0].dtype, pair[1]))
    for (_, keep), pairs in alike:
        group = [delta for delta, _ in pairs]
        if not 0 < keep < group[0].count:
            found += [magnitude_threshold(delta, keep) for delta in group]
            continue
        for start, stop in spans(0, len(group), max(1, _TOGETHER // group[0].count)):
            found += _device_thresholds(group[start:stop], keep)
    return found


def _sorted_threshold(delta: Delta, keep: int) -> Threshold:
    sizes = _read_whole(delta).abs().numpy()
    delta.require_finite_number(float(sizes.max()))
    place = delta.count - keep
    value = float(np.partition(sizes, place)[place])
    need = keep - int(np.count_nonzero(sizes > value))
    ties = np.flatnonzero(sizes == value)
    return Threshold(value, delta.count if need == len(ties) else int(ties[need - 1]) + 1, keep)


def _device_thresholds(deltas: Sequence[Delta], keep: int) -> list[Threshold]:
    """Return thresholds of deltas of one size and type from torch's top-k selection.

    All at once and read back once, because a GPU spends longer starting work than doing it.
    """
    count = deltas[0].count
    sizes = torch.stack([_read_whole(delta) for delta in deltas]).abs_()
    # Select on the side of the threshold with fewer numbers.
    if 2 * keep <= count:
        values = sizes.topk(keep, sorted=False).values.amin(dim=1)
    else:
        values = sizes.topk(count - keep + 1, largest=False, sorted=False).values.amax(dim=1)
    # float64 holds counts and thresholds exactly.
    above, ties = ((rule(sizes, values[:, None])).sum(dim=1) for rule in (torch.gt, torch.eq))
    facts = torch.stack([fact.double() for fact in (sizes.amax(dim=1), values, above, ties)], dim=1)
    found = []
    for delta, row, (most, value, larger, equal) in zip(deltas, sizes, facts.tolist(), strict=True):
        delta.require_finite_number(most)
        need = keep - int(larger)
        cut = count if need == int(equal) else int(torch.nonzero(row == value)[need - 1]) + 1
        found.append(Threshold(value, cut, keep))
    return found


def _read_whole(delta: Delta) -> Tensor:
    """Return all numbers; the delta's own tensor if it needs no computation."""
    if delta.base is None and delta.values.dtype == delta.dtype:
        return delta.values
    whole = delta.buffer(delta.count)
    for start, stop in spans(0, delta.count, piece_size(delta.device)):
        delta.read(start, stop, whole[start:stop])
    return whole


def _bracket(delta: Delta, keep: int) -> tuple[float, float]:
    """Return two magnitudes that most probably enclose the threshold."""
    sizes = np.sort(delta.sample(_SAMPLE).abs().numpy())
    delta.require_finite(torch.from_numpy(sizes))
    share = keep / delta.count
    margin = _SIGMAS * math.sqrt(len(sizes) * share * (1 - share)) + 8
    place = len(sizes) * (1 - share)
    first, last = math.floor(place - margin), math.ceil(place + margin)
    low = float(sizes[first]) if first >= 0 else 0.0
    high = float(sizes[last]) if last < len(sizes) else math.inf
    return low, high


class _Scan(NamedTuple):
    """Counts of magnitudes above and within a bracket, and the magnitudes within if they differ."""

    above: int
    inside: int
    candidates: np.ndarray | None


def _scan(delta: Delta, low: float, high: float) -> _Scan:
    buffer = delta.buffer()
    over, within = (np.empty(buffer.shape, dtype=bool) for _ in range(2))
    above = inside = 0
    parts = []
    for start, stop in spans(0, delta.count):
        # numpy is faster than torch on pieces of this size.
        sizes = delta.read(start, stop, buffer).abs_().numpy()
        delta.require_finite_number(float(sizes.max()))
        top = np.greater(sizes, high, out=over[: stop - start])
        band = np.greater_equal(sizes, low, out=within[: stop - start])
        np.logical_xor(band, top, out=band)
        above += int(np.count_nonzero(top))
        inside += int(np.count_nonzero(band))
        if low < high:
            parts.append(sizes[band])
    return _Scan(above, inside, np.concatenate(parts) if parts else None)


def _position_of_tie(delta: Delta, value: float, number: int) -> int:
    """Return the position of the ``number``-th magnitude equal to ``value``, counted from 1."""
    buffer = delta.buffer()
    for start, stop in spans(0, delta.count):
        places = np.flatnonzero((delta.read(start, stop, buffer).abs_() == value).numpy())
        if number <= len(places):
            return start + int(places[number - 1])
        number -= len(places)
    raise AssertionError("the ties were counted before")


def _shrink(piece: Tensor, value: float) -> None:
    """Zero magnitudes up to ``value`` in one pass."""
    torch.hardshrink(piece, value, out=piece)


def _next_smaller(value: float, dtype: torch.dtype) -> float:
    """Return the next smaller magnitude of a type; 0 for 0, since zeros stay zero."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    return float(np.nextafter(kind(value), kind(0)))
