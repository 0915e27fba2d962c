"""A batch of sparse maps: features at active coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sparse_core.conv.kernel_map import KernelMap, strided_map, submanifold_map
from sparse_core.conv.table import CoordinateTable, build_table
from sparse_core.dispatch import Impl


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Features at the active cells of a batch of grids. Frames may differ in how many cells are active.

    Attributes:
        features: (M, C) floating point.
        coordinates: (M, 1 + D) int32 ``(batch, *spatial)``, distinct.
        spatial_shape: D sizes of the grid in cells.
        batch_size: number of frames; frames without an active cell count too.
        cache: kernel maps and tables of this set of coordinates, shared by every tensor on it.
    """

    features: Tensor
    coordinates: Tensor
    spatial_shape: tuple[int, ...]
    batch_size: int
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or len(self.features) != len(self.coordinates):
            raise ValueError(
                f"features must be (M, C) with one row per coordinate; got {tuple(self.features.shape)}"
                f" for {len(self.coordinates)} coordinates"
            )
        columns = len(self.spatial_shape) + 1
        if self.coordinates.ndim != 2 or self.coordinates.shape[1] != columns:
            raise ValueError(
                f"coordinates must be (M, {columns}) for a {columns - 1}-D grid,"
                f" got {tuple(self.coordinates.shape)}"
            )

    @classmethod
    def from_table(cls, features: Tensor, table: CoordinateTable, batch_size: int) -> SparseTensor:
        """Features (M, C) in the row order of ``table``."""
        return cls(features, table.coordinates, table.spatial_shape, batch_size, {"table": table})

    def __len__(self) -> int:
        return len(self.features)

    def with_features(self, features: Tensor) -> SparseTensor:
        """The same coordinates and cached maps under other features."""
        return replace(self, features=features)

    def table(self) -> CoordinateTable:
        """Table whose rows are this tensor's rows.

        Raises:
            ValueError: the coordinates are not in key order, so their rows would not be the table's.
        """
        if "table" not in self.cache:
            table = build_table(self.coordinates, self.spatial_shape)
            if len(table) != len(self) or not torch.equal(table.coordinates, self.coordinates.int()):
                raise ValueError("coordinates must be distinct and in key order; see sorted_rows()")
            self.cache["table"] = table
        table = self.cache["table"]
        assert isinstance(table, CoordinateTable)
        return table

    def sorted_rows(self) -> SparseTensor:
        """The same cells in key order."""
        table = build_table(self.coordinates, self.spatial_shape)
        if len(table) != len(self):
            raise ValueError("coordinates must be distinct")
        order = torch.argsort(table.rows)
        return SparseTensor.from_table(self.features[order], table, self.batch_size)

    def submanifold_map(self, kernel_size: Sequence[int]) -> KernelMap:
        """Cached map of a submanifold convolution over these coordinates."""
        key = ("submanifold", tuple(kernel_size))
        if key not in self.cache:
            self.cache[key] = submanifold_map(self.table(), kernel_size)
        found = self.cache[key]
        assert isinstance(found, KernelMap)
        return found

    def strided_map(
        self,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        *,
        dilating: bool = True,
        impl: Impl = "auto",
    ) -> tuple[KernelMap, CoordinateTable]:
        """Cached map of a strided convolution and the table of its outputs."""
        key = ("strided", tuple(kernel_size), tuple(stride), tuple(padding), dilating)
        if key not in self.cache:
            self.cache[key] = strided_map(
                self.table(), kernel_size, stride, padding, dilating=dilating, impl=impl
            )
        kernel_map, outputs = self.cache[key]
        return kernel_map, outputs

    def to_dense(self, *, channels_last: bool = False) -> Tensor:
        """(B, C, *spatial) with zeros where nothing is active.

        Args:
            channels_last: lay the result out in memory with channels last (4-D tensors only).
        """
        canvas = self.features.new_zeros((self.batch_size, *self.spatial_shape, self.features.shape[1]))
        canvas = canvas.index_put(tuple(self.coordinates.long().unbind(1)), self.features)
        dense = canvas.movedim(-1, 1)
        return dense if channels_last else dense.contiguous()
