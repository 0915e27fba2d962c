"""Product of a weight that has as many blocks in every row of blocks: one batched dense product.

The rows of the operand that a row of blocks meets are gathered side by side, so that the product is dense and
evenly loaded; blocks that are not there cost nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparse_core.dynamic.rigl.grid import Grid


class BlockPlan(NamedTuple):
    """Places of the blocks, for products with the weight and with its transpose.

    Attributes:
        grid: the cells.
        column: (count,) int64, column of each block.
        order: (count,) int64, the blocks by column.
        lengths: (columns of blocks,) int64, blocks in each column.
    """

    grid: Grid
    column: Tensor
    order: Tensor
    lengths: Tensor


def plan_blocks(cells: Tensor, grid: Grid) -> BlockPlan:
    """The plan of a topology; nothing is read back from the device."""
    column = cells % grid.shape[1]
    ordered, order = torch.sort(column, stable=True)
    edges = torch.arange(grid.shape[1] + 1, device=cells.device)
    return BlockPlan(grid, column, order, torch.searchsorted(ordered, edges).diff())


def block_product(values: Tensor, dense: Tensor, plan: BlockPlan) -> Tensor:
    """``weight @ dense`` with gradients for both; results repeat to the bit.

    Args:
        values: (count, cell_rows, cell_columns).
        dense: (columns, N), same type.
        plan: of :func:`plan_blocks`.

    Returns:
        (rows, N).
    """
    product: Tensor = _BlockProduct.apply(values, dense, plan)
    return product


def _stacked(values: Tensor, grid: Grid) -> Tensor:
    """(rows of blocks, cell_rows, per_row * cell_columns): the blocks of a row side by side."""
    blocks = values.reshape(-1, grid.per_row, grid.cell_rows, grid.cell_columns)
    return blocks.transpose(1, 2).reshape(len(blocks), grid.cell_rows, -1)


def _gathered(dense: Tensor, plan: BlockPlan) -> Tensor:
    """(rows of blocks, per_row * cell_columns, N): the rows of ``dense`` that each row of blocks meets."""
    grid = plan.grid
    lines = dense.reshape(grid.shape[1], -1).index_select(0, plan.column)
    return lines.reshape(grid.shape[0], grid.per_row * grid.cell_columns, dense.shape[1])


def _summed(parts: Tensor, plan: BlockPlan) -> Tensor:
    """(columns of blocks, features): sums of (count, features) by column."""
    if not parts.is_cuda:
        total = parts.new_zeros(plan.grid.shape[1], parts.shape[1])
        return total.index_add_(0, plan.column, parts)
    # One thread adds a segment in order: unlike index_add_, the same bits every time.
    ordered = parts.index_select(0, plan.order)
    return torch.segment_reduce(ordered, "sum", lengths=plan.lengths, axis=0, unsafe=True, initial=0.0)


class _BlockProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dense: Tensor, plan: BlockPlan) -> Tensor:
        dense = dense.contiguous()
        ctx.save_for_backward(values, dense)
        ctx.plan = plan
        product = torch.bmm(_stacked(values, plan.grid), _gathered(dense, plan))
        return product.reshape(plan.grid.rows, dense.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, dense = ctx.saved_tensors
        plan, grid = ctx.plan, ctx.plan.grid
        lines = gradient.reshape(grid.shape[0], grid.cell_rows, dense.shape[1])
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            stacked = torch.bmm(lines, _gathered(dense, plan).transpose(1, 2))
            blocks = stacked.reshape(-1, grid.cell_rows, grid.per_row, grid.cell_columns)
            of_values = blocks.transpose(1, 2).reshape(values.shape)
        if ctx.needs_input_grad[1]:
            parts = torch.bmm(_stacked(values, grid).transpose(1, 2), lines)
            of_dense = _summed(parts.reshape(grid.count, -1), plan).reshape(dense.shape)
        return of_values, of_dense, None
