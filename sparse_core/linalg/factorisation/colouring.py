"""Multicolour ordering: with uncoupled unknowns per colour, a triangular solve has a level per colour."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.formats.indexing import pointers_from_rows
from sparse_core.linalg.operands import check_square
from sparse_core.linalg.structure import row_of_entry
from sparse_core.linalg.triangular.levels import Levels, expand_segments, level_schedule

#: Longest chain of greedy colouring in the given order, relative to the root of the number of unknowns.
_MOST_STEPS = 8


class MulticolourOrder(NamedTuple):
    """Ordering of the unknowns by colour.

    Attributes:
        permutation: (M,) int64; place ``p`` of the new order holds unknown ``permutation[p]``. Within a
            colour the unknowns keep their order.
        colour_ptr: colour ``c`` takes the places ``colour_ptr[c]`` to ``colour_ptr[c + 1]``; on the host.
    """

    permutation: Tensor
    colour_ptr: tuple[int, ...]

    @property
    def colours(self) -> int:
        """Number of colours."""
        return len(self.colour_ptr) - 1


def multicolour_order(matrix: CSR) -> MulticolourOrder:
    """Order the unknowns of a square matrix so that those of one colour are not coupled.

    The graph is the pattern of ``matrix`` and its transpose. Two colours are found whenever two suffice
    (5-point and 7-point stencils). Otherwise colours are greedy, in the given order or, to avoid a long
    chain, by largest degree first. Independent vertices are coloured at once (Jones and Plassmann, "A
    parallel graph coloring heuristic", 1993). The result is reproducible on every device and cached with the
    structure.

    Args:
        matrix: (M, M) CSR on any device.

    Raises:
        TypeError: not CSR.
        ValueError: not square.
    """
    check_square(matrix)
    return matrix.cached("multicolour order", lambda: _order(matrix))


def _order(matrix: CSR) -> MulticolourOrder:
    size = matrix.shape[0]
    row, col = row_of_entry(matrix).to(torch.int64), matrix.col.to(torch.int64)
    coupled = (row != col).nonzero()[:, 0]
    row, col = row[coupled], col[coupled]
    colour = _two_colours(row, col, size)
    if colour is None:
        colour = _greedy_colours(row, col, size)
    permutation = torch.sort(colour, stable=True).indices
    counts = torch.bincount(colour)
    return MulticolourOrder(permutation, (0, *torch.cumsum(counts, 0).tolist()))


def _two_colours(row: Tensor, col: Tensor, size: int) -> Tensor | None:
    """Return the parity of each vertex, or None if there is an odd cycle.

    The double cover has vertices ``(v, even)`` and ``(v, odd)`` and edges between unlike parities. In it a
    component splits in two exactly if it has no odd cycle; its lowest vertex is even.
    """
    label = _component_labels(torch.cat([row, row + size]), torch.cat([col + size, col]), 2 * size)
    even, odd = label[:size], label[size:]
    if bool((even == odd).any()):
        return None
    return (even > odd).to(torch.int64)


def _component_labels(left: Tensor, right: Tensor, size: int) -> Tensor:
    """Return the lowest vertex of each vertex's component, in O(log M) rounds of minima.

    Zhang, Azad and Hu, "FastSV: a distributed-memory connected component algorithm with fast convergence"
    (2020). Minima do not depend on the order of the operands.
    """
    parent = torch.arange(size, device=left.device)
    while True:
        grandparent = parent[parent]
        lowest = grandparent.scatter_reduce(0, left, grandparent[right], "amin")
        lowest = lowest.scatter_reduce(0, right, grandparent[left], "amin")
        hooked = parent.scatter_reduce(0, parent, lowest, "amin")
        hooked = torch.minimum(hooked, lowest)
        hooked = torch.minimum(hooked, hooked[hooked])
        if torch.equal(hooked, parent):
            return parent
        parent = hooked


def _greedy_colours(row: Tensor, col: Tensor, size: int) -> Tensor:
    """Give each vertex the lowest colour that no earlier neighbour has.

    The given order gives a grid the fewest colours, in as many steps as the sum of its sides. If it would
    take too many steps, vertices are ordered by descending degree and hashed number.
    """
    vertex = torch.arange(size, device=row.device)
    waits_ptr, earlier = _waits(row, col, vertex)
    levels = level_schedule(waits_ptr, earlier)
    if len(levels) <= _MOST_STEPS * size**0.5:
        return _colour_by_level(waits_ptr, earlier, levels)
    degree = torch.bincount(row, minlength=size) + torch.bincount(col, minlength=size)
    mixed = vertex * 0x1E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B9
    by_hash = torch.sort(mixed ^ (mixed >> 32), stable=True).indices
    turn = by_hash[torch.sort(degree[by_hash], stable=True, descending=True).indices]
    rank = torch.empty_like(turn)
    rank[turn] = vertex
    waits_ptr, earlier = _waits(row, col, rank)
    return _colour_by_level(waits_ptr, earlier, level_schedule(waits_ptr, earlier))[rank]


def _waits(row: Tensor, col: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
    """Return the CSR pattern in which the later vertex of each edge waits for the earlier one."""
    later, order = torch.sort(torch.maximum(rank[row], rank[col]), stable=True)
    return pointers_from_rows(later, len(rank)), torch.minimum(rank[row], rank[col])[order]


def _colour_by_level(waits_ptr: Tensor, earlier: Tensor, levels: Levels) -> Tensor:
    colour = torch.zeros_like(levels.order)
    for first, last in pairwise(levels.bounds):
        ready = levels.order[first:last]
        waiter, edge = expand_segments(waits_ptr[ready], waits_ptr[ready + 1] - waits_ptr[ready])
        colour[ready] = _lowest_free(waiter, colour[earlier[edge]], last - first)
    return colour


def _lowest_free(owner: Tensor, taken: Tensor, owners: int) -> Tensor:
    """Return the lowest number not in ``taken`` for each owner: (owners,) int64."""
    if len(owner) == 0:
        return torch.zeros(owners, dtype=torch.int64, device=owner.device)
    stride = int(taken.max()) + 1
    distinct = torch.unique(owner * stride + taken)
    owner, taken = distinct // stride, distinct % stride
    place = torch.arange(len(owner), device=owner.device) - pointers_from_rows(owner, owners)[owner]
    # Sorted distinct numbers equal their place until the first gap.
    return torch.bincount(owner[taken == place], minlength=owners)
