"""Layers of the neck over lists of cells on a GPU, with precomputed values of an empty scene."""

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
    """Lists 0 to n of cells, and their neighbour tables."""

    @property
    def lists(self) -> Sequence[FixedGrid | FixedHash]:
        """The lists."""
        ...

    @property
    def tables(self) -> NearTables:
        """The tables."""
        ...


class EmptyRows(NamedTuple):
    """Rows of an empty scene on the small map, computed by the kernels.

    Attributes:
        layers: (small cells, C) output of each layer of the blocks.
        raised: (4 * small cells, C_out) input of the finer 3x3 layer, see :meth:`EmptyMaps.finer_cell`.
        features: (4 * small cells, C_out) output of that layer.
        heat: (4 * small cells, classes) float32.
    """

    layers: list[Tensor]
    raised: Tensor
    features: Tensor
    heat: Tensor


Cells = TypeVar("Cells", FixedGrid, FixedHash)
Plan = TypeVar("Plan", bound=ListPlan)


class GpuListNeck(ABC, Generic[Cells, Plan]):
    """Neck and heat map near active cells, for one batch size.

    Layer k is computed at list k, the cells within k cells of an active one. Its buffer has the rows of the
    list, then the small map of an empty scene for all other cells. Values equal those of the dense layers,
    bit for bit with the same ``configs``.

    Args:
        weights: weights on the device to run on.
        empty: geometry of the small map.
        capacities: capacities of lists 0 to n, see :func:`~perception.stages.neck.list_reach`.
    """

    def __init__(
        self, weights: NeckWeights, empty: EmptyMaps, capacities: Sequence[int], *, impl: Impl
    ) -> None:
        reach = list_reach(len(weights.blocks))
        if not weights.blocks:
            raise ValueError("a neck near active cells needs at least one block (neck.blocks)")
        if len(capacities) != reach + 1:
            raise ValueError(
                f"{len(weights.blocks)} blocks need {reach + 1} capacities, got {len(capacities)}"
            )
        self.weights, self.empty, self.capacities, self.impl = weights, empty, tuple(capacities), impl
        self.choose_tiles([0] * len(self.capacities))

    @abstractmethod
    def plan(self, first: Cells, fine: Cells) -> Plan:
        """Make lists and tables of a batch.

        Args:
            first: active cells of the neck's map, with the first capacity.
            fine: cells of the backbone's last level.
        """

    @abstractmethod
    def map(self, sparse: Tensor, table: Tensor, fine: Cells, plan: Plan) -> Tensor:
        """Compute the finer map.

        Args:
            sparse: (capacity, C) rows of the backbone's last level.
            table: (9, capacity of list 0) rows of ``sparse`` for each cell of list 0.
            fine: cells of ``sparse``.
        """

    @abstractmethod
    def heat(self) -> Tensor:
        """Compute the float32 heat map of the map."""

    @abstractmethod
    def _keep(self, rows: EmptyRows) -> None:
        """Copy rows of an empty scene to the buffers of the map and the heat map."""

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose tiles, which change speed only, and invalidate earlier plans.

        Args:
            active: expected cells of each list; 0: unknown.
        """
        units = [self.weights.down, *self._units(), self.weights.out]
        rows = [usual_rows(*pair) for pair in zip(active, self.capacities, strict=True)]
        rows[-1] *= 4
        #: Tiles of each 3x3 layer, also for the empty scene, so that rounding is equal.
        self.configs = [unit.tiles(count) for unit, count in zip(units, rows, strict=True)]
        empty = self._empty_scene()
        self.layers = [
            _with_room(capacity, layer)
            for capacity, layer in zip(self.capacities[1:-1], empty.layers, strict=True)
        ]
        self.raised = _with_room(4 * self.capacities[-2], empty.raised)
        self._keep(empty)

    def coarse(self, sparse: Tensor, table: Tensor, plan: ListPlan) -> list[Tensor]:
        """Run the layers at the neck's resolution; the last output has the rows of list n - 1.

        Args:
            sparse, table, plan: see :meth:`map`.
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
        lateral = torch.zeros(1, weights.up.fine_channels, dtype=dtype, device=device)
        raised = fixed_up(layers[-1], lateral, nothing, weights.up, impl=self.impl)
        out = weights.out
        features = fixed_convolution(
            raised, out.weight, tables[1], bias=out.bias, relu=out.relu, impl=self.impl,
            config=self.configs[-1],
        )  # fmt: skip
        heat = fixed_heat(features, weights.heat, spatial_shape=finer, impl=self.impl)
        order = self._finer_order(device)
        return EmptyRows(layers[1:], raised[order], features[order], heat[0].flatten(1).T[order].contiguous())

    def _finer_order(self, device: torch.device) -> Tensor:
        """Return the row-major row of the small finer map for each cell by coarse cell and parity."""
        rows, columns = self.empty.small
        rows_of = torch.arange(4 * rows * columns, device=device).view(rows, 2, columns, 2)
        return rows_of.permute(0, 2, 1, 3).flatten()


def _with_room(rows: int, tail: Tensor) -> Tensor:
    """Prepend ``rows`` rows of zeros to the tail."""
    made = tail.new_zeros((rows + len(tail), tail.shape[1]))
    made[rows:] = tail
    return made
