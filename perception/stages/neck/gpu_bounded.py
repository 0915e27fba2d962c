"""Neck and heat map on a GPU for a bounded grid: layers over lists of cells, whole maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from perception.stages.head import fixed_heat, fixed_up
from perception.stages.neck.api import near_lists, near_tables
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps, list_reach
from perception.stages.neck.gpu_lists import EmptyRows, GpuListNeck
from perception.stages.neck.weights import NeckWeights
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.grid import FixedGrid
from sparse_core.kernels.op import Impl


class BoundedPlan(NamedTuple):
    """Lists 0 to n of cells to compute, and their neighbour tables."""

    lists: list[FixedGrid]
    tables: NearTables


class GpuBoundedNeck(GpuListNeck[FixedGrid, BoundedPlan]):
    """Neck and heat map of batches of one size, see :class:`~perception.stages.neck.gpu_lists.GpuListNeck`.

    The last map and the heat map are whole. They equal an empty scene except at the cells of the last list,
    which are reset before the next batch.

    Args:
        weights: weights on the device to run on.
        shape: rows and columns of the neck's map.
        capacities: capacities of lists 0 to n.
    """

    def __init__(
        self,
        weights: NeckWeights,
        *,
        shape: tuple[int, int],
        batch_size: int,
        capacities: Sequence[int],
        impl: Impl = "auto",
    ) -> None:
        self.batch_size = batch_size
        super().__init__(weights, EmptyMaps(shape, list_reach(len(weights.blocks))), capacities, impl=impl)

    def plan(self, first: FixedGrid, fine: FixedGrid) -> BoundedPlan:
        """Make lists and tables of a batch, and reset the maps to an empty scene."""
        lists = near_lists(first, self.capacities[1:], written=self.written, empty=self.empty, impl=self.impl)
        lists = [first, *lists]
        return BoundedPlan(lists, near_tables(lists, self.empty, self.written.cells, impl=self.impl))

    def map(self, sparse: Tensor, table: Tensor, fine: FixedGrid, plan: BoundedPlan) -> Tensor:
        """Compute the finer map (B * 2H * 2W, C)."""
        near = self.capacities[-2]
        coarse = self.coarse(sparse, table, plan)[-1][:near]
        fixed_up(
            coarse, sparse, fine, self.weights.up, at=plan.lists[-2], out=self.raised[: 4 * near],
            impl=self.impl,
        )  # fmt: skip
        out = self.weights.out
        return fixed_convolution(
            self.raised,
            out.weight,
            plan.tables.fine_table,
            plan.tables.fine_count,
            bias=out.bias,
            relu=out.relu,
            out=self.written.features,
            out_rows=self.written.cells,
            ready=True,
            impl=self.impl,
            config=self.configs[-1],
        )

    def heat(self) -> Tensor:
        """Compute the heat map (B, classes, 2H, 2W) float32 of the map."""
        rows, columns = self.empty.shape
        return fixed_heat(
            self.written.features, self.weights.heat, spatial_shape=(2 * rows, 2 * columns),
            cells=self.written.cells, out=self.written.heat, impl=self.impl,
        )  # fmt: skip

    def _keep(self, rows: EmptyRows) -> None:
        finer = self.empty.every_finer_cell(rows.features.device)
        place = finer.flatten()
        whole = rows.heat[place].T.view(1, -1, *finer.shape)
        self.written = WrittenMaps(
            torch.full((4 * self.capacities[-1],), -1, dtype=torch.int32, device=place.device),
            rows.features[place].repeat(self.batch_size, 1),
            whole.repeat(self.batch_size, 1, 1, 1),
            rows.features,
            rows.heat,
        )
