"""Sparse tensors joined: sums and concatenated channels, also of different sets of cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv.coordinates import CoordinateTable, build_table
from sparse_core.conv.tensor import SparseTensor, sums


def add(first: SparseTensor, second: SparseTensor) -> SparseTensor:
    """Sums where both are active, the features of the one there is elsewhere.

    Args:
        first, second: of one grid, batch size and number of channels. On the same cells nothing is looked up.

    Raises:
        ValueError: grids, batch sizes or channels that differ.
    """
    if first.features.shape[1] != second.features.shape[1]:
        raise ValueError(
            f"sums need as many channels, got {first.features.shape[1]} and {second.features.shape[1]}"
        )
    if _same_cells(first, second):
        return first.with_features(first.features + second.features)
    table = _union([first, second])
    features = _on(first, table) + _on(second, table)
    return SparseTensor.from_table(features, table, first.batch_size)


def cat(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Channels side by side, at every cell where one of the tensors is active; zeros for those that are not.

    Args:
        tensors: at least one, all of one grid and batch size. On the same cells nothing is looked up.

    Raises:
        ValueError: no tensor, or grids or batch sizes that differ.
    """
    if not tensors:
        raise ValueError("cat needs at least one tensor")
    first, *others = tensors
    if all(_same_cells(first, other) for other in others):
        return first.with_features(torch.cat([tensor.features for tensor in tensors], 1))
    table = _union(tensors)
    features = torch.cat([_on(tensor, table) for tensor in tensors], 1)
    return SparseTensor.from_table(features, table, first.batch_size)


def _same_cells(first: SparseTensor, second: SparseTensor) -> bool:
    if first.spatial_shape != second.spatial_shape or first.batch_size != second.batch_size:
        raise ValueError(
            f"tensors must share grid and batch size, got {first.batch_size} x {first.spatial_shape} and"
            f" {second.batch_size} x {second.spatial_shape}"
        )
    if first.coordinates is second.coordinates:
        return True
    return len(first) == len(second) and torch.equal(first.coordinates, second.coordinates)


def _union(tensors: Sequence[SparseTensor]) -> CoordinateTable:
    cells = torch.cat([tensor.coordinates.int() for tensor in tensors])
    return build_table(cells, tensors[0].spatial_shape)


def _on(tensor: SparseTensor, table: CoordinateTable) -> Tensor:
    """Features at the cells of a larger table, zeros where there are none."""
    own = tensor if "table" in tensor.cache else tensor.sorted_rows()
    rows = own.table().lookup_keys(table.keys)
    # -1 reads the row of zeros behind all.
    return F.pad(own.features, (0, 0, 0, 1))[rows]


sums.add = add
