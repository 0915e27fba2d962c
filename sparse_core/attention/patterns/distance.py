"""Patterns of tokens with positions in space: a query attends to the keys within a radius."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

#: Distances per chunk: on a CPU they fit in a cache, on a GPU they need few launches.
_CHUNK, _CHUNK_ON_GPU = 1 << 18, 1 << 23


def from_distance(
    query_positions: Tensor,
    key_positions: Tensor | None = None,
    *,
    radius: float,
    block_size: int = 64,
    lengths: Sequence[int] | Tensor | None = None,
    count: int = 0,
) -> BlockPattern:
    """Let query i attend to the keys at most ``radius`` away.

    Only blocks whose bounding boxes are near, but not entirely within the radius, are compared token by
    token. Consecutive tokens should be close in space (sort them along a space-filling curve), or every block
    is needed. Distances are float64 and the boundary is included.

    Args:
        query_positions: (queries, dimensions) floating point, in any unit.
        key_positions: (keys, dimensions), those of the queries by default.
        radius: in the unit of the positions, 0 or more.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        lengths: tokens of packed sequences, as for :func:`documents`: each attends only to itself. One
            sequence by default. Not with ``key_positions``.
        count: global tokens at the start of each sequence, at any distance, as for :func:`global_tokens`. Not
            with ``key_positions``.

    Returns:
        A pattern on the positions' device, shared by all heads.

    Raises:
        TypeError: positions that are not floating point.
        ValueError: shapes or devices do not match, positions are not finite, lengths do not sum to the number
            of positions, or an argument is out of range.
    """
    if not (radius >= 0 and math.isfinite(radius)):
        raise ValueError(f"radius must be a number of at least 0, got {radius}")
    queries = _check_positions("query_positions", query_positions)
    keys = queries if key_positions is None else _check_positions("key_positions", key_positions)
    if keys.shape[1] != queries.shape[1] or keys.device != queries.device:
        raise ValueError(
            f"key_positions have {keys.shape[1]} dimensions on {keys.device} but query_positions have"
            f" {queries.shape[1]} on {queries.device}"
        )
    if key_positions is not None and (lengths is not None or count):
        raise ValueError(
            "lengths and count need queries and keys at the same positions: leave out key_positions"
        )
    grid = BlockGrid(1, len(queries), len(keys), block_size)
    grid.check()
    sequences = _sequences(grid, lengths, count, queries.device)
    rows = _in_blocks(queries, grid.rows, block_size)
    columns = rows if key_positions is None else _in_blocks(keys, grid.columns, block_size)
    # Box and token tests agree despite rounding: each step from coordinates to squared distances is monotone.
    limit = float(radius) * float(radius)
    row, column, whole = _candidates(rows, columns, limit, sequences)
    places = [whole.nonzero()[:, 0]]
    masks = [torch.zeros((0, block_size, block_size), dtype=torch.bool, device=row.device)]
    for blocks in (~whole).nonzero()[:, 0].split(max(1, _chunk_size(row) // block_size**2)):
        pairs = zip(rows, columns, strict=True)
        differences = (left[row[blocks], :, None] - right[column[blocks], None] for left, right in pairs)
        near = _sum_of_squares(differences) <= limit
        if sequences is not None:
            near = sequences.add_global_pairs(near, row[blocks], column[blocks])
        # An int64 tests eight pairs at once.
        hit = near.flatten(1).view(torch.int64).any(dim=1)
        places.append(blocks[hit])
        masks.append(near[hit])
    place = torch.cat(places)
    # Full blocks come first; the others have one mask each.
    mask = (torch.arange(len(place), device=row.device) - len(places[0])).clamp(min=FULL)
    return BlockPattern.assemble(
        grid, torch.zeros_like(place), row[place], column[place], mask, torch.cat(masks)
    )


class _Sequences(NamedTuple):
    """Sequence of each token.

    Attributes:
        number: (blocks, block_size) int64, index of the sequence.
        leads: (blocks, block_size) bool, True for global tokens.
    """

    number: Tensor
    leads: Tensor

    def candidates(self, near: Tensor, first_row: int) -> Tensor:
        """Return (rows, columns) of blocks that may have pairs; ``near`` holds those near enough."""
        rows = slice(first_row, first_row + len(near))
        low, high, leads = self.number.amin(1), self.number.amax(1), self.leads.any(1)
        meet = (low[rows, None] <= high) & (low <= high[rows, None])
        return (near | leads[rows, None] | leads) & meet

    def alike(self, row: Tensor, column: Tensor) -> Tensor:
        """Return (n,) bool: True if all tokens of two blocks belong to one sequence."""
        low, high = self.number.amin(1), self.number.amax(1)
        return (low[row] == high[column]) & (low[column] == high[row])

    def add_global_pairs(self, near: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Add global pairs to ``near`` (n, block_size, block_size) and drop pairs across sequences."""
        # Most blocks hold neither two sequences nor a global token.
        special = (self.leads.any(1)[row] | self.leads.any(1)[column] | ~self.alike(row, column)).nonzero()[
            :, 0
        ]
        row, column = row[special], column[special]
        pairs = near[special] | self.leads[row][:, :, None] | self.leads[column][:, None]
        near[special] = pairs & (self.number[row][:, :, None] == self.number[column][:, None])
        return near


def _sequences(
    grid: BlockGrid, lengths: Sequence[int] | Tensor | None, count: int, device: torch.device
) -> _Sequences | None:
    """Return the sequences of a grid's tokens; None for one sequence without global tokens."""
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    if lengths is None and not count:
        return None
    counts = torch.as_tensor(
        [grid.query_length] if lengths is None else lengths, dtype=torch.int64, device=device
    )
    if counts.ndim != 1 or (len(counts) and int(counts.min()) < 0) or int(counts.sum()) != grid.query_length:
        raise ValueError(
            f"lengths must be at least 0 and sum to the {grid.query_length} positions, got {counts.tolist()}"
        )
    number = torch.repeat_interleave(torch.arange(len(counts), device=device), counts)
    leads = torch.arange(len(number), device=device) - (counts.cumsum(0) - counts)[number] < count
    number, leads = (_in_blocks(one[:, None], grid.rows, grid.block_size)[0] for one in (number, leads))
    return _Sequences(number, leads)


def _check_positions(name: str, positions: Tensor) -> Tensor:
    """Return valid positions in float64."""
    if not positions.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {positions.dtype}")
    if positions.ndim != 2 or 0 in positions.shape:
        raise ValueError(f"{name} must have shape (tokens, dimensions), got {tuple(positions.shape)}")
    wrong = (~positions.isfinite()).any(dim=1).nonzero()
    if len(wrong):
        raise ValueError(
            f"{name} must be finite, token {int(wrong[0, 0])} is {positions[wrong[0, 0]].tolist()}"
        )
    return positions.detach().double()


def _in_blocks(positions: Tensor, blocks: int, block_size: int) -> Tensor:
    """Reshape to (dimensions, blocks, block_size); repeat the last token as padding."""
    index = torch.arange(blocks * block_size, device=positions.device).clamp(max=len(positions) - 1)
    return positions.T[:, index].reshape(positions.shape[1], blocks, block_size)


def _candidates(
    rows: Tensor, columns: Tensor, limit: float, sequences: _Sequences | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return row and column of near blocks, and True where even their far corners are near.

    With sequences, blocks must share one; those with global tokens are always near.
    """
    lower, upper = columns.amin(dim=2)[:, None], columns.amax(dim=2)[:, None]
    low, high = rows.amin(dim=2)[:, :, None], rows.amax(dim=2)[:, :, None]
    found = []
    chunk = max(1, _chunk_size(columns) // columns.shape[1])
    for start in range(0, rows.shape[1], chunk):
        part = slice(start, start + chunk)
        # Per axis: distance between the boxes, and between their far sides.
        before, behind = low[:, part] - upper, lower - high[:, part]
        gap = _sum_of_squares(torch.maximum(before, behind).clamp(min=0))
        reach = _sum_of_squares(torch.maximum(-before, -behind))
        near = gap <= limit
        if sequences is not None:
            near = sequences.candidates(near, start)
        row, column = near.nonzero().unbind(dim=1)
        whole = reach[row, column] <= limit
        if sequences is not None:
            whole &= sequences.alike(row + start, column)
        found.append((row + start, column, whole))
    row, column, whole = (torch.cat(parts) for parts in zip(*found, strict=True))
    return row, column, whole


def _chunk_size(tensor: Tensor) -> int:
    """Return the distances per chunk on the tensor's device."""
    return _CHUNK_ON_GPU if tensor.is_cuda else _CHUNK


def _sum_of_squares(differences: Iterable[Tensor]) -> Tensor:
    """Sum over the axes, always in the same order."""
    total: Tensor | None = None
    for difference in differences:
        square = difference * difference
        total = square if total is None else total.add_(square)
    assert total is not None
    return total
