"""What passes between the steps from points to pillars, and the buffers they need."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from perception.config import PillarConfig
from sparse_core.conv.grid.layout import FixedGrid, padded_width, word_count

#: Sums of coordinates and of hidden features run in whole numbers of this part, so their order is free.
FIXED_POINT = float(1 << 24)
#: Cells of a tile: one program takes in this many at a time.
TILE = 1024
#: At most this many counters of blocks, because every program adds up all of them.
_MOST_BLOCKS = 2048
#: Counters of a block at most: points add to different ones, so that neighbours do not queue.
_MOST_COPIES = 8


def _block_cells(cells: int) -> int:
    """Cells of a block: the smallest power of two from a tile on that makes few enough blocks."""
    size = TILE
    while size * _MOST_BLOCKS < cells:
        size *= 2
    return size


def _copies(blocks: int) -> int:
    """Counters of a block, a power of two."""
    copies = 1
    while copies < _MOST_COPIES and 2 * copies * blocks <= _MOST_BLOCKS:
        copies *= 2
    return copies


@dataclass(frozen=True, eq=False)
class PillarWorkspace:
    """Buffers that count points and add them up: all zeros between frames.

    :func:`~perception.stages.pillars.locate_points` fills them,
    :func:`~perception.stages.pillars.fixed_encode` reads the sums, and
    :func:`~perception.stages.pillars.sort_points` clears what was filled, so a captured graph needs no
    memory set. Where the last did not follow the first, call :meth:`clear`. What the encoder adds up in, it
    makes at the first call and clears itself.

    Attributes:
        spatial_shape: rows (y) and columns (x) of the grid.
        batch_size: frames.
        block_cells: cells of a block, a power of two.
        counts: (cells,) int32 points of each cell, numbered as in :class:`FixedGrid`.
        bits: (words,) int32 one bit a cell: it holds a point.
        sums: (cells, 4) int64 sums over each cell's points: of x and y from the cell's middle and of z, in
            parts of 2^-24 m; and their number.
        copies: counters of a block, a power of two.
        block_points: (blocks * copies,) int32: of the points of each block, those whose index in the frame
            leaves each remainder when divided by ``copies``.
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
        """Cleared buffers for batches of ``batch_size`` frames; 36 1/8 bytes a cell.

        Raises:
            ValueError: no frame, or a grid whose cells do not fit 32 bits.
        """
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
        """Make every buffer zero again."""
        parts = (self.counts, self.bits, self.block_points, self.invalid, self.sums)
        for part in (*parts, *sum(self._sums.values(), ())):
            part.zero_()

    def accumulators(self, capacity: int, channels: int) -> tuple[Tensor, Tensor]:
        """Zeros (capacity, channels) int32 for maxima and int64 for sums; who fills them clears them.

        Made at the first call. One that a CUDA graph captures gets its own, which the graph clears: what it
        would leave here is not zero before the graph has run.
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
    """Points with their cells, before the rows of these cells are known.

    Attributes:
        points: (B, P, 4) float32 as given.
        lengths: (B,) int32 as given.
        config: the grid.
        cells: (B * P,) int32 cell of each point, -1 where it is left out; undefined behind a frame's length.
        ranks: (B * P,) int32 number of the point within its cell, in an arbitrary order; undefined where the
            cell is.
        workspace: counts and sums of this batch; ``workspace.bits`` is what :func:`grid_from_bits` and
            ``pyramid`` of :mod:`sparse_core.conv.grid` take. All is zero again after :func:`sort_points`.
    """

    points: Tensor
    lengths: Tensor
    config: PillarConfig
    cells: Tensor
    ranks: Tensor
    workspace: PillarWorkspace

    @property
    def bits(self) -> Tensor:
        """(words,) int32 one bit a cell: it holds a point. Zero after :func:`sort_points`."""
        return self.workspace.bits


@dataclass(frozen=True, eq=False)
class FixedPillars:
    """Points of a batch of frames, grouped by pillar, in buffers of fixed size.

    Attributes:
        grid: active pillars; rows beyond its capacity do not exist, and their points are left out.
        points: (B * P, 4) float32 x, y, z (metres, LiDAR frame), intensity: pillar after pillar, in an
            arbitrary order within one; undefined from ``kept`` on.
        offsets: (capacity + 1,) int32 first point of each pillar; from ``grid.count`` on all are ``kept``.
        invalid: (B,) int32 points with NaN or infinite values, left out.
    """

    grid: FixedGrid
    points: Tensor
    offsets: Tensor
    invalid: Tensor

    @property
    def kept(self) -> Tensor:
        """(1,) int32 points that lie in a pillar with a row; shares memory with ``offsets``."""
        return self.offsets[-1:]
