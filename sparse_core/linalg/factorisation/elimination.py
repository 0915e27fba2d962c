"""Elimination on a fixed pattern, level by level.

Every entry of a factor is a gathered sum, ``a_ij - sum_k l_ik u_kj``, divided by a pivot or, for a diagonal
entry of Cholesky, rooted. The dependencies follow from the pattern, so the schedule is computed once. A
level takes a few tensor operations for any number of entries. Sums have a fixed order, so results are
reproducible.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg.factorisation.pattern import Pattern, UpperRows, find, products
from sparse_core.linalg.structure import segment_sum
from sparse_core.linalg.triangular.levels import Levels, level_schedule


@dataclass(frozen=True, eq=False)
class Elimination:
    """Schedule of a factorisation.

    Attributes:
        levels: entries by level; within a level the undivided ones come first.
        divided_from: place in ``levels.order`` of each level's first divided entry; on the host.
        term_ptr: (E + 1,) terms of the entry at each place.
        term_bounds: ``term_ptr`` at the bounds of the levels; on the host.
        left, right: (T,) entries whose products are subtracted.
        pivot: (E,) diagonal entry that divides each place; undefined for undivided ones.
        root: take the square root of diagonal entries (Cholesky).
    """

    levels: Levels
    divided_from: tuple[int, ...]
    term_ptr: Tensor
    term_bounds: tuple[int, ...]
    left: Tensor
    right: Tensor
    pivot: Tensor
    root: bool


def lu_elimination(pattern: Pattern) -> Elimination:
    """Schedule ``L U`` with a unit diagonal of ``L``; the pattern must have every diagonal entry."""
    diagonal = (pattern.col == pattern.row).nonzero()[:, 0]
    rows = UpperRows(diagonal + 1, pattern.row_ptr[1:] - diagonal - 1)
    entries = torch.arange(len(pattern.col), device=diagonal.device)
    terms = _terms(pattern, rows, entries, pattern.col)
    return _schedule(terms, diagonal[pattern.col], pattern.col < pattern.row, root=False)


def cholesky_elimination(lower: Pattern) -> Elimination:
    """Schedule ``L L^T`` on a lower pattern, which must have every diagonal entry."""
    below = (lower.col < lower.row).nonzero()[:, 0]
    # Row k of the strict upper triangle is column k of the lower one.
    column, order = torch.sort(lower.col[below], stable=True)
    entries = below[order]
    column_ptr = pointers_from_rows(column, lower.size)
    terms = _terms(lower, UpperRows(column_ptr[:-1], column_ptr.diff()), entries, lower.row[entries])
    diagonal = lower.row_ptr[1:] - 1
    return _schedule(terms, diagonal[lower.col], lower.col < lower.row, root=True)


def _terms(pattern: Pattern, rows: UpperRows, entries: Tensor, far: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return targets, left and right factors of the products on the pattern, sorted by target.

    Args:
        rows: strictly upper part of each row, as a range of ``entries``.
        far: column in the upper triangle of each of ``entries``.
    """
    below, keys = (pattern.col < pattern.row).nonzero()[:, 0], pattern.keys
    empty = below[:0]
    targets, lefts, rights = [empty], [empty], [empty]
    for left, place in products(pattern, below, rows):
        target = find(keys, pattern.row[left] * pattern.size + far[place])
        hit = (target >= 0).nonzero()[:, 0]
        targets.append(target[hit])
        lefts.append(left[hit])
        rights.append(entries[place[hit]])
    target, order = torch.sort(torch.cat(targets), stable=True)
    return target, torch.cat(lefts)[order], torch.cat(rights)[order]


def _schedule(
    terms: tuple[Tensor, Tensor, Tensor], pivot: Tensor, divided: Tensor, *, root: bool
) -> Elimination:
    target, left, right = terms
    size = len(pivot)
    quotient = divided.nonzero()[:, 0]
    waiter, order = torch.sort(torch.cat([target, target, quotient]), stable=True)
    needs = torch.cat([left, right, pivot[quotient]])[order]
    levels = level_schedule(pointers_from_rows(waiter, size), needs)
    bounds = torch.tensor(levels.bounds, device=pivot.device)

    # Within a level the undivided entries come first; each part keeps the order of the entries.
    level = torch.searchsorted(bounds[1:], torch.arange(size, device=pivot.device), right=True)
    by_kind = torch.sort(2 * level + divided[levels.order], stable=True).indices
    place_of_entry = torch.empty_like(levels.order)
    ordered = levels.order[by_kind]
    place_of_entry[ordered] = torch.arange(size, device=pivot.device)
    undivided = torch.bincount(level[~divided[ordered]], minlength=len(levels))

    placed, by_place = torch.sort(place_of_entry[target], stable=True)
    term_ptr = pointers_from_rows(placed, size)
    return Elimination(
        Levels(ordered, levels.bounds),
        tuple((bounds[:-1] + undivided).tolist()),
        term_ptr,
        tuple(term_ptr[bounds].tolist()),
        left[by_place],
        right[by_place],
        pivot[ordered],
        root,
    )


def eliminate(plan: Elimination, values: Tensor) -> Tensor:
    """Compute the factors; a zero pivot gives infinities and a negative root NaN, for the caller to check.

    Args:
        values: (E,) matrix entries on the pattern, zero at fill.

    Returns:
        (E,) entries of the factors on the same pattern.
    """
    factor = values.clone()
    bounds = plan.levels.bounds
    for level, (first, last) in enumerate(pairwise(bounds)):
        entry = plan.levels.order[first:last]
        result = factor[entry]
        begin, end = plan.term_bounds[level], plan.term_bounds[level + 1]
        if end > begin:
            term = factor[plan.left[begin:end]] * factor[plan.right[begin:end]]
            result -= segment_sum(term, plan.term_ptr[first : last + 1])
        middle = plan.divided_from[level]
        if plan.root and middle > first:
            result[: middle - first].sqrt_()
        if middle < last:
            result[middle - first :] /= factor[plan.pivot[middle:last]]
        factor[entry] = result
    return factor
