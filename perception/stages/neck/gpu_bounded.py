"""The neck and the heat map over lists of cells; what they give for an empty scene is computed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from perception.stages.backbone.units import Unit, usual_rows
from perception.stages.head import fixed_heat, fixed_up
from perception.stages.neck.api import near_lists, near_tables
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps, list_reach
from perception.stages.neck.weights import NeckWeights
from sparse_core.conv.convolution import fixed_convolution
from sparse_core.conv.grid import DenseGrid, FixedGrid, FixedHash, grid_from_cells, neighbour_table
from sparse_core.kernels.op import Impl

_KERNEL = (3, 3)


class ListPlan(Protocol):
    """Lists 0 to n of cells, and the tables of the layers over them."""

    @property
    def lists(self) -> Sequence[FixedGrid | FixedHash]:
        """The lists."""
        ...

    @property
    def tables(self) -> NearTables:
        """The tables."""
        ...


class NearPlan(NamedTuple):
    """Where a batch of frames is computed: lists 0 to n, and the tables of the layers over them."""

    lists: list[FixedGrid]
    tables: NearTables


class NearNeck:
    """Neck and heat map of batches of one size, computed where active cells reach and nowhere else.

    Layer k is computed at the cells within k of an active one, list k. Its rows lie side by side; behind them
    is the small map that the layer gives for an empty scene, which is read for all other cells. Only the last
    map and the heat map are whole: they are those of an empty scene but for the cells of the last list, which
    get their empty values back before the next batch. Values are those of the dense layers, to the bit if
    these use the same ``configs``.

    Args:
        weights: on the device to run on.
        shape: rows and columns of the neck's map.
        batch_size: frames of a call.
        capacities: cells of lists 0 to n that there is room for, see
            :func:`~perception.stages.neck.list_reach`.
        impl: of every step.

    Raises:
        ValueError: no block, or capacities for another number of lists.
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
        self.reach = list_reach(len(weights.blocks))
        if not weights.blocks:
            raise ValueError("a neck without blocks has nothing to compute near active cells only")
        if len(capacities) != self.reach + 1:
            raise ValueError(
                f"{len(weights.blocks)} blocks need {self.reach + 1} capacities, got {len(capacities)}"
            )
        self.weights, self.batch_size, self.impl = weights, batch_size, impl
        self.capacities = tuple(capacities)
        self.empty = EmptyMaps(shape, self.reach)
        self.choose_tiles([0] * len(self.capacities))

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles for batches like one before: for speed only. Plans made before are void.

        Args:
            active: cells of each list of that batch; 0: not known.
        """
        weights = self.weights
        units = [weights.down, *(unit for block in weights.blocks for unit in block), weights.out]
        rows = [usual_rows(*pair) for pair in zip(active, self.capacities, strict=True)]
        rows[-1] *= 4
        #: Tiles of each 3x3 layer: the same for the empty scene, so that rounding is.
        self.configs = [unit.tiles(count) for unit, count in zip(units, rows, strict=True)]
        self._fill()

    def plan(self, first: FixedGrid) -> NearPlan:
        """Lists and tables of a batch; its maps become those of an empty scene.

        Args:
            first: active cells of the neck's map, with room for the first of the capacities.
        """
        lists = near_lists(first, self.capacities[1:], written=self.written, empty=self.empty, impl=self.impl)
        lists = [first, *lists]
        return NearPlan(lists, near_tables(lists, self.empty, self.written.cells, impl=self.impl))

    def coarse(self, sparse: Tensor, table: Tensor, plan: ListPlan) -> list[Tensor]:
        """Layers at the neck's resolution, the last in rows of the last list but one.

        Args:
            sparse: (capacity, C) rows of the backbone's last level.
            table: (9, capacity of list 0) which of them each cell of list 0 reads.
            plan: of the batch.
        """
        down, config = self.weights.down, self.configs[0]
        first = fixed_convolution(
            sparse, down.weight, table, plan.lists[0].count, bias=down.bias, relu=down.relu, zero_empty=True,
            ready=True, impl=self.impl, config=config,
        )  # fmt: skip
        layers = [first]
        for number, unit in enumerate(self._units(), start=1):
            second = number % 2 == 0
            fixed_convolution(
                layers[-1],
                unit.weight,
                plan.tables.tables[number - 1],
                plan.lists[number].count,
                bias=unit.bias,
                residual=layers[-2] if second else None,
                residual_rows=plan.tables.residual_rows[number // 2 - 1] if second else None,
                relu=unit.relu,
                out=self.layers[number - 1][: self.capacities[number]],
                ready=True,
                impl=self.impl,
                config=self.configs[number],
            )
            layers.append(self.layers[number - 1])
        return layers

    def map(self, sparse: Tensor, table: Tensor, level: FixedGrid, plan: NearPlan) -> Tensor:
        """The finer map, (B * 2H * 2W, C).

        Args:
            sparse, table, plan: see :meth:`coarse`.
            level: cells of ``sparse``.
        """
        near = self.capacities[-2]
        coarse = self.coarse(sparse, table, plan)[-1][:near]
        fixed_up(
            coarse, sparse, level, self.weights.up, at=plan.lists[-2], out=self.raised[: 4 * near],
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
        """The heat map of the map: (B, classes, 2H, 2W) float32."""
        rows, columns = self.empty.shape
        return fixed_heat(
            self.written.features, self.weights.heat, spatial_shape=(2 * rows, 2 * columns),
            cells=self.written.cells, out=self.written.heat, impl=self.impl,
        )  # fmt: skip

    def _units(self) -> list[Unit]:
        return [unit for block in self.weights.blocks for unit in block]

    def _fill(self) -> None:
        """Compute an empty scene, and keep it behind the rows of each layer and in the whole maps."""
        layers, raised, features, heat = self._empty_scene()
        self.layers = [
            _with_room(capacity, layer) for capacity, layer in zip(self.capacities[1:-1], layers, strict=True)
        ]
        device = features.device
        order = self._finer_order(device)
        self.raised = _with_room(4 * self.capacities[-2], raised[order])
        empty_features, empty_heat = features[order], heat[0].flatten(1).T[order].contiguous()
        finer = self.empty.every_finer_cell(device)
        place = finer.flatten()
        whole = empty_heat[place].T.view(1, -1, *finer.shape)
        self.written = WrittenMaps(
            torch.full((4 * self.capacities[-1],), -1, dtype=torch.int32, device=device),
            empty_features[place].repeat(self.batch_size, 1),
            whole.repeat(self.batch_size, 1, 1, 1),
            empty_features,
            empty_heat,
        )

    def _empty_scene(self) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Layers of the small map: those of the neck, the one raised, the last, and its heat."""
        small, weights = self.empty.small, self.weights
        finer = (2 * small[0], 2 * small[1])
        device, dtype = weights.out.weight.device, weights.out.weight.dtype
        tables = [
            neighbour_table(
                DenseGrid(shape, 1), "all", _KERNEL, (1, 1), (1, 1), impl=self.impl, device=device
            )
            for shape in (small, finer)
        ]
        layers = [torch.zeros(math.prod(small), weights.down.weight.shape[2], dtype=dtype, device=device)]
        for number, unit in enumerate(self._units(), start=1):
            residual = layers[-2] if number % 2 == 0 else None
            made = fixed_convolution(
                layers[-1], unit.weight, tables[0], bias=unit.bias, residual=residual, relu=unit.relu,
                impl=self.impl, config=self.configs[number],
            )  # fmt: skip
            layers.append(made)
        nothing = grid_from_cells(
            torch.full((1,), -1, dtype=torch.int32, device=device), finer, 1, 1, impl=self.impl
        )
        beside = torch.zeros(1, weights.up.fine_channels, dtype=dtype, device=device)
        raised = fixed_up(layers[-1], beside, nothing, weights.up, impl=self.impl)
        out = weights.out
        features = fixed_convolution(
            raised, out.weight, tables[1], bias=out.bias, relu=out.relu, impl=self.impl,
            config=self.configs[-1],
        )  # fmt: skip
        heat = fixed_heat(features, weights.heat, spatial_shape=finer, impl=self.impl)
        return layers[1:], raised, features, heat

    def _finer_order(self, device: torch.device) -> Tensor:
        """Row of the small finer map, row-major, for each of its cells by coarse cell and parity."""
        rows, columns = self.empty.small
        rows_of = torch.arange(4 * rows * columns, device=device).view(rows, 2, columns, 2)
        return rows_of.permute(0, 2, 1, 3).flatten()


def _with_room(rows: int, tail: Tensor) -> Tensor:
    """Room for rows, and the tail behind them."""
    made = tail.new_zeros((rows + len(tail), tail.shape[1]))
    made[rows:] = tail
    return made
