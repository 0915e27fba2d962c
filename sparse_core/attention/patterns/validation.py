"""Checks of every number of a pattern that a builder did not make."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.attention.patterns.blocks import PatternBlocks
from sparse_core.attention.patterns.grid import FULL, equal_masks


def validate(pattern: PatternBlocks) -> None:
    """Check every number of a pattern; waits for the device.

    Raises:
        ValueError: names the wrong head, block row and block, or the mask.
    """
    _check_offsets(pattern)
    _check_columns(pattern)
    _check_masks(pattern)


def _check_offsets(pattern: PatternBlocks) -> None:
    row_ptr = pattern.row_ptr.long()
    if int(row_ptr[0, 0]) != 0:
        raise ValueError(f"row_ptr must begin with 0, got {int(row_ptr[0, 0])}")
    wrong = (row_ptr[1:, 0] != row_ptr[:-1, -1]).nonzero()
    if len(wrong):
        head = int(wrong[0, 0]) + 1
        raise ValueError(
            f"row_ptr of head {head} must begin where head {head - 1} ends,"
            f" at {int(row_ptr[head - 1, -1])}, got {int(row_ptr[head, 0])}"
        )
    falls = (row_ptr[:, 1:] < row_ptr[:, :-1]).nonzero()
    if len(falls):
        head, row = (int(place) for place in falls[0])
        raise ValueError(f"row_ptr decreases after block row {row} of head {head}: sort its offsets")
    if int(row_ptr[-1, -1]) != pattern.blocks:
        raise ValueError(f"row_ptr must end with the {pattern.blocks} blocks, got {int(row_ptr[-1, -1])}")


def _check_columns(pattern: PatternBlocks) -> None:
    head, row, column = pattern.coordinates()
    outside = (column < 0) | (column >= pattern.block_columns)
    if place := _first(outside):
        block = place[0]
        raise ValueError(
            f"{_where(block, head, row)} has column {int(column[block])}, expected 0 to"
            f" {pattern.block_columns - 1}"
        )
    same = (head[1:] == head[:-1]) & (row[1:] == row[:-1])
    if place := _first(same & (column[1:] <= column[:-1])):
        block = place[0] + 1
        raise ValueError(
            f"{_where(block, head, row)} has column {int(column[block])} after {int(column[block - 1])}:"
            " columns must ascend within a row (from_block_mask and from_token_mask sort them)"
        )


def _check_masks(pattern: PatternBlocks) -> None:
    head, row, column = pattern.coordinates()
    mask = pattern.partial.long()
    count = len(pattern.token_masks)
    if place := _first((mask < FULL) | (mask >= count)):
        block = place[0]
        raise ValueError(
            f"{_where(block, head, row)} has mask {int(mask[block])}, expected -1 (full) to {count - 1}"
        )
    grid = pattern.grid
    used = mask != FULL
    pairs = torch.unique(mask[used] * 4 + grid.edges(row[used], column[used]))
    inside = grid.inside(pattern.device)[pairs % 4]
    masks = pattern.token_masks[pairs // 4]
    counts = masks.sum(dim=(1, 2))
    for wrong, fault in (
        ((masks & ~inside).any(dim=2).any(dim=1), "is True at tokens beyond the lengths"),
        (counts == 0, "has no pair: leave the block out"),
        (counts == inside.sum(dim=(1, 2)), "has every pair: its block is full, -1"),
    ):
        if place := _first(wrong):
            index = int(pairs[place[0]])
            users = (mask == index // 4) & (grid.edges(row, column) == index % 4)
            block = int(users.nonzero()[0, 0])
            raise ValueError(f"{_where(block, head, row)}: token mask {index // 4} {fault}")
    if len(torch.unique(mask[used])) != count:
        unused = sorted(set(range(count)) - set(mask[used].tolist()))[0]
        raise ValueError(f"token mask {unused} belongs to no block")
    if count and int(equal_masks(pattern.token_masks).max()) + 1 < count:
        raise ValueError("two token masks are equal: keep one and let the blocks share it")


def _first(wrong: Tensor) -> tuple[int] | None:
    """Return the index of the first True in a tuple, which is truthy even for index 0."""
    places = wrong.nonzero()
    return (int(places[0, 0]),) if len(places) else None


def _where(block: int, head: Tensor, row: Tensor) -> str:
    return f"head {int(head[block])}, block row {int(row[block])}, block {block}"
