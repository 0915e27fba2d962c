"""Tables from active coordinates to rows, and look-ups in them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_core.conv.coordinates import reference
from sparse_core.conv.coordinates.common import MARGIN, coordinates_from_keys, linear_keys
from sparse_core.errors import CapacityWarning
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

BUILD_TABLE: Op[()] = Op("build_table", __package__, by_triton(), by_torch(), gradient=False)


@dataclass(frozen=True, eq=False)
class CoordinateTable:
    """Distinct coordinates in key order, with look-up.

    Attributes:
        coordinates: (M, 1 + D) int32 ``(batch, *spatial)``, sorted, distinct.
        keys: (M,) int64 linear keys of ``coordinates``, ascending.
        rows: (N,) int64 row of each input coordinate; -1 if it was dropped.
        spatial_shape: D sizes of the grid in cells.
        overflow: distinct coordinates dropped because of the capacity.
        slots: hash table storage if Triton built the table, else None.
    """

    coordinates: Tensor
    keys: Tensor
    rows: Tensor
    spatial_shape: tuple[int, ...]
    overflow: int = 0
    slots: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def lookup(self, coordinates: Tensor) -> Tensor:
        """Return the rows of ``coordinates``.

        Args:
            coordinates: (Q, 1 + D) integer; spatial entries at most 4 cells outside the grid.

        Returns:
            (Q,) int64, -1 for a missing coordinate.
        """
        return self.lookup_keys(linear_keys(coordinates, self.spatial_shape))

    def lookup_keys(self, keys: Tensor) -> Tensor:
        """Return rows of linear keys (see :func:`.common.linear_keys`), same shape; -1 if missing."""
        if self.slots is not None:
            from sparse_core.conv.coordinates import triton

            return triton.lookup(self.slots, keys)
        return reference.lookup(self.keys, keys)

    def lookup_runs(self, first_keys: Tensor, length: int) -> Tensor:
        """Return rows of runs of consecutive keys, which are neighbours along the last axis.

        Args:
            first_keys: any shape, int64, the lowest key of each run.
            length: keys in a run.

        Returns:
            (*shape, length) int64, -1 if missing.
        """
        if self.slots is not None:
            steps = torch.arange(length, device=first_keys.device)
            return self.lookup_keys(first_keys[..., None, :] + steps[:, None]).transpose(-1, -2)
        return reference.lookup_runs(self.keys, first_keys, length)


def build_table(
    coordinates: Tensor, spatial_shape: Sequence[int], *, capacity: int | None = None, impl: Impl = "auto"
) -> CoordinateTable:
    """Give every distinct coordinate a row.

    Rows follow the linear key ``(batch, *spatial)``, so the table does not depend on the order of the input
    or the implementation.

    Args:
        coordinates: (N, 1 + D) integer ``(batch, *spatial)``, inside the grid; repeats are allowed.
        spatial_shape: D sizes of the grid in cells.
        capacity: most rows. The lowest keys are kept; a ``CapacityWarning`` and ``overflow`` report the rest.
            None for no limit.
        impl: ``"reference"`` sorts (any device), ``"triton"`` hashes (CUDA, or Triton's interpreter);
            ``"auto"`` is Triton for CUDA tensors if installed, else the reference.

    Raises:
        TypeError: ``coordinates`` is not an integer tensor.
        ValueError: wrong shape, a coordinate outside the grid, or a grid of more than 2^42 cells or 2^31
            along an axis.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    BUILD_TABLE.check(impl)
    shape = tuple(int(size) for size in spatial_shape)
    if shape != tuple(spatial_shape):
        raise ValueError(f"spatial_shape must be whole numbers of cells, got {tuple(spatial_shape)}")
    _check_coordinates(coordinates, shape)
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity must be at least 1, got {capacity}")
    table = table_from_keys(linear_keys(coordinates, shape), shape, impl=impl)
    if capacity is None or len(table) <= capacity:
        return table
    overflow = len(table) - capacity
    warnings.warn(
        f"dropped {overflow} of {len(table)} coordinates: the table holds {capacity}; raise `capacity`",
        CapacityWarning,
        stacklevel=2,
    )
    return CoordinateTable(
        table.coordinates[:capacity],
        table.keys[:capacity],
        torch.where(table.rows < capacity, table.rows, -1),
        shape,
        overflow,
    )


def table_from_keys(keys: Tensor, spatial_shape: tuple[int, ...], *, impl: Impl = "auto") -> CoordinateTable:
    """Build a table from linear keys.

    Args:
        keys: (N,) int64 (see ``sparse_core.conv.coordinates.common``) of cells inside the grid; not checked.
        spatial_shape: D sizes of the grid in cells.
        impl: as in :func:`build_table`.
    """
    slots = None
    if BUILD_TABLE.choose(impl, keys.device) == "triton" and len(keys):
        from sparse_core.conv.coordinates import triton

        unique, rows, slots = triton.unique_rows(keys)
    else:
        unique, rows = reference.unique_rows(keys)
    return CoordinateTable(
        coordinates_from_keys(unique, spatial_shape), unique, rows, spatial_shape, slots=slots
    )


def _check_coordinates(coordinates: Tensor, shape: tuple[int, ...]) -> None:
    if not isinstance(coordinates, Tensor):
        raise TypeError(
            f"coordinates must be a tensor, got {type(coordinates).__name__}: convert with torch.as_tensor"
        )
    if coordinates.is_floating_point() or coordinates.is_complex() or coordinates.dtype == torch.bool:
        raise TypeError(f"coordinates must be integers, got {coordinates.dtype}")
    if coordinates.ndim != 2 or coordinates.shape[1] != len(shape) + 1:
        raise ValueError(
            f"coordinates must have shape (N, {len(shape) + 1}) for a {len(shape)}-D grid,"
            f" got {tuple(coordinates.shape)}"
        )
    cells = 1
    for size in shape:
        if size < 1:
            raise ValueError(f"every size of spatial_shape must be at least 1, got {shape}")
        cells *= size + 2 * MARGIN
    # Keys of 2^20 frames of 2^42 cells fit 64 bits; coordinates are 32-bit.
    if cells > 2**42 or max(shape, default=1) > 2**31 - 1:
        raise ValueError(
            f"a grid of {shape} cells is too large: use at most 2^42 cells, and 2^31 - 1 along an axis"
        )
    if len(coordinates) == 0:
        return
    low, high = torch.aminmax(coordinates, dim=0)
    limits = torch.tensor([2**20, *shape], device=high.device)
    outside = (low < 0) | (high >= limits)
    if bool(outside.any()):
        axis = int(outside.nonzero()[0])
        name = "batch" if axis == 0 else f"spatial axis {axis - 1}"
        raise ValueError(
            f"coordinates leave the grid on {name}: found {int(low[axis])}..{int(high[axis])},"
            f" allowed 0..{int(limits[axis]) - 1}"
        )
