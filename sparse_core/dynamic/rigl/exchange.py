"""Drop the weakest connections and grow others: the update of RigL and SET.

Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020), algorithm 1. As in the authors' program
(google-research/rigl), a connection may be dropped and grown in one update and then keeps its value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.dynamic.ranking import best_by_row, best_entries, true_positions
from sparse_core.dynamic.rigl.grid import Grid


class Exchange(NamedTuple):
    """A topology and the source of its values.

    Attributes:
        cells: (count,) int64, rising.
        source: (count,) int64, position in the old topology; 0 for new connections.
        fresh: (count,) bool, new connections, whose value is zero.
    """

    cells: Tensor
    source: Tensor
    fresh: Tensor

    def carry(self, values: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return values (count, ...) or moments in the new order; zero for new connections.

        Writes to ``out`` of the same shape and type if it is given.
        """
        moved = torch.index_select(values, 0, self.source, out=out)
        return moved.masked_fill_(self.fresh.reshape(-1, *(1 for _ in values.shape[1:])), 0)


def exchange_cells(cells: Tensor, drop_score: Tensor, grow_score: Tensor, grid: Grid, drop: int) -> Exchange:
    """Drop the ``drop`` cells with the lowest score and grow the best of the others.

    If every row has the same number of cells, the weakest of the whole matrix are dropped and each row grows
    as many as it lost. Ties go to the first position. Does not wait for the device.

    Args:
        cells: (count,) int64, rising.
        drop_score: (count,), larger is kept.
        grow_score: (cell rows, cell columns), finite; larger is grown.
        grid: the cells.
        drop: 0 to ``count``.
    """
    count = grid.count
    keep = best_entries(drop_score[None], count - drop)[0]
    kept = torch.zeros(grid.size, dtype=torch.bool, device=cells.device).index_copy_(0, cells, keep)
    candidates = grow_score.reshape(-1).masked_fill(kept, float("-inf"))
    if grid.per_row and drop:
        lines = kept.reshape(grid.shape)
        missing = grid.per_row - lines.sum(dim=1, keepdim=True)
        grown = best_by_row(candidates.reshape(grid.shape), missing, min(drop, grid.per_row)).reshape(-1)
    else:
        grown = best_entries(candidates[None], drop)[0]
    after = true_positions((kept | grown)[None], count)[0]
    # Both rise, so a binary search finds the old positions.
    source = torch.searchsorted(cells, after).clamp_(max=count - 1)
    fresh = cells.index_select(0, source) != after
    return Exchange(after, source.masked_fill_(fresh, 0), fresh)
