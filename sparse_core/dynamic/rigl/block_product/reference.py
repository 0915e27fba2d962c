"""Products with blocks in plain torch: one batched dense product.

Each block row gathers the input rows that it meets, so that the product is dense and evenly loaded; missing
blocks cost nothing. Gathering copies the input once per block of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from sparse_core.dynamic.rigl.block_product.plan import BlockPlan, Taps
from sparse_core.dynamic.rigl.grid import Grid


def product(values: Tensor, met: Tensor, plan: BlockPlan) -> Tensor:
    """Return (rows, N) from values (count, cell_rows, cell_columns) and inputs of :func:`gather_rows`."""
    return torch.bmm(_stack_blocks(values, plan.grid), met).reshape(plan.grid.rows, met.shape[2])


def dense_gradient(values: Tensor, gradient: Tensor, plan: BlockPlan) -> Tensor:
    """Return the transposed weight times ``gradient`` (rows, N), (columns, N)."""
    grid = plan.grid
    lines = gradient.reshape(grid.shape[0], grid.cell_rows, gradient.shape[1])
    parts = torch.bmm(_stack_blocks(values, grid).transpose(1, 2), lines)
    return _sum_columns(parts.reshape(grid.count, -1), plan).reshape(grid.columns, gradient.shape[1])


def value_gradient(met: Tensor, gradient: Tensor, plan: BlockPlan) -> Tensor:
    """Return ``gradient @ dense.T`` within the blocks, (count, cell_rows, cell_columns)."""
    grid = plan.grid
    lines = gradient.reshape(grid.shape[0], grid.cell_rows, gradient.shape[1])
    stacked = torch.bmm(lines, met.transpose(1, 2))
    blocks = stacked.reshape(-1, grid.cell_rows, grid.per_row, grid.cell_columns)
    return blocks.transpose(1, 2).reshape(grid.values_shape)


def _stack_blocks(values: Tensor, grid: Grid) -> Tensor:
    """Return the blocks of each block row side by side, (block rows, cell_rows, per_row * cell_columns)."""
    blocks = values.reshape(-1, grid.per_row, grid.cell_rows, grid.cell_columns)
    return blocks.transpose(1, 2).reshape(len(blocks), grid.cell_rows, -1)


def gather_rows(dense: Tensor, plan: BlockPlan) -> Tensor:
    """Return the rows of ``dense`` (columns, N) that each block row meets.

    Their shape is (block rows, per_row * cell_columns, N).
    """
    grid = plan.grid
    lines = dense.reshape(grid.shape[1], -1).index_select(0, plan.column)
    return lines.reshape(grid.shape[0], grid.per_row * grid.cell_columns, dense.shape[1])


def gather_pixels(x: Tensor, plan: BlockPlan, taps: Taps) -> Tensor:
    """Do the same for the pixels of ``x`` (B, C, H, W); copies only the pixels that blocks meet.

    The shape is (block rows, per_row * cell_columns, B * H' * W').
    """
    grid = plan.grid
    shifted = _windows(_padded(x, taps), taps)
    blocks = shifted.unflatten(3, (-1, grid.cell_columns)).permute(1, 2, 3, 4, 0, 5, 6)
    tap, channel = plan.forward.tap.long(), plan.forward.place.long()
    met: Tensor = blocks[tap // taps.kernel[1], tap % taps.kernel[1], channel]
    return met.reshape(grid.shape[0], grid.per_row * grid.cell_columns, -1)


def spread_pixels(columns: Tensor, x: Tensor, taps: Taps) -> Tensor:
    """Sum ``columns`` (taps * C, B * H' * W') at the pixels of ``x`` from which they were taken."""
    around = torch.zeros_like(_padded(x, taps))
    target = _windows(around, taps)
    size = taps.extent((x.shape[2], x.shape[3]))
    parts = columns.reshape(*taps.kernel, x.shape[1], len(x), *size).transpose(2, 3)
    for down in range(taps.kernel[0]):
        for across in range(taps.kernel[1]):
            target[:, down, across] += parts[down, across]
    (top, left), (height, width) = taps.padding, x.shape[2:]
    return around[:, :, top : top + height, left : left + width]


def _padded(x: Tensor, taps: Taps) -> Tensor:
    down, across = taps.padding
    return pad(x, (across, across, down, down))


def _windows(x: Tensor, taps: Taps) -> Tensor:
    """Return a (B, kernel height, kernel width, C, H', W') view of a padded image."""
    size = taps.extent((x.shape[2] - 2 * taps.padding[0], x.shape[3] - 2 * taps.padding[1]))
    frame, channel, down, across = x.stride()
    return x.as_strided(
        (len(x), *taps.kernel, x.shape[1], *size),
        (
            frame,
            down * taps.dilation[0],
            across * taps.dilation[1],
            channel,
            down * taps.stride[0],
            across * taps.stride[1],
        ),
        x.storage_offset(),
    )


def _sum_columns(parts: Tensor, plan: BlockPlan) -> Tensor:
    """Sum ``parts`` (count, features) by block column, (block columns, features)."""
    if not parts.is_cuda:
        total = parts.new_zeros(plan.grid.shape[1], parts.shape[1])
        return total.index_add_(0, plan.column, parts)
    # One thread sums a segment in order: unlike index_add_, this repeats bit for bit.
    ordered = parts.index_select(0, plan.order)
    return torch.segment_reduce(ordered, "sum", lengths=plan.lengths, axis=0, unsafe=True, initial=0.0)
