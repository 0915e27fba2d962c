"""Patterns of tokens that have places in space: a query attends to the keys around it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

#: Distances that are held at once: what fits a cache, and on a GPU few launches.
_HELD, _HELD_ON_GPU = 1 << 18, 1 << 23


def from_distance(
    query_positions: Tensor,
    key_positions: Tensor | None = None,
    *,
    radius: float,
    block_size: int = 64,
    lengths: Sequence[int] | Tensor | None = None,
    count: int = 0,
) -> BlockPattern:
    """Query i attends to the keys that are at most ``radius`` away.

    Blocks whose bounding boxes are too far apart are never looked at token by token, nor are those that are
    close enough as a whole; memory grows with the blocks that are left. Tokens that follow each other should
    be close to each other (sort them along a space-filling curve), or every block is needed. Distances are
    computed in float64, with the boundary included.

    Args:
        query_positions: (queries, dimensions) floating point, in any unit.
        key_positions: (keys, dimensions), those of the queries by default.
        radius: in the unit of the positions, 0 or more.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        lengths: tokens of sequences that stand behind each other, as for :func:`documents`: each attends to
            itself alone. One sequence by default.
        count: the first tokens of each sequence, which attend to all of it, and all of it to them, wherever
            they are, as :func:`global_tokens` has it. As ``lengths`` for positions that are queries and keys.

    Returns:
        A pattern on the positions' device, shared by all heads.

    Raises:
        TypeError: positions that are not floating point.
        ValueError: other shapes or devices, positions that are not finite, lengths that do not add up to the
            positions, a negative count, either of these beside ``key_positions``, or a bad radius or block
            size.
    """
    if not (radius >= 0 and math.isfinite(radius)):
        raise ValueError(f"radius must be a number of at least 0, got {radius}")
    queries = _checked("query_positions", query_positions)
    keys = queries if key_positions is None else _checked("key_positions", key_positions)
    if keys.shape[1] != queries.shape[1] or keys.device != queries.device:
        raise ValueError(
            f"key_positions have {keys.shape[1]} dimensions on {keys.device} but query_positions have"
            f" {queries.shape[1]} on {queries.device}"
        )
    if key_positions is not None and (lengths is not None or count):
        raise ValueError(
            "lengths and count are for positions that are queries and keys: leave key_positions out"
        )
    grid = BlockGrid(1, len(queries), len(keys), block_size)
    grid.check()
    sequences = _sequences(grid, lengths, count, queries.device)
    rows = _in_blocks(queries, grid.rows, block_size)
    columns = rows if key_positions is None else _in_blocks(keys, grid.columns, block_size)
    # Rounding cannot set the tests at odds: every step from coordinates to squared distances is monotone.
    limit = float(radius) * float(radius)
    row, column, whole = _candidates(rows, columns, limit, sequences)
    places = [whole.nonzero()[:, 0]]
    masks = [torch.zeros((0, block_size, block_size), dtype=torch.bool, device=row.device)]
    for blocks in (~whole).nonzero()[:, 0].split(max(1, _held(row) // block_size**2)):
        pairs = zip(rows, columns, strict=True)
        apart = (left[row[blocks], :, None] - right[column[blocks], None] for left, right in pairs)
        near = _sum_of_squares(apart) <= limit
        if sequences is not None:
            near = sequences.joined(near, row[blocks], column[blocks])
        # Eight at a time.
        hit = near.flatten(1).view(torch.int64).any(dim=1)
        places.append(blocks[hit])
        masks.append(near[hit])
    place = torch.cat(places)
    # Whole blocks come first; those behind have one mask each.
    mask = (torch.arange(len(place), device=row.device) - len(places[0])).clamp(min=FULL)
    return BlockPattern.assemble(
        grid, torch.zeros_like(place), row[place], column[place], mask, torch.cat(masks)
    )


class _Sequences(NamedTuple):
    """To which sequence tokens belong.

    Attributes:
        number: (blocks, block_size) int64, of the sequence of each token.
        leads: (blocks, block_size) bool, whether it is one of the first of it.
    """

    number: Tensor
    leads: Tensor

    def candidates(self, near: Tensor, first_row: int) -> Tensor:
        """(rows, columns) of blocks that may have pairs, ``near`` where they have by distance alone."""
        rows = slice(first_row, first_row + len(near))
        low, high, leads = self.number.amin(1), self.number.amax(1), self.leads.any(1)
        meet = (low[rows, None] <= high) & (low <= high[rows, None])
        return (near | leads[rows, None] | leads) & meet

    def alike(self, row: Tensor, column: Tensor) -> Tensor:
        """(n,) whether all tokens of two blocks are of one sequence."""
        low, high = self.number.amin(1), self.number.amax(1)
        return (low[row] == high[column]) & (low[column] == high[row])

    def joined(self, near: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """(n, block_size, block_size) pairs of some blocks, ``near`` where they are by distance alone."""
        # Most blocks have neither two sequences nor the beginning of one.
        led = (self.leads.any(1)[row] | self.leads.any(1)[column] | ~self.alike(row, column)).nonzero()[:, 0]
        row, column = row[led], column[led]
        pairs = near[led] | self.leads[row][:, :, None] | self.leads[column][:, None]
        near[led] = pairs & (self.number[row][:, :, None] == self.number[column][:, None])
        return near


def _sequences(
    grid: BlockGrid, lengths: Sequence[int] | Tensor | None, count: int, device: torch.device
) -> _Sequences | None:
    """Of the tokens of a grid; ``None`` where there is one without first tokens."""
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    if lengths is None and not count:
        return None
    held = torch.as_tensor(
        [grid.query_length] if lengths is None else lengths, dtype=torch.int64, device=device
    )
    if held.ndim != 1 or (len(held) and int(held.min()) < 0) or int(held.sum()) != grid.query_length:
        raise ValueError(
            f"lengths must be at least 0 and add up to the {grid.query_length} positions, got {held.tolist()}"
        )
    number = torch.repeat_interleave(torch.arange(len(held), device=device), held)
    leads = torch.arange(len(number), device=device) - (held.cumsum(0) - held)[number] < count
    number, leads = (_in_blocks(one[:, None], grid.rows, grid.block_size)[0] for one in (number, leads))
    return _Sequences(number, leads)


def _checked(name: str, positions: Tensor) -> Tensor:
    """Positions in float64."""
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
    """(dimensions, blocks, block_size); the last block is filled up with its last token."""
    index = torch.arange(blocks * block_size, device=positions.device).clamp(max=len(positions) - 1)
    return positions.T[:, index].reshape(positions.shape[1], blocks, block_size)


def _candidates(
    rows: Tensor, columns: Tensor, limit: float, sequences: _Sequences | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks whose bounding boxes are near enough: row, column, and whether even their far corners are.

    Of sequences those that share one, and those with first tokens, however far.
    """
    lower, upper = columns.amin(dim=2)[:, None], columns.amax(dim=2)[:, None]
    low, high = rows.amin(dim=2)[:, :, None], rows.amax(dim=2)[:, :, None]
    found = []
    chunk = max(1, _held(columns) // columns.shape[1])
    for start in range(0, rows.shape[1], chunk):
        part = slice(start, start + chunk)
        # Along each axis the distance of the boxes, and that of their far sides.
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


def _held(tensor: Tensor) -> int:
    """Distances that are held at once where a tensor lies."""
    return _HELD_ON_GPU if tensor.is_cuda else _HELD


def _sum_of_squares(differences: Iterable[Tensor]) -> Tensor:
    """Added up along the axes, always in the same order."""
    total: Tensor | None = None
    for difference in differences:
        square = difference * difference
        total = square if total is None else total.add_(square)
    assert total is not None
    return total
