"""What stripes of m columns keep under n:m, and what they would keep with one column exchanged."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

# Above this the comparators of a sorting network cost more than torch's own selection.
_NETWORK_LIMIT = 16


class Slots(NamedTuple):
    """What each stripe keeps, and how that depends on each of its columns.

    With column i taken out and a column b put in, the stripe keeps
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
    """Sum of the n largest of m numbers, over all rows.

    Args:
        stripes: (..., m, rows) magnitudes.
        n: how many of each m are kept.

    Returns:
        (...,) in the type of ``stripes``.
    """
    largest = _largest(stripes, n)
    return torch.stack(largest).sum(dim=0).sum(dim=-1)


def stripe_slots(stripes: Tensor, n: int) -> Slots:
    """See :class:`Slots`.

    Args:
        stripes: (..., m, rows) magnitudes.
        n: how many of each m are kept, below m.
    """
    largest = _largest(stripes, n + 1)
    last_kept, first_dropped = largest[n - 1].unsqueeze(-2), largest[n].unsqueeze(-2)
    retained = torch.stack(largest[:n]).sum(dim=0).sum(dim=-1)
    kept = stripes >= last_kept
    threshold = torch.where(kept, first_dropped, last_kept)
    # Without a kept column the first dropped one takes its place; without another nothing changes.
    lost = torch.where(kept, stripes - first_dropped, torch.zeros_like(stripes)).sum(dim=-1)
    return Slots(threshold, retained.unsqueeze(-1) - lost, retained)


def row_bound(magnitudes: Tensor, n: int, m: int) -> float:
    """What no permutation can exceed: each row keeps the n / m of its columns that are largest.

    Args:
        magnitudes: (columns, rows).
        n: kept in a group.
        m: columns in a group.
    """
    kept = magnitudes.shape[0] // m * n
    return float(magnitudes.topk(kept, dim=0).values.sum(dtype=torch.float64))


def matrix_retained(matrix: Tensor, n: int, m: int) -> float:
    """Sum of the magnitudes that plain n:m pruning keeps of ``matrix`` (rows, columns), in float64."""
    rows, columns = matrix.shape
    groups = matrix.detach().abs().double().reshape(rows, columns // m, m)
    return float(groups.topk(n, dim=2).values.sum())


def _largest(stripes: Tensor, count: int) -> list[Tensor]:
    """The ``count`` largest along the second to last dimension, in falling order."""
    m = stripes.shape[-2]
    if m > _NETWORK_LIMIT:
        return list(stripes.topk(count, dim=-2).values.unbind(-2))
    ordered = list(stripes.unbind(-2))
    for first, second in sorting_network(m):
        high = torch.maximum(ordered[first], ordered[second])
        ordered[second] = torch.minimum(ordered[first], ordered[second])
        ordered[first] = high
    return ordered[:count]


@cache
def sorting_network(m: int) -> tuple[tuple[int, int], ...]:
    """Comparators (i, j), i < j, of Batcher's odd-even merge sort of m numbers (Knuth, 5.2.2M)."""
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
