"""What stripes of m columns keep under n:m, and what they would keep with one column exchanged."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

# Above this the comparators of a sorting network cost more than torch's own selection.
_NETWORK_LIMIT = 16
# Numbers that a step of the search holds at a time: as many as stay in the cache of a core, where the search
# is three times as fast as from memory, and on a GPU so many that launches do not count.
_CACHED, _LAUNCHED = 1 << 17, 1 << 24


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
    return _added(_largest(stripes, n)).sum(dim=-1)


def stripe_slots(stripes: Tensor, n: int) -> Slots:
    """See :class:`Slots`.

    Args:
        stripes: (..., m, rows) magnitudes.
        n: how many of each m are kept, below m.
    """
    largest = _largest(stripes, n + 1)
    last_kept, first_dropped = largest[n - 1].unsqueeze(-2), largest[n].unsqueeze(-2)
    retained = _added(largest[:n]).sum(dim=-1)
    # The first dropped number where the column is kept and the last kept one where it is not.
    threshold = (last_kept + first_dropped) - torch.minimum(stripes, last_kept).maximum(first_dropped)
    # Without a kept column the first dropped one takes its place; without another nothing changes.
    lost = (stripes - first_dropped).relu_().sum(dim=-1)
    return Slots(threshold, retained.unsqueeze(-1) - lost, retained)


def added(columns: Tensor, threshold: Tensor) -> Tensor:
    """Sum over rows of ``max(0, column - threshold)`` for all pairs of the two.

    Args:
        columns: (..., c, rows) magnitudes.
        threshold: (..., t, rows); the leading dimensions are those of ``columns``.

    Returns:
        (..., t, c).
    """
    above = torch.maximum(columns.unsqueeze(-3), threshold.unsqueeze(-2)).sum(dim=-1)
    return above - threshold.sum(dim=-1).unsqueeze(-1)


def tile_size(numbers: int, device: torch.device) -> int:
    """How many pieces of ``numbers`` fit into the cache of a CPU core, or into a share of a GPU's memory."""
    return max(1, (_CACHED if device.type == "cpu" else _LAUNCHED) // max(1, numbers))


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


def _added(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


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
