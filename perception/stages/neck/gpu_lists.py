"""Layers of the neck over lists of cells on a GPU; what they give for an empty scene is computed once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from perception.stages.backbone.units import Unit, usual_rows
from perception.stages.head import fixed_heat, fixed_up
from perception.stages.neck.empty import EmptyMaps, NearTables, list_reach
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


class EmptyRows(NamedTuple):
    """Rows of an empty scene on the small map, as the kernels give them.

    Attributes:
        layers: (small cells, C) of each layer of the blocks.
        raised: (4 * small cells, C_out) input of the finer 3x3 layer, see :meth:`EmptyMaps.finer_cell`.
        features: (4 * small cells, C_out) what that layer gives.
        heat: (4 * small cells, classes) float32.
    """

    layers: list[Tensor]
    raised: Tensor
    features: Tensor
    heat: Tensor


Cells = TypeVar("Cells", FixedGrid, FixedHash)
Plan = TypeVar("Plan", bound=ListPlan)


class GpuListNeck(ABC, Generic[Cells, Plan]):
    """Neck and heat map of batches of one size, computed where active cells reach and nowhere else.

    Layer k is computed at the cells within k of an active one, list k. Its rows lie side by side; behind them
    is the small map that the layer gives for an empty scene, which is read for all other cells. Values are
    those of the dense layers, to the bit if these use the same ``configs``.

    Args:
        weights: on the device to run on.
        empty: geometry of the small map.
        capacities: cells of lists 0 to n that there is room for, see
            :func:`~perception.stages.neck.list_reach`.
        impl: of every step.

    Raises:
        ValueError: no block, or capacities for another number of lists.
    """

    def __init__(
        self, weights: NeckWeights, empty: EmptyMaps, capacities: Sequence[int], *, impl: Impl
    ) -> None:
        reach = list_reach(len(weights.blocks))
        if not weights.blocks:
            raise ValueError("a neck without blocks has nothing to compute near active cells only")
        if len(capacities) != reach + 1:
            raise ValueError(
                f"{len(weights.blocks)} blocks need {reach + 1} capacities, got {len(capacities)}"
            )
        self.weights, self.empty, self.capacities, self.impl = weights, empty, tuple(capacities), impl
        self.choose_tiles([0] * len(self.capacities))

    @abstractmethod
    def plan(self, first: Cells, fine: Cells) -> Plan:
        """Lists and tables of a batch.

        Args:
            first: active cells of the neck's map, with room for the first of the capacities.
            fine: cells of the backbone's last level.
        """

    @abstractmethod
    def map(self, sparse: Tensor, table: Tensor, fine: Cells, plan: Plan) -> Tensor:
        """The finer map.

        Args:
            sparse: (capacity, C) rows of the backbone's last level.
            table: (9, capacity of list 0) which of them each cell of list 0 reads.
            fine: cells of ``sparse``.
            plan: of the batch.
        """

    @abstractmethod
    def heat(self) -> Tensor:
        """The heat map of the map, float32."""

    @abstractmethod
    def _keep(self, rows: EmptyRows) -> None:
        """Put rows of an empty scene where the map and the heat map are made."""

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles for batches like one before: for speed only. Plans made before are void.

        Args:
            active: cells of each list of that batch; 0: not known.
        """
        units = [self.weights.down, *self._units(), self.weights.out]
        rows = [usual_rows(*pair) for pair in zip(active, self.capacities, strict=True)]
        rows[-1] *= 4
        #: Tiles of each 3x3 layer: the same for the empty scene, so that rounding is.
        self.configs = [unit.tiles(count) for unit, count in zip(units, rows, strict=True)]
        empty = self._empty_scene()
        self.layers = [
            _with_room(capacity, layer)
            for capacity, layer in zip(self.capacities[1:-1], empty.layers, strict=True)
        ]
        self.raised = _with_room(4 * self.capacities[-2], empty.raised)
        self._keep(empty)

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

    def _units(self) -> list[Unit]:
        return [unit for block in self.weights.blocks for unit in block]

    def _empty_scene(self) -> EmptyRows:
        """Run the layers on an empty small map."""
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
        order = self._finer_order(device)
        return EmptyRows(layers[1:], raised[order], features[order], heat[0].flatten(1).T[order].contiguous())

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
