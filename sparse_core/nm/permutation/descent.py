"""Greedy exchange of columns between stripes until no pair of stripes improves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.nm.permutation.stripes import excess_sums, retained_magnitude, stripe_slots, tile_size

# Smaller gains, as a share of what a pair of stripes keeps, are rounding errors.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Arrangement:
    """Columns in stripes, with the effect of every single exchange.

    Attributes:
        order: (stripes, m) int64 column numbers.
        retained: (stripes,) magnitude that each stripe keeps.
        replaced: (columns, columns); [position, column] is what the position's stripe keeps with the column
            there.
        gain: (stripes, stripes) of the best exchange of two columns; -inf on the diagonal.
        swap: (stripes, stripes) int64, that exchange: position in the first stripe times m, plus position in
            the second.
    """

    order: Tensor
    retained: Tensor
    replaced: Tensor
    gain: Tensor
    swap: Tensor

    @property
    def total(self) -> float:
        """Magnitude that all stripes keep."""
        return float(self.retained.sum(dtype=torch.float64))


def arrange(magnitudes: Tensor, order: Tensor, n: int) -> Arrangement:
    """Return the arrangement of ``magnitudes`` (columns, rows) in stripes ``order`` (stripes, m)."""
    replaced, retained = _replacements(magnitudes, order, n)
    every = torch.arange(len(order), device=order.device)
    return Arrangement(order, retained, replaced, *_best_swaps(order, retained, replaced, every))


def rearrange(arrangement: Arrangement, magnitudes: Tensor, order: Tensor, n: int) -> Arrangement:
    """Return ``arrangement`` changed to ``order``; recomputes only what involves changed stripes."""
    touched = (order != arrangement.order).any(dim=1).nonzero().flatten()
    if len(touched) == 0:
        return arrangement
    fresh, kept = _replacements(magnitudes, order[touched], n)
    stripes, m = order.shape
    replaced = arrangement.replaced.clone()
    replaced.reshape(stripes, m, -1)[touched] = fresh.reshape(len(touched), m, -1)
    retained = arrangement.retained.index_copy(0, touched, kept)
    best, chosen = _best_swaps(order, retained, replaced, touched)
    gain, swap = arrangement.gain.clone(), arrangement.swap.clone()
    gain[touched], gain[:, touched] = best, best.T
    swap[touched], swap[:, touched] = chosen, (chosen % m * m + chosen // m).T
    return Arrangement(order, retained, replaced, gain, swap)


def descend(arrangement: Arrangement, magnitudes: Tensor, n: int) -> Arrangement:
    """Take the best exchange of two columns between pairs of stripes until none gains.

    All pairs of stripes that are each other's best partner exchange in the same round, so their gains add up.
    The exact sum is checked before an exchange is kept.
    """
    while True:
        taken = disjoint_pairs(arrangement.gain)
        if len(taken) == 0:
            return arrangement
        changed = rearrange(arrangement, magnitudes, _exchange_columns(arrangement, taken), n)
        if changed.total <= arrangement.total:
            return arrangement
        arrangement = changed


def descend_exhaustively(arrangement: Arrangement, magnitudes: Tensor, n: int) -> Arrangement:
    """Give every pair of stripes its best division into two, until no pair of stripes gains.

    The 35 distinct divisions of eight columns, for m = 4, are those of Pool and Yu, "Channel Permutations for
    N:M Sparsity" (NeurIPS 2021).
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
        changed = rearrange(arrangement, magnitudes, order, n)
        if changed.total <= arrangement.total:
            return arrangement
        arrangement = changed
        stale = torch.isin(pairs, taken).any(dim=1).nonzero().flatten()
        fresh = _division_gains(arrangement, magnitudes, pairs[stale], divisions, n)
        gains, choice = gains.index_copy(0, stale, fresh[0]), choice.index_copy(0, stale, fresh[1])


def canonical_divisions(m: int) -> Tensor:
    """Return (C(2m, m) / 2, 2m) int64: every division of 2m columns into two stripes, once each."""
    rest = range(1, 2 * m)
    firsts = [(0, *chosen) for chosen in itertools.combinations(rest, m - 1)]
    return torch.tensor([[*first, *(i for i in rest if i not in first)] for first in firsts])


def disjoint_pairs(gains: Tensor) -> Tensor:
    """Return pairs of stripes (pairs, 2) int64, lower first, that are each other's best partner.

    ``gains`` (stripes, stripes) is symmetric; only positive gains count.
    """
    best, partner = gains.max(dim=1)
    stripe = torch.arange(len(gains), device=gains.device)
    mutual = (best > 0) & (partner[partner] == stripe) & (stripe < partner)
    first = mutual.nonzero().flatten()
    if len(first) == 0 and len(gains) and float(best.max()) > 0:
        # Equal gains can form a cycle without a mutual pair.
        first = best.argmax().reshape(1)
    return torch.stack([first, partner[first]], dim=1).sort(dim=1).values


def _replacements(magnitudes: Tensor, order: Tensor, n: int) -> tuple[Tensor, Tensor]:
    slots = stripe_slots(magnitudes[order], n)
    threshold = slots.threshold.flatten(0, 1)
    # Tiles of both, so that each number is used several times once it is read.
    across = tile_size(8 * magnitudes.shape[1], magnitudes.device)
    gained = [
        torch.cat([excess_sums(part, upper) for part in magnitudes.split(across)], dim=1)
        for upper in threshold.split(8 * max(1, across // len(magnitudes)))
    ]
    return slots.without.flatten()[:, None] + torch.cat(gained), slots.retained


def _best_swaps(order: Tensor, retained: Tensor, replaced: Tensor, stripes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows ``stripes`` of :class:`Arrangement`'s ``gain`` and ``swap``."""
    count, m = order.shape
    here = (stripes[:, None] * m + torch.arange(m, device=order.device)).flatten()
    after = replaced[here][:, order.flatten()] + replaced[:, order[stripes].flatten()].T
    before = retained[stripes][:, None] + retained
    by_pair = after.reshape(-1, m, count, m).transpose(1, 2).flatten(2)
    best, swap = by_pair.max(dim=2)
    gain = best - before - _ROUNDING * before
    gain[torch.arange(len(stripes), device=order.device), stripes] = -torch.inf
    return gain, swap


def _exchange_columns(arrangement: Arrangement, taken: Tensor) -> Tensor:
    """Return the order after the best exchanges between the pairs of stripes ``taken`` (pairs, 2)."""
    order, m = arrangement.order, arrangement.order.shape[1]
    first, second = taken.unbind(1)
    chosen = arrangement.swap[first, second]
    result = order.clone()
    result[first, chosen // m] = order[second, chosen % m]
    result[second, chosen % m] = order[first, chosen // m]
    return result


def _division_gains(
    arrangement: Arrangement, magnitudes: Tensor, pairs: Tensor, divisions: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """Return the gain of the best division of each of ``pairs`` (P, 2), and its number."""
    m = arrangement.order.shape[1]
    chunk = tile_size(divisions.numel() * magnitudes.shape[1], magnitudes.device)
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
    """Return the positions of pairs (first < second) in the row-major list of all pairs."""
    first, second = taken[:, 0], taken[:, 1]
    return first * (2 * stripes - first - 1) // 2 + second - first - 1
