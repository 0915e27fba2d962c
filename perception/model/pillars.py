"""Group points by pillar, for any number of points and frames.

All points of a pillar count, without padding. Points are sorted into a canonical order first, so that results
do not depend on their input order.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.geometry import BirdsEyeGrid, GroundGrid, OpenGrid
from perception.model.compiled import sort_points
from sparse_core.conv import build_table
from sparse_core.conv.coordinates import CoordinateTable
from sparse_core.conv.coordinates.common import MARGIN, coordinates_from_keys, key_strides, linear_keys
from sparse_core.errors import CapacityWarning
from sparse_core.kernels.op import Impl

#: Number of points from which digests are checked for collisions within a pillar. With fewer points a
#: collision has a probability below 1 %, even if all points share a pillar.
_CLASHES_FROM = 100_000
#: Bits of a pillar's key and of a point's digest in one sort key.
_KEY_BITS, _DIGEST_BITS = 24, 39
#: Rows or columns above which keys of the whole grid are too long for one sort.
_MOST_SHORT_CELLS = 1 << 14


@dataclass(frozen=True, eq=False)
class Pillars:
    """Points of a batch of frames, grouped by pillar.

    Attributes:
        points: (N, C) float32 x, y, z (metres, LiDAR frame), intensity, and for several sweeps the age in
            seconds, in canonical order. C is ``PillarConfig.columns``.
        frames: (N,) int64 frame of each point.
        rows: (N,) int64 pillar of each point, ascending.
        table: active pillars ``(batch, iy, ix)``, M rows.
        counts: (M,) int64 points of each pillar, at least 1.
        batch_size: number of frames.
        grid: grid of the pillars.
        invalid: (B,) int64 dropped points with NaN or infinite values.
        overflow: (B,) int64 dropped pillars beyond the capacity.
        far: (B,) int64 dropped points beyond the reach of an unbounded grid.
    """

    points: Tensor
    frames: Tensor
    rows: Tensor
    table: CoordinateTable
    counts: Tensor
    batch_size: int
    grid: GroundGrid
    invalid: Tensor
    overflow: Tensor
    far: Tensor

    def runs_of(self, frames: Tensor, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first point of each run of adjacent pillars, and the end of the run.

        Args:
            frames, rows: (R, S) int64 frame and row of each run.
            low, high: (R,) int64 first and last column.
        """
        shape = self.table.spatial_shape

        def keys(column: Tensor) -> Tensor:
            cells = torch.stack([frames, rows, column[:, None].expand_as(rows)], dim=2)
            return linear_keys(cells.view(-1, 3), shape).view(rows.shape)

        offsets = torch.cat([self.counts.new_zeros(1), torch.cumsum(self.counts, 0)])
        start = offsets[torch.searchsorted(self.table.keys, keys(low))]
        return start, offsets[torch.searchsorted(self.table.keys, keys(high), right=True)]


def make_pillars(clouds: Sequence[Tensor], config: PillarConfig, *, impl: Impl = "auto") -> Pillars:
    """Group the points of a batch of frames by pillar.

    Args:
        clouds: one (N_i, C) float32 tensor per frame, on one device; frames may be empty.
    """
    if len(clouds) == 0:
        raise ValueError("clouds must have at least one frame, which may be empty")
    points = torch.cat(list(clouds))
    device = points.device
    if impl == "auto" and device.type == "cpu":
        quick = _sorted(points, [len(cloud) for cloud in clouds], config)
        if quick is not None:
            return quick
    sizes = torch.tensor([len(cloud) for cloud in clouds], device=device)
    frames = torch.repeat_interleave(torch.arange(len(clouds), device=device), sizes, output_size=len(points))
    # Comparing contiguous columns is faster than comparing rows of four.
    columns = points.T.contiguous()
    finite = reduce(torch.logical_and, torch.isfinite(columns))
    invalid = torch.zeros(len(clouds), dtype=torch.int64, device=device)
    invalid.index_add_(0, frames, (~finite).long())
    grid, far = config.grid, torch.zeros_like(invalid)
    if isinstance(grid, OpenGrid):
        far.index_add_(0, frames, (finite & ~grid.reaches(*columns[:2])).long())
    selected = (finite & grid.contains(*columns[:3])).nonzero()[:, 0]
    points, frames = points.index_select(0, selected), frames.index_select(0, selected)
    columns = columns.index_select(1, selected)
    y, x = grid.cell_of(columns[0], columns[1])
    coordinates = torch.stack([frames.int(), y, x], dim=1)
    table, order = _table_and_order(coordinates, columns, grid.key_shape, impl)
    kept, overflow = _within_capacity(table, len(clouds), config)
    left_out = int(overflow.sum()) if len(table) > config.most_pillars else 0
    if left_out:
        selected = kept[table.rows]
        points, frames, coordinates = points[selected], frames[selected], coordinates[selected]
        table, order = _table_and_order(coordinates, columns[:, selected], grid.key_shape, impl)
        warnings.warn(
            f"the {left_out} farthest pillars left out: a frame may have {config.most_pillars};"
            " raise pillars.max_pillars",
            CapacityWarning,
            stacklevel=2,
        )
    rows = table.rows.index_select(0, order)
    counts = torch.bincount(rows, minlength=len(table))
    return Pillars(
        points.index_select(0, order),
        frames.index_select(0, order),
        rows,
        table,
        counts,
        len(clouds),
        grid,
        invalid,
        overflow,
        far,
    )


def _sorted(points: Tensor, sizes: Sequence[int], config: PillarConfig) -> Pillars | None:
    """Group (N, C) points with compiled code; None if a key, the capacity or the input does not fit."""
    grid, frames = config.grid, len(sizes)
    if not isinstance(grid, BirdsEyeGrid) or points.dtype != torch.float32 or points.requires_grad:
        return None
    strides = key_strides(grid.shape)
    if frames * strides[0] > 1 << _KEY_BITS:
        return None
    found = sort_points(points.contiguous(), sizes, grid.range_m, grid.cell_m, grid.shape, strides, MARGIN)
    if found is None or len(found.keys) > config.most_pillars:
        return None
    table = CoordinateTable(found.cells, found.keys, found.unsorted, grid.shape)
    none = torch.zeros_like(found.invalid)
    return Pillars(
        found.points,
        found.frames,
        found.rows,
        table,
        found.counts,
        frames,
        grid,
        found.invalid,
        overflow=none,
        far=none,
    )


def _within_capacity(table: CoordinateTable, batch_size: int, config: PillarConfig) -> tuple[Tensor, Tensor]:
    """Return the mask of pillars that fit, nearest first, and the number of dropped pillars per frame."""
    everything = torch.ones(len(table), dtype=torch.bool, device=table.keys.device)
    if len(table) <= config.most_pillars:
        return everything, torch.zeros(batch_size, dtype=torch.int64, device=everything.device)
    frame = table.coordinates[:, 0].long()
    grid = config.grid
    x, y = grid.metres_of(grid.positions_of_cells(table.coordinates[:, 1:].flip(1)) + 0.5).unbind(1)
    by_distance = torch.argsort(x * x + y * y, stable=True)
    order = by_distance[torch.argsort(frame[by_distance], stable=True)]
    per_frame = torch.bincount(frame, minlength=batch_size)
    first = torch.cumsum(per_frame, 0) - per_frame
    rank = torch.arange(len(order), device=order.device) - first[frame[order]]
    kept = everything.clone()
    kept[order] = rank < config.most_pillars
    return kept, (per_frame - config.most_pillars).clamp(min=0)


def _table_and_order(
    coordinates: Tensor, columns: Tensor, key_shape: tuple[int, int], impl: Impl
) -> tuple[CoordinateTable, Tensor]:
    """Make the table of pillars, and the canonical order of points: by pillar, then by a hash of their bits.

    Args:
        coordinates: (N, 3) int32 ``(batch, iy, ix)`` of each point.
        columns: (C, N) float32 points.
        key_shape: rows and columns that have keys.
    """
    bits = columns.view(torch.int32).long()
    digest = torch.zeros(bits.shape[1], dtype=torch.int64, device=bits.device)
    for column in bits:
        digest = digest.bitwise_xor_(column).mul_(0x9E3779B97F4A7C1).add_(0x7F4A7C15)
        digest = digest.bitwise_xor_(digest >> 29)
    # 24 bits of row fit any batch; 39 bits of digest distinguish the points of a pillar.
    digest &= (1 << _DIGEST_BITS) - 1
    keys, low, shape = None, None, key_shape
    if impl == "auto" and not bits.is_cuda and len(coordinates):
        if max(key_shape) > _MOST_SHORT_CELLS:
            # Keys within the bounding rectangle of the points are shorter and have the same order.
            low = coordinates.amin(0)
            sizes = (coordinates.amax(0) - low + 1).tolist()
            shape = (sizes[1], sizes[2])
        keys = linear_keys(coordinates if low is None else coordinates - low, shape)
    if keys is not None and int(keys.max()) < 1 << _KEY_BITS:
        # numpy sorts these faster than torch; keys and rows have the same order.
        joint = (keys << _DIGEST_BITS) | digest
        order = torch.from_numpy(np.argsort(joint.numpy()))
        joint = joint[order]
        unique, counts = torch.unique_consecutive(joint >> _DIGEST_BITS, return_counts=True)
        rows = torch.empty_like(order)
        rows[order] = torch.repeat_interleave(counts, output_size=len(order))
        cells = coordinates_from_keys(unique, shape)
        if low is not None:
            cells += low
            unique = linear_keys(cells, key_shape)
        table = CoordinateTable(cells, unique, rows, key_shape)
    else:
        table = build_table(coordinates, key_shape, impl=impl)
        joint, order = torch.sort((table.rows << _DIGEST_BITS) | digest)
    if len(order) < _CLASHES_FROM:
        return table, order
    clash = (joint[1:] == joint[:-1]) & (bits[:, order[1:]] != bits[:, order[:-1]]).any(dim=0)
    return table, _lexicographic_order(bits.T, table.rows) if bool(clash.any()) else order


def _lexicographic_order(bits: Tensor, rows: Tensor) -> Tensor:
    order = torch.arange(len(rows), device=rows.device)
    for key in (*bits.unbind(1), rows):
        order = order[torch.argsort(key[order], stable=True)]
    return order
