"""Neck and heat map on a GPU for an unbounded grid with fixed shapes, for CUDA graphs.

Lists of cells are hash tables, and the last map has rows of listed cells only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from perception.stages.head import fixed_heat
from perception.stages.head.common import product
from perception.stages.neck.empty import EmptyMaps, NearTables, list_reach
from perception.stages.neck.gpu_lists import EmptyRows, GpuListNeck
from perception.stages.neck.weights import NeckWeights
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.grid import GridLevel, TableRequest, hash_pyramid, neighbour_tables
from sparse_core.conv.grid.layout import FixedHash
from sparse_core.kernels.op import Impl

_KERNEL, _ONE = (3, 3), (1, 1)
#: Level of cells within one cell of the previous list.
_NEAR = GridLevel(_KERNEL, _ONE, _ONE)


class UnboundedPlan(NamedTuple):
    """Lists of cells to compute, and their tables.

    Attributes:
        lists: list k has the cells within k cells of an active one, k from 0 to n.
        tables: neighbour tables of the layers.
        around: (9, 4 * capacity of list n) int64 rows of the map around each finer cell of list n.
        lateral_rows: (4 * capacity of list n - 1,) int64 rows of the backbone's last level; -1 for none.
    """

    lists: list[FixedHash]
    tables: NearTables
    around: Tensor
    lateral_rows: Tensor


class GpuUnboundedNeck(GpuListNeck[FixedHash, UnboundedPlan]):
    """Neck and heat map near active cells, see :class:`~perception.stages.neck.gpu_lists.GpuListNeck`."""

    def __init__(self, weights: NeckWeights, *, capacities: Sequence[int], impl: Impl = "auto") -> None:
        empty = EmptyMaps.unbounded(list_reach(len(weights.blocks)))
        super().__init__(weights, empty, capacities, impl=impl)

    def plan(self, first: FixedHash, fine: FixedHash) -> UnboundedPlan:
        """Make lists and tables of a batch."""
        further = self.capacities[1:]
        lists = hash_pyramid(first, further, [_NEAR] * len(further), impl=self.impl)
        residual = range(2, len(lists) - 1, 2)
        requests = [TableRequest(*pair, _KERNEL, _ONE, _ONE) for pair in pairwise(lists)]
        requests.append(TableRequest(lists[-1], lists[-1], _KERNEL, _ONE, _ONE))
        requests += [TableRequest(lists[k - 2], lists[k], _ONE, _ONE, (0, 0)) for k in residual]
        made = neighbour_tables(requests, impl=self.impl)
        between, own, skips = made[: len(lists) - 1], made[len(lists) - 1], made[len(lists) :]
        tables = [self._or_empty(table, k) for k, table in enumerate(between)]
        return UnboundedPlan(
            lists,
            NearTables(
                tuple(tables[:-1]),
                tuple(self._or_empty(rows, k - 2)[0] for k, rows in zip(residual, skips, strict=True)),
                _finer(tables[-1]).int(),
                4 * lists[-1].count,
            ),
            _finer(torch.where(own < 0, lists[-1].capacity, own)),
            fine.rows_of(finer_coordinates(lists[-2])),
        )

    def _or_empty(self, table: Tensor, number: int) -> Tensor:
        """Replace missing entries of list ``number`` by the empty scene, which is zero (-1) for list 0."""
        if number == 0:
            return table
        return torch.where(table < 0, self.capacities[number] + self.empty.middle, table)

    def map(self, sparse: Tensor, table: Tensor, fine: FixedHash, plan: UnboundedPlan) -> Tensor:
        """Compute rows (4 * capacity of list n + 4, C); the last four are the empty scene."""
        near = self.capacities[-2]
        coarse = self.coarse(sparse, table, plan)[-1][:near]
        up = self.weights.up
        raised = torch.stack([product(coarse, matrix) for matrix in up.up], dim=1).flatten(0, 1) + up.up_bias
        active = (plan.lateral_rows >= 0)[:, None]
        lateral = product(sparse, up.lateral) + up.lateral_bias
        # Unused rows may hold NaN, so select by where and do not multiply by zero.
        raised = raised + torch.where(active, lateral[plan.lateral_rows.clamp(min=0)], 0.0)
        self.raised[: 4 * near] = torch.relu(raised)[:, : up.out_channels].to(coarse.dtype)
        out = self.weights.out
        fixed_convolution(
            self.raised,
            out.weight,
            plan.tables.fine_table,
            plan.tables.fine_count,
            bias=out.bias,
            relu=out.relu,
            out=self.rows[:-4],
            ready=True,
            impl=self.impl,
            config=self.configs[-1],
        )
        return self.rows

    def heat(self) -> Tensor:
        """Compute heat (classes, 4 * capacity of list n + 4) of the map's rows."""
        shape = (1, len(self.rows))
        return fixed_heat(self.rows, self.weights.heat, spatial_shape=shape, impl=self.impl)[0, :, 0]

    def _keep(self, rows: EmptyRows) -> None:
        middle = 4 * self.empty.middle
        empty = rows.features[middle : middle + 4]
        self.rows = torch.cat([empty.new_zeros(4 * self.capacities[-1], empty.shape[1]), empty])


def finer_coordinates(grid: FixedHash) -> Tensor:
    """Return the four finer cells of each cell: (4 * capacity, 3) int32; -1 after the last."""
    cells = grid.coordinates()
    below = torch.arange(4, device=cells.device, dtype=torch.int32)
    finer = [cells[:, :1].expand(-1, 4), 2 * cells[:, 1:2] + below // 2, 2 * cells[:, 2:] + below % 2]
    return torch.stack(finer, dim=2).view(-1, 3)


def _finer(parents: Tensor) -> Tensor:
    """Return entries ``4 * entry + parity`` around each finer cell: (9, 4 * rows) int64.

    Args:
        parents: (9, rows) entries around each coarse cell.
    """
    tap = torch.arange(9, device=parents.device)[:, None]
    parity = torch.arange(4, device=parents.device)
    # Steps down and right from the upper left finer cell, -1 to 2.
    down, right = parity // 2 + tap // 3 - 1, parity % 2 + tap % 3 - 1
    parent = 3 * ((down + 2) // 2) + (right + 2) // 2
    child = 2 * (down % 2) + right % 2
    entries = 4 * parents.long()[parent] + child[..., None]
    return entries.transpose(1, 2).flatten(1)
