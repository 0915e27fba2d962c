"""Records and buffers of the steps from points to pillars."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from perception.config import PillarConfig
from sparse_core.conv.grid.layout import FixedGrid, padded_width, word_count

#: Fixed-point scale of sums of coordinates and hidden features; whole numbers add in any order.
FIXED_POINT = float(1 << 24)
#: Cells that a program processes at once.
TILE = 1024
#: Largest number of block counters, because every program adds up all of them.
_MOST_BLOCKS = 2048
#: Largest number of counters per block; several counters reduce contention.
_MOST_COPIES = 8


def _block_cells(cells: int) -> int:
    """Return the cells per block: the smallest power of two with few enough blocks."""
    size = TILE
    while size * _MOST_BLOCKS < cells:
        size *= 2
    return size


def _copies(blocks: int) -> int:
    """Return the counters per block, a power of two."""
    copies = 1
    while copies < _MOST_COPIES and 2 * copies * blocks <= _MOST_BLOCKS:
        copies *= 2
    return copies


@dataclass(frozen=True, eq=False)
class PillarWorkspace:
    """Counters and sums of points, all zero between frames.

    :func:`~perception.stages.pillars.locate_points` fills them,
    :func:`~perception.stages.pillars.fixed_encode` reads the sums, and
    :func:`~perception.stages.pillars.sort_points` clears them, so that a graph needs no memset. If
    ``sort_points`` did not run, call :meth:`clear`.

    Attributes:
        spatial_shape: rows (y) and columns (x) of the grid.
        batch_size: frames.
        block_cells: cells per block, a power of two.
        counts: (cells,) int32 points of each cell, numbered as in :class:`FixedGrid`.
        bits: (words,) int32, one bit per occupied cell.
        sums: (cells, 4) int64 sums over the points of each cell: x and y from the cell centre and z, in units
            of 2^-24 m; and the number of points.
        copies: counters per block, a power of two.
        block_points: (blocks * copies,) int32 points of each block, by index in the frame modulo ``copies``.
        invalid: (B,) int32 points with NaN or infinite values.
    """

    spatial_shape: tuple[int, int]
    batch_size: int
    block_cells: int
    copies: int
    counts: Tensor
    bits: Tensor
    block_points: Tensor
    invalid: Tensor
    sums: Tensor
    _sums: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def make(
        cls, config: PillarConfig, batch_size: int, *, device: torch.device | str = "cpu"
    ) -> PillarWorkspace:
        """Allocate cleared buffers, about 36 bytes per cell."""
        shape = config.grid_shape
        words = word_count(shape, batch_size)
        cells = 32 * words
        block = _block_cells(cells)
        blocks = -(-cells // block)
        copies = _copies(blocks)
        sizes = [cells, words, blocks * copies, batch_size]
        # One buffer, because clearing costs a launch.
        parts = torch.zeros(sum(sizes), dtype=torch.int32, device=device).split(sizes)
        parts = (*parts, torch.zeros((cells, 4), dtype=torch.int64, device=device))
        return cls(shape, batch_size, block, copies, *parts)

    def clear(self) -> None:
        """Set all buffers to zero."""
        parts = (self.counts, self.bits, self.block_points, self.invalid, self.sums)
        for part in (*parts, *sum(self._sums.values(), ())):
            part.zero_()

    def accumulators(self, capacity: int, channels: int) -> tuple[Tensor, Tensor]:
        """Return zeros (capacity, channels), int32 for maxima and int64 for sums; the user clears them.

        They are cached, except during the capture of a CUDA graph, whose memory is not zero before its first
        run.
        """
        found = self._sums.get((capacity, channels))
        if found is None:
            shape, device = (capacity, channels), self.counts.device
            found = (
                torch.zeros(shape, dtype=torch.int32, device=device),
                torch.zeros(shape, dtype=torch.int64, device=device),
            )
            if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
                self._sums[capacity, channels] = found
        return found

    @property
    def line_cells(self) -> int:
        """Cells from one row of the grid to the next."""
        return padded_width(self.spatial_shape[1])


@dataclass(frozen=True, eq=False)
class LocatedPoints:
    """Points with their cells, before pillars have rows.

    Attributes:
        points: (B, P, C) float32 input.
        lengths: (B,) int32 input.
        config: grid.
        cells: (B * P,) int32 cell of each point, -1 for ignored points; undefined beyond a frame's length.
        ranks: (B * P,) int32 number of the point in its cell, in arbitrary order; undefined without a cell.
        workspace: counts and sums of this batch, zero again after :func:`sort_points`.
    """

    points: Tensor
    lengths: Tensor
    config: PillarConfig
    cells: Tensor
    ranks: Tensor
    workspace: PillarWorkspace

    @property
    def bits(self) -> Tensor:
        """(words,) int32, one bit per occupied cell; zero after :func:`sort_points`."""
        return self.workspace.bits


@dataclass(frozen=True, eq=False)
class FixedPillars:
    """Points of a batch of frames, grouped by pillar, in buffers of fixed size.

    Attributes:
        grid: active pillars; points of pillars beyond its capacity are dropped.
        points: (B * P, C) float32 x, y, z (metres, LiDAR frame), intensity, and for several sweeps the age,
            sorted by pillar, in arbitrary order within a pillar; undefined from ``kept`` on.
        offsets: (capacity + 1,) int32 first point of each pillar; ``kept`` from ``grid.count`` on.
        invalid: (B,) int32 dropped points with NaN or infinite values.
    """

    grid: FixedGrid
    points: Tensor
    offsets: Tensor
    invalid: Tensor

    @property
    def kept(self) -> Tensor:
        """(1,) int32 number of points in pillars; shares memory with ``offsets``."""
        return self.offsets[-1:]
