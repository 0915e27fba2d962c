"""Level schedules: unknowns of a triangular system, or entries of a factor, that are ready together.

The level of a node is the length of its longest chain of dependencies (Anderson and Saad, "Solving sparse
triangular linear systems on parallel computers", 1989). Nodes of one level do not depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.formats.indexing import pointers_from_rows

#: Fewest nodes per level for tensor operations; with fewer, a loop over nodes on the host is cheaper.
_NARROW = 64


@dataclass(frozen=True, eq=False)
class Levels:
    """Nodes in the order of their levels.

    Attributes:
        order: (M,) int64 nodes, by level and by number within a level.
        bounds: level ``l`` is ``order[bounds[l]:bounds[l + 1]]``; on the host.
    """

    order: Tensor
    bounds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1


def expand_segments(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of many consecutive segments.

    Args:
        start: (S,) first index of each segment.
        length: (S,) their lengths; zero is allowed.

    Returns:
        (T,) int64 number of the segment and (T,) int64 index, ``T = length.sum()``.
    """
    segment = torch.repeat_interleave(torch.arange(len(start), device=start.device), length)
    before = torch.cumsum(length, 0) - length
    inside = torch.arange(len(segment), device=start.device) - before[segment]
    return segment, start.to(torch.int64)[segment] + inside


def level_schedule(row_ptr: Tensor, needs: Tensor, *, reverse: bool = False) -> Levels:
    """Compute the levels of an acyclic graph given as a CSR pattern.

    Args:
        row_ptr: (M + 1,) node ``i`` waits for ``needs[row_ptr[i]:row_ptr[i + 1]]``.
        needs: (E,) node numbers, all lower than the waiting node (all higher with ``reverse``); repeats are
            allowed.
    """
    size = len(row_ptr) - 1
    waiting = row_ptr.to(torch.int64).diff()
    level = torch.where(waiting == 0, 0, -1)
    node = torch.repeat_interleave(torch.arange(size, device=row_ptr.device), waiting)
    needed, by_need = torch.sort(needs.to(torch.int64), stable=True)
    needed_ptr, waiting_node = pointers_from_rows(needed, size), node[by_need]

    ready = (level == 0).nonzero()[:, 0]
    depth, placed = 0, len(ready)
    while placed < size and depth < _NARROW + size // _NARROW:
        depth += 1
        start = needed_ptr[ready]
        released = waiting_node[expand_segments(start, needed_ptr[ready + 1] - start)[1]]
        # Integer sums do not depend on the order of the additions.
        waiting.index_add_(0, released, torch.full_like(released, -1))
        ready = torch.unique(released[waiting[released] == 0])
        level[ready] = depth
        placed += len(ready)
    if placed < size:
        level = _walk(row_ptr, needs, level, reverse)
        depth = int(level.max())
    order = torch.sort(level, stable=True).indices
    counts = torch.bincount(level, minlength=depth + 1 if size else 0)
    return Levels(order, (0, *torch.cumsum(counts, 0).tolist()))


def _walk(row_ptr: Tensor, needs: Tensor, level: Tensor, reverse: bool) -> Tensor:
    """Compute the levels of the nodes still at -1 in a loop on the host."""
    starts, needed, found = row_ptr.tolist(), needs.tolist(), level.tolist()
    nodes = [node for node, known in enumerate(found) if known < 0]
    for node in reversed(nodes) if reverse else nodes:
        found[node] = 1 + max(found[other] for other in needed[starts[node] : starts[node + 1]])
    return torch.tensor(found, dtype=level.dtype, device=level.device)
