"""Patterns from dense masks of blocks or tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern


def from_block_mask(
    mask: Tensor, block_size: int = 64, *, query_length: int | None = None, key_length: int | None = None
) -> BlockPattern:
    """Make full blocks where ``mask`` is True.

    Args:
        mask: bool (block rows, block columns), or (heads, block rows, block columns) when heads differ; the
            pattern is on its device.
        block_size: tokens along a side of a block.
        query_length: queries, ending in the last block row; whole blocks by default.
        key_length: keys, ending in the last block column; whole blocks by default.

    Raises:
        TypeError: a mask that is not bool.
        ValueError: another shape, or lengths that need another number of blocks.
    """
    heads = _check_mask(mask)
    *_, rows, columns = mask.shape
    grid = BlockGrid(
        heads,
        rows * block_size if query_length is None else query_length,
        columns * block_size if key_length is None else key_length,
        block_size,
    )
    grid.check()
    if (grid.rows, grid.columns) != (rows, columns):
        raise ValueError(
            f"{grid.query_length} queries and {grid.key_length} keys in blocks of {block_size} need a mask of"
            f" {grid.rows} x {grid.columns} blocks, got {rows} x {columns}"
        )
    head, row, column = mask.reshape(heads, rows, columns).nonzero().unbind(dim=1)
    masks = torch.zeros((0, block_size, block_size), dtype=torch.bool, device=mask.device)
    return BlockPattern.assemble(grid, head, row, column, torch.full_like(head, FULL), masks)


def from_token_mask(mask: Tensor, block_size: int = 64) -> BlockPattern:
    """Convert a dense mask exactly.

    Args:
        mask: bool (queries, keys), or (heads, queries, keys) when heads differ, True where a query may attend
            to a key; the pattern is on its device.
        block_size: tokens along a side of a block.

    Raises:
        TypeError: a mask that is not bool.
        ValueError: another shape, or a bad block size.
    """
    heads = _check_mask(mask)
    *_, queries, keys = mask.shape
    grid = BlockGrid(heads, queries, keys, block_size)
    grid.check()
    padding = (0, grid.columns * block_size - keys, 0, grid.rows * block_size - queries)
    places, masks = [], []
    for head, tokens in enumerate(mask.reshape(heads, queries, keys)):
        padded = torch.nn.functional.pad(tokens, padding)
        blocks = padded.reshape(grid.rows, block_size, grid.columns, block_size).transpose(1, 2)
        row, column = blocks.any(dim=3).any(dim=2).nonzero().unbind(dim=1)
        places.append(torch.stack([torch.full_like(row, head), row, column]))
        masks.append(blocks[row, column])
    head_index, row, column = torch.cat(places, dim=1).unbind()
    index = torch.arange(len(row), device=mask.device)
    return BlockPattern.assemble(grid, head_index, row, column, index, torch.cat(masks))


def _check_mask(mask: Tensor) -> int:
    """Return the heads of a valid mask."""
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, got {mask.dtype}: compare scores with a threshold first")
    if mask.ndim not in (2, 3) or 0 in mask.shape:
        raise ValueError(
            "mask must have shape (queries, keys) or (heads, queries, keys) and not be empty,"
            f" got {tuple(mask.shape)}"
        )
    return mask.shape[0] if mask.ndim == 3 else 1
