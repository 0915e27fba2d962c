"""Magnitude that stripes of m columns keep under n:m, also with one column exchanged."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

# Above this, torch's own selection is faster than a sorting network.
_NETWORK_LIMIT = 16
# Numbers that a step of the search holds at once: on a CPU as many as fit in a core's cache, which is three
# times as fast as memory; on a GPU enough to amortise launches.
_CACHED, _LAUNCHED = 1 << 17, 1 << 24


class Slots(NamedTuple):
    """Magnitude that each stripe keeps, as a function of each of its columns.

    With column i replaced by a column b, the stripe keeps
    ``without[i] + sum over rows of max(0, b - threshold[i])``, for any n below m.

    Attributes:
        threshold: (..., m, rows), the n-th largest magnitude of the other m - 1 columns.
        without: (..., m), the retained magnitude of the other m - 1 columns.
        retained: (...,), the retained magnitude of the whole stripe.
    """

    threshold: Tensor
    without: Tensor
    retained: Tensor


def retained_magnitude(stripes: Tensor, n: int) -> Tensor:
    """Return the sum (...,) of the n largest of m magnitudes in ``stripes`` (..., m, rows), over all rows."""
    return _excess_sum(_largest(stripes, n)).sum(dim=-1)


def stripe_slots(stripes: Tensor, n: int) -> Slots:
    """Return the :class:`Slots` of magnitudes (..., m, rows), for n below m."""
    largest = _largest(stripes, n + 1)
    last_kept, first_dropped = largest[n - 1].unsqueeze(-2), largest[n].unsqueeze(-2)
    retained = _excess_sum(largest[:n]).sum(dim=-1)
    # The first dropped number if the column is kept, the last kept one if it is not.
    threshold = (last_kept + first_dropped) - torch.minimum(stripes, last_kept).maximum(first_dropped)
    # Without a kept column the first dropped one replaces it; without another nothing changes.
    lost = (stripes - first_dropped).relu_().sum(dim=-1)
    return Slots(threshold, retained.unsqueeze(-1) - lost, retained)


def excess_sums(columns: Tensor, threshold: Tensor) -> Tensor:
    """Return (..., t, c): the sum over rows of ``max(0, column - threshold)`` for all pairs.

    ``columns`` is (..., c, rows) and ``threshold`` (..., t, rows).
    """
    above = torch.maximum(columns.unsqueeze(-3), threshold.unsqueeze(-2)).sum(dim=-1)
    return above - threshold.sum(dim=-1).unsqueeze(-1)


def tile_size(numbers: int, device: torch.device) -> int:
    """Return how many pieces of ``numbers`` fit in a CPU core's cache, or in a share of a GPU's memory."""
    return max(1, (_CACHED if device.type == "cpu" else _LAUNCHED) // max(1, numbers))


def row_bound(magnitudes: Tensor, n: int, m: int) -> float:
    """Return the upper bound of all permutations: each row of (columns, rows) keeps its largest n / m."""
    kept = magnitudes.shape[0] // m * n
    return float(magnitudes.topk(kept, dim=0).values.sum(dtype=torch.float64))


def matrix_retained(matrix: Tensor, n: int, m: int) -> float:
    """Return the magnitude that plain n:m pruning keeps of ``matrix`` (rows, columns), in float64."""
    rows, columns = matrix.shape
    groups = matrix.detach().abs().double().reshape(rows, columns // m, m)
    return float(groups.topk(n, dim=2).values.sum())


def _largest(stripes: Tensor, count: int) -> list[Tensor]:
    """Return the ``count`` largest along the second to last dimension, in falling order."""
    m = stripes.shape[-2]
    if m > _NETWORK_LIMIT:
        return list(stripes.topk(count, dim=-2).values.unbind(-2))
    ordered = list(stripes.unbind(-2))
    for first, second in sorting_network(m):
        high = torch.maximum(ordered[first], ordered[second])
        ordered[second] = torch.minimum(ordered[first], ordered[second])
        ordered[first] = high
    return ordered[:count]


def _excess_sum(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@cache
def sorting_network(m: int) -> tuple[tuple[int, int], ...]:
    """Return comparators (i, j), i < j, of Batcher's odd-even merge sort of m numbers (Knuth, 5.2.2M)."""
    comparators: list[tuple[int, int]] = []
    top = 1 << max(0, (m - 1).bit_length() - 1)
    step = top
    while step > 0:
        outer, remainder, distance = top, 0, step
        while True:
            comparators += [(i, i + distance) for i in range(m - distance) if i & step == remainder]
            if outer == step:
                break
            distance, outer, remainder = outer - step, outer >> 1, step
        step >>= 1
    return tuple(comparators)
