"""Union, intersection, shift and causal part of patterns, exact to the token."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from sparse_core.attention.patterns.blocks import PatternBlocks
from sparse_core.attention.patterns.grid import FULL

Blocks = TypeVar("Blocks", bound=PatternBlocks)

#: Mask index of a block that is not stored.
_ABSENT = -2


def union(first: Blocks, second: Blocks) -> Blocks:
    """Return the pairs that either pattern attends.

    Args:
        first, second: of equal lengths, block size and device; heads equal, or 1.
    """
    first, second = match_heads(first, second)
    if first.blocks == 0 or second.blocks == 0:
        return second if first.blocks == 0 else first
    keys = _keys(first), _keys(second)
    key, place = torch.unique(torch.cat(keys), return_inverse=True)
    masks = [torch.full_like(key, _ABSENT) for _ in keys]
    masks[0][place[: len(keys[0])]] = first.partial.long()
    masks[1][place[len(keys[0]) :]] = second.partial.long()
    full = (masks[0] == FULL) | (masks[1] == FULL)
    # Concatenate the masks of both; add a new mask where both blocks have one.
    offset = len(first.token_masks)
    mask = torch.where(masks[0] >= 0, masks[0], masks[1] + offset).masked_fill(full, FULL)
    both = (masks[0] >= 0) & (masks[1] >= 0)
    index, left, right = _pairs(masks[0][both], masks[1][both], len(second.token_masks))
    mask[both] = index + offset + len(second.token_masks)
    joined = first.token_masks[left] | second.token_masks[right]
    return _from_keys(first, key, mask, torch.cat([first.token_masks, second.token_masks, joined]))


def intersection(first: Blocks, second: Blocks) -> Blocks:
    """Return the pairs that both patterns attend; arguments and errors as for :func:`union`."""
    first, second = match_heads(first, second)
    left_key, right_key = _keys(first), _keys(second)
    # Both lists ascend, so a binary search finds the common keys.
    place = torch.searchsorted(right_key, left_key).clamp(max=max(0, len(right_key) - 1))
    common = right_key[place] == left_key if len(right_key) else torch.zeros_like(left_key, dtype=torch.bool)
    masks = first.partial[common].long(), second.partial[place[common]].long()
    offset = len(first.token_masks)
    mask = torch.where(masks[0] >= 0, masks[0], torch.where(masks[1] >= 0, masks[1] + offset, FULL))
    both = (masks[0] >= 0) & (masks[1] >= 0)
    index, left, right = _pairs(masks[0][both], masks[1][both], len(second.token_masks))
    mask[both] = index + offset + len(second.token_masks)
    joined = first.token_masks[left] & second.token_masks[right]
    table = torch.cat([first.token_masks, second.token_masks, joined])
    return _from_keys(first, left_key[common], mask, table)


def causal(pattern: Blocks) -> Blocks:
    """Drop keys after the query: key j stays if j <= i + key_length - query_length.

    With more queries than keys, the first queries have no key.
    """
    size = pattern.block_size
    head, row, column = pattern.coordinates()
    # First key of a block minus the last key that its first query may see.
    offset = (column - row) * size - (pattern.key_length - pattern.query_length)
    kept = offset < size
    head, row, column, offset = head[kept], row[kept], column[kept], offset[kept]
    crossed = offset > -size + 1
    distances, index = torch.unique(offset[crossed], return_inverse=True)
    mask = torch.full_like(offset, FULL)
    mask[crossed] = index
    place = torch.arange(size, device=pattern.device)
    masks = distances[:, None, None] + place <= place[:, None]
    return intersection(pattern, pattern.assemble(pattern.grid, head, row, column, mask, masks))


def shifted(pattern: Blocks, rows: int = 0, columns: int = 0) -> Blocks:
    """Move the pattern by whole tokens: query i and key j become i + rows and j + columns.

    Args:
        pattern: to move; the lengths stay.
        rows: tokens, towards later queries; may be negative.
        columns: tokens, towards later keys; may be negative.
    """
    for name, value in (("rows", rows), ("columns", columns)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number of tokens, got {value!r}")
    grid, size = pattern.grid, pattern.block_size
    down, right = rows % size, columns % size
    head, row, column = pattern.coordinates()
    mask, masks = _with_edges(pattern, row, column)
    row, column = row + rows // size, column + columns // size
    result: Blocks | None = None
    # A block that does not move by whole blocks covers up to four.
    for i in range(2 if down else 1):
        for j in range(2 if right else 1):
            kept = (row + i >= 0) & (row + i < grid.rows) & (column + j >= 0) & (column + j < grid.columns)
            quarter = _quarter(masks, down - i * size, right - j * size)
            part = pattern.assemble(grid, head[kept], row[kept] + i, column[kept] + j, mask[kept], quarter)
            result = part if result is None else union(result, part)
    assert result is not None
    return result


def match_heads(first: Blocks, second: Blocks) -> tuple[Blocks, Blocks]:
    """Expand both patterns to the same number of heads; raise if they do not match."""
    check_alike(first, second)
    heads = max(first.heads, second.heads)
    if {first.heads, second.heads} - {1, heads}:
        raise ValueError(
            f"cannot combine patterns with {first.heads} and {second.heads} heads: both need the same number,"
            " or one of them 1"
        )
    return first.expand_heads(heads), second.expand_heads(heads)


def check_alike(first: PatternBlocks, second: PatternBlocks) -> None:
    """Raise ``ValueError`` unless two patterns have the same lengths, block size and device."""
    for name in ("query_length", "key_length", "block_size", "device"):
        left, right = getattr(first, name), getattr(second, name)
        if left != right:
            raise ValueError(f"cannot combine patterns of different {name}: {left} and {right}")


def _keys(pattern: PatternBlocks) -> Tensor:
    """Return an ascending int64 key per block."""
    head, row, column = pattern.coordinates()
    return (head * pattern.block_rows + row) * pattern.block_columns + column


def _from_keys(pattern: Blocks, key: Tensor, mask: Tensor, masks: Tensor) -> Blocks:
    grid = pattern.grid
    row = key // grid.columns
    return pattern.assemble(grid, row // grid.rows, row % grid.rows, key % grid.columns, mask, masks)


def _pairs(left: Tensor, right: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pair number of each entry, and the members of the distinct pairs."""
    pairs, index = torch.unique(left * max(1, count) + right, return_inverse=True)
    return index, pairs // max(1, count), pairs % max(1, count)


def _with_edges(pattern: PatternBlocks, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Return a mask for each block, full blocks too, because a moved block is no longer full."""
    edge = pattern.grid.edges(row, column)
    mask = pattern.partial.long()
    mask = torch.where(mask == FULL, len(pattern.token_masks) + edge, mask)
    return mask, torch.cat([pattern.token_masks, pattern.grid.inside(pattern.device)])


def _quarter(masks: Tensor, down: int, right: int) -> Tensor:
    """Move masks within their block, by less than its size; drop the rest."""
    size = masks.shape[1]
    moved = torch.zeros_like(masks)
    to_rows, to_columns = slice(max(0, down), size + min(0, down)), slice(max(0, right), size + min(0, right))
    from_rows, from_columns = (
        slice(max(0, -down), size - max(0, down)),
        slice(max(0, -right), size - max(0, right)),
    )
    moved[:, to_rows, to_columns] = masks[:, from_rows, from_columns]
    return moved
