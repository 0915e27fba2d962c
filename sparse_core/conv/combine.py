"""Sums and concatenation of sparse tensors, also with different cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv.coordinates import CoordinateTable, build_table
from sparse_core.conv.tensor import SparseTensor, sums


def add(first: SparseTensor, second: SparseTensor) -> SparseTensor:
    """Add two tensors; a cell that is active in one only keeps its features.

    Args:
        first, second: of one grid, batch size and number of channels. Equal cells need no look-up.

    Raises:
        ValueError: grids, batch sizes or channels that differ.
    """
    if first.features.shape[1] != second.features.shape[1]:
        raise ValueError(
            f"cannot add {first.features.shape[1]} and {second.features.shape[1]} channels: use equal numbers"
        )
    if _same_cells(first, second):
        return first.with_features(first.features + second.features)
    table = _union([first, second])
    features = _features_at(first, table) + _features_at(second, table)
    return SparseTensor.from_table(features, table, first.batch_size)


def cat(tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Concatenate channels at every cell that is active in a tensor; inactive ones give zeros.

    Args:
        tensors: at least one, all of one grid and batch size. Equal cells need no look-up.

    Raises:
        ValueError: no tensor, or grids or batch sizes that differ.
    """
    if not tensors:
        raise ValueError("cat needs at least one tensor")
    first, *others = tensors
    if all(_same_cells(first, other) for other in others):
        return first.with_features(torch.cat([tensor.features for tensor in tensors], 1))
    table = _union(tensors)
    features = torch.cat([_features_at(tensor, table) for tensor in tensors], 1)
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


def _features_at(tensor: SparseTensor, table: CoordinateTable) -> Tensor:
    """Return features at the cells of a larger table, zeros for missing ones."""
    own = tensor if "table" in tensor.cache else tensor.sorted_rows()
    rows = own.table().lookup_keys(table.keys)
    # -1 reads the last row, which is zero.
    return F.pad(own.features, (0, 0, 0, 1))[rows]


sums.add = add
