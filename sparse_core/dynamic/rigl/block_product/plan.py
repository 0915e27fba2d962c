"""Block positions for products with a weight and with its transpose."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.dynamic.rigl.grid import Grid


class Taps(NamedTuple):
    """A convolution with columns ordered by tap, then by channel.

    Attributes:
        kernel, stride, padding, dilation: (down, across).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def places(self) -> int:
        """Number of taps of the kernel."""
        return self.kernel[0] * self.kernel[1]

    def extent(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return height and width of the result; below 1 if the image is smaller than the kernel."""
        down, across = (
            (size[axis] + 2 * self.padding[axis] - self.dilation[axis] * (self.kernel[axis] - 1) - 1)
            // self.stride[axis]
            + 1
            for axis in (0, 1)
        )
        return down, across


class Gather(NamedTuple):
    """For each block of result features: the weight's blocks that contribute, and the inputs they read.

    Attributes:
        start: (feature blocks + 1,) int32, first entry of each feature block.
        block: (count,) int32, number of the weight's block.
        place: (count,) int32, input feature block that it reads.
        tap: (count,) int32, tap of a convolution, else 0.
        longest: (feature blocks,) int32, those with the most entries first.
    """

    start: Tensor
    block: Tensor
    place: Tensor
    tap: Tensor
    longest: Tensor


class FixedParts(NamedTuple):
    """Tensors that all topologies of a grid share."""

    start: Tensor
    number: Tensor
    rows: Tensor
    zeros: Tensor
    columns: Tensor
    channels: Tensor


class BlockPlan(NamedTuple):
    """Block positions of a topology.

    Attributes:
        grid: the cells.
        column: (count,) int64, block column of each block.
        order: (count,) int64, the blocks sorted by column.
        lengths: (block columns,) int64, blocks in each column.
        taps: number of taps by which columns are ordered; 1 for a Linear layer.
        forward: gather plan of the product with the weight.
        backward: gather plan of the product with its transpose.
        fixed: the parts that all topologies share.
    """

    grid: Grid
    column: Tensor
    order: Tensor
    lengths: Tensor
    taps: int
    forward: Gather
    backward: Gather
    fixed: FixedParts


def plan_blocks(cells: Tensor, grid: Grid, taps: int = 1, *, like: BlockPlan | None = None) -> BlockPlan:
    """Return the plan of a topology; does not wait for the device.

    Args:
        cells: (count,) int64, rising.
        grid: has the same number of blocks in every block row.
        taps: taps of a convolution, if block columns are ordered by tap, then by channel.
        like: another plan of the same grid, whose fixed parts are reused.
    """
    channels = grid.shape[1] // taps
    fixed = like.fixed if like is not None else _fixed_parts(grid, taps, cells.device)
    column = cells % grid.shape[1]
    ordered, order = torch.sort(column, stable=True)
    lengths = torch.searchsorted(ordered, fixed.columns).diff()
    place = column.to(torch.int32)
    if taps == 1:
        tap = back_tap = fixed.zeros
        channel, by_channel = ordered, order
    else:
        tap = torch.div(place, channels, rounding_mode="floor")
        place = place % channels
        channel, by_channel = torch.sort(place, stable=True)
        back_tap = tap.index_select(0, by_channel)
    start = torch.searchsorted(channel, fixed.channels)
    by_channel = by_channel.to(torch.int32)
    backward = Gather(
        start.to(torch.int32),
        by_channel,
        torch.div(by_channel, grid.per_row, rounding_mode="floor"),
        back_tap,
        torch.argsort(start.diff(), descending=True, stable=True).to(torch.int32),
    )
    forward = Gather(fixed.start, fixed.number, place, tap, fixed.rows)
    return BlockPlan(grid, column, order, lengths, taps, forward, backward, fixed)


def _fixed_parts(grid: Grid, taps: int, device: torch.device) -> FixedParts:
    down, across = grid.shape
    rows = torch.arange(down + 1, device=device, dtype=torch.int32)
    number = torch.arange(grid.count, device=device, dtype=torch.int32)
    columns = torch.arange(across + 1, device=device)
    channels = torch.arange(
        across // taps + 1, device=device, dtype=torch.int64 if taps == 1 else torch.int32
    )
    return FixedParts(rows * grid.per_row, number, rows[:-1], torch.zeros_like(number), columns, channels)
