"""Greedy exchange of columns between stripes until no pair of stripes can be improved."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sparse_core.nm.permutation.stripes import retained_magnitude, stripe_slots

# Gains below this share of what a pair of stripes keeps are rounding, not progress.
_ROUNDING = 1e-6
# Numbers that one chunk of an exhaustive search may hold.
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Arrangement:
    """Columns in stripes, with what every single exchange would give.

    Attributes:
        order: (stripes, m) int64 column numbers.
        retained: (stripes,) what each stripe keeps.
        replaced: (columns, columns); [position, column] is what the stripe of the position keeps with the
            column put there.
    """

    order: Tensor
    retained: Tensor
    replaced: Tensor

    @property
    def total(self) -> float:
        """What all stripes keep together."""
        return float(self.retained.sum(dtype=torch.float64))


def arrange(magnitudes: Tensor, order: Tensor, n: int) -> Arrangement:
    """The arrangement of ``magnitudes`` (columns, rows) in stripes ``order`` (stripes, m)."""
    replaced, retained = _replacements(magnitudes, order, n)
    return Arrangement(order, retained, replaced)


def rearranged(arrangement: Arrangement, magnitudes: Tensor, order: Tensor, n: int) -> Arrangement:
    """``arrangement`` changed to ``order``; only the stripes that differ are computed again."""
    touched = (order != arrangement.order).any(dim=1).nonzero().flatten()
    if len(touched) == 0:
        return arrangement
    fresh, kept = _replacements(magnitudes, order[touched], n)
    stripes, m = order.shape
    replaced = arrangement.replaced.clone().reshape(stripes, m, -1)
    replaced[touched] = fresh.reshape(len(touched), m, -1)
    return replace(
        arrangement,
        order=order,
        retained=arrangement.retained.index_copy(0, touched, kept),
        replaced=replaced.reshape(stripes * m, -1),
    )


def descend(arrangement: Arrangement, magnitudes: Tensor, n: int) -> Arrangement:
    """Take the best exchange of two columns between pairs of stripes until none gains.

    All pairs of stripes that are each other's best partner exchange in the same round, so their gains add
    up; what an exchange gave is checked against the exact sum before it is kept.
    """
    while True:
        proposed = _best_swaps(arrangement)
        if proposed is None:
            return arrangement
        changed = rearranged(arrangement, magnitudes, proposed, n)
        if changed.total <= arrangement.total:
            return arrangement
        arrangement = changed


def descend_exhaustively(arrangement: Arrangement, magnitudes: Tensor, n: int) -> Arrangement:
    """Give every pair of stripes its best division into two, until no pair of stripes gains.

    The 35 distinct divisions of eight columns, for m = 4, are those of Pool and Yu, "Channel Permutations
    for N:M Sparsity" (NeurIPS 2021).
    """
    divisions = canonical_divisions(arrangement.order.shape[1]).to(arrangement.order.device)
    stripes = len(arrangement.order)
    pairs = torch.triu_indices(stripes, stripes, offset=1, device=arrangement.order.device).T
    gains, choice = _division_gains(arrangement, magnitudes, pairs, divisions, n)
    while True:
        taken = disjoint_pairs(_as_matrix(gains, pairs, stripes))
        if len(taken) == 0:
            return arrangement
        number = _pair_number(taken, stripes)
        columns = arrangement.order[taken].flatten(1)
        order = arrangement.order.clone()
        order[taken] = columns.gather(1, divisions[choice[number]]).reshape(len(taken), 2, -1)
        changed = rearranged(arrangement, magnitudes, order, n)
        if changed.total <= arrangement.total:
            return arrangement
        arrangement = changed
        stale = torch.isin(pairs, taken).any(dim=1).nonzero().flatten()
        fresh = _division_gains(arrangement, magnitudes, pairs[stale], divisions, n)
        gains, choice = gains.index_copy(0, stale, fresh[0]), choice.index_copy(0, stale, fresh[1])


def canonical_divisions(m: int) -> Tensor:
    """(C(2m, m) / 2, 2m) int64: every way to divide 2m columns into two stripes, once each."""
    rest = range(1, 2 * m)
    firsts = [(0, *chosen) for chosen in itertools.combinations(rest, m - 1)]
    return torch.tensor([[*first, *(i for i in rest if i not in first)] for first in firsts])


def disjoint_pairs(gains: Tensor) -> Tensor:
    """Pairs of stripes, each the best for both of its stripes.

    Args:
        gains: (stripes, stripes), symmetric; only positive numbers count.

    Returns:
        (pairs, 2) int64 with the lower stripe first, empty where nothing gains.
    """
    best, partner = gains.max(dim=1)
    stripe = torch.arange(len(gains), device=gains.device)
    mutual = (best > 0) & (partner[partner] == stripe) & (stripe < partner)
    first = mutual.nonzero().flatten()
    if len(first) == 0 and len(gains) and float(best.max()) > 0:
        # Equal gains can form a ring without a mutual pair.
        first = best.argmax().reshape(1)
    return torch.stack([first, partner[first]], dim=1).sort(dim=1).values


def _replacements(magnitudes: Tensor, order: Tensor, n: int) -> tuple[Tensor, Tensor]:
    slots = stripe_slots(magnitudes[order], n)
    threshold = slots.threshold.flatten(0, 1)
    # sum max(0, b - t) = (sum |b - t| + sum b - sum t) / 2, and the first sum is a distance.
    distance = torch.cdist(threshold, magnitudes, p=1.0)
    added = (distance + magnitudes.sum(dim=1) - threshold.sum(dim=1, keepdim=True)) / 2
    return slots.without.flatten()[:, None] + added, slots.retained


def _best_swaps(arrangement: Arrangement) -> Tensor | None:
    """The order after the best exchanges between disjoint pairs of stripes; None where nothing gains."""
    order = arrangement.order
    stripes, m = order.shape
    by_position = arrangement.replaced[:, order.flatten()]
    kept = arrangement.retained.repeat_interleave(m)
    before = kept[:, None] + kept
    gains = by_position + by_position.T - before - _ROUNDING * before
    in_stripes = gains.reshape(stripes, m, stripes, m).transpose(1, 2).reshape(stripes, stripes, m * m)
    best, swap = in_stripes.max(dim=2)
    best.fill_diagonal_(-torch.inf)
    taken = disjoint_pairs(best)
    if len(taken) == 0:
        return None
    chosen = swap[taken[:, 0], taken[:, 1]]
    result = order.clone()
    result[taken[:, 0], chosen // m] = order[taken[:, 1], chosen % m]
    result[taken[:, 1], chosen % m] = order[taken[:, 0], chosen // m]
    return result


def _division_gains(
    arrangement: Arrangement, magnitudes: Tensor, pairs: Tensor, divisions: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """For each of ``pairs`` (P, 2): the gain of its best division, and which it is."""
    m = arrangement.order.shape[1]
    chunk = max(1, _CHUNK // (divisions.numel() * magnitudes.shape[1]))
    gains, choices = [], []
    for part in pairs.split(chunk):
        columns = arrangement.order[part].flatten(1)[:, divisions].unflatten(2, (2, m))
        kept = retained_magnitude(magnitudes[columns], n).sum(dim=2)
        best, choice = kept.max(dim=1)
        before = arrangement.retained[part].sum(dim=1)
        gains.append(best - before - _ROUNDING * before)
        choices.append(choice)
    return torch.cat(gains), torch.cat(choices)


def _as_matrix(gains: Tensor, pairs: Tensor, stripes: int) -> Tensor:
    matrix = gains.new_full((stripes, stripes), -torch.inf)
    matrix[pairs[:, 0], pairs[:, 1]] = gains
    matrix[pairs[:, 1], pairs[:, 0]] = gains
    return matrix


def _pair_number(taken: Tensor, stripes: int) -> Tensor:
    """Where pairs (first < second) stand in the row-major list of all of them."""
    first, second = taken[:, 0], taken[:, 1]
    return first * (2 * stripes - first - 1) // 2 + second - first - 1
