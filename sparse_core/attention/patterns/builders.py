"""Builders of fixed patterns. None of them makes a matrix of length by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from torch import Tensor

from sparse_core.attention.patterns.combination import check_alike
from sparse_core.attention.patterns.grid import FULL, BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern

#: Most random numbers that are drawn at once.
_DRAWN = 1 << 22


def full(
    length: int,
    block_size: int = 64,
    *,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Return the pattern in which every query attends to every key.

    Args:
        length: queries.
        block_size: tokens along a side of a block, a multiple of 16 from 16 to 128.
        key_length: keys, as many as queries by default.
        device: of the pattern.
    """
    grid = _grid(length, key_length, block_size)
    place = torch.arange(grid.rows * grid.columns, device=device)
    none = torch.zeros((0, block_size, block_size), dtype=torch.bool, device=device)
    row, column = place // grid.columns, place % grid.columns
    return BlockPattern.assemble(grid, torch.zeros_like(row), row, column, torch.full_like(row, FULL), none)


def local_window(
    length: int,
    window: int = 24,
    block_size: int = 64,
    *,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Let query i attend to the keys j with ``|i - j| <= window`` (Beltagy et al. 2020, "Longformer").

    Args:
        length: queries.
        window: tokens on either side; 0 for the query's own position only.
        block_size, key_length, device: as for :func:`full`.

    Raises:
        ValueError: a negative or fractional window, or bad lengths or block size.
    """
    _check_whole("window", window, 0)
    grid = _grid(length, key_length, block_size)
    reach = min(-(-(window + 1) // block_size), max(grid.rows, grid.columns))
    diagonals = torch.arange(-reach, reach + 1, device=device)
    return _along_diagonals(grid, diagonals, lambda behind: behind.abs() <= window)


def strided(
    length: int,
    stride: int = 128,
    block_size: int = 64,
    *,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Let query i attend to the keys j where i - j is a multiple of ``stride`` (Child et al. 2019).

    The paper adds a window: ``(strided(n, s) | local_window(n, s)).causal()``. The pattern saves blocks only
    if the stride is longer than a block, and most if it is a multiple of the block size.

    Args:
        length: queries.
        stride: tokens from one key to the next.
        block_size, key_length, device: as for :func:`full`.

    Raises:
        ValueError: a stride below 1 or fractional, or bad lengths or block size.
    """
    _check_whole("stride", stride, 1)
    grid = _grid(length, key_length, block_size)
    diagonals = torch.arange(1 - grid.rows, grid.columns, device=device)
    # Token distances within a diagonal differ from this by less than a block.
    nearest = (diagonals * block_size) % stride
    close = (nearest < block_size) | (nearest > stride - block_size)
    return _along_diagonals(grid, diagonals[close], lambda behind: behind % stride == 0, period=stride)


def global_tokens(
    length: int,
    count: int = 3,
    block_size: int = 64,
    *,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Let the first ``count`` queries attend to all keys, and all queries to the first ``count`` keys.

    Args:
        length: queries.
        count: tokens, 0 for an empty pattern; more than the length means all.
        block_size, key_length, device: as for :func:`full`.

    Raises:
        ValueError: a negative or fractional count, or bad lengths or block size.
    """
    _check_whole("count", count, 0)
    grid = _grid(length, key_length, block_size)
    touched = -(-count // block_size)
    across = torch.arange(grid.columns, device=device).expand(min(touched, grid.rows), -1)
    top = torch.arange(across.shape[0], device=device)[:, None].expand_as(across)
    below = torch.arange(across.shape[0], grid.rows, device=device)[:, None]
    down = below.expand(-1, min(touched, grid.columns))
    left = torch.arange(down.shape[1], device=device).expand_as(down)
    row = torch.cat([top.flatten(), down.flatten()])
    column = torch.cat([across.flatten(), left.flatten()])
    # Global tokens of each block.
    queries = (count - row * block_size).clamp(0, block_size)
    keys = (count - column * block_size).clamp(0, block_size)
    kinds, mask = torch.unique(queries * (block_size + 1) + keys, return_inverse=True)
    place = torch.arange(block_size, device=device)
    rows = place[:, None] < (kinds // (block_size + 1))[:, None, None]
    masks = rows | (place < (kinds % (block_size + 1))[:, None, None])
    return BlockPattern.assemble(grid, torch.zeros_like(row), row, column, mask, masks)


def documents(
    lengths: Sequence[int] | Tensor, block_size: int = 64, *, device: torch.device | str | None = None
) -> BlockPattern:
    """Let each of several sequences, packed without padding, attend only to itself.

    ``documents(lengths) & local_window(n, 64)`` keeps another pattern within the sequences.

    Args:
        lengths: tokens of each sequence, in their order; their sum is the length of the pattern.
        block_size, device: as for :func:`full`.

    Raises:
        ValueError: a negative length, none above 0, or a bad block size.
    """
    counts = torch.as_tensor(lengths, dtype=torch.int64, device="cpu").flatten()
    if len(counts) and int(counts.min()) < 0:
        raise ValueError(f"lengths must be at least 0, got {int(counts.min())}")
    length = int(counts.sum())
    grid = _grid(length, None, block_size)
    ends = counts.cumsum(0)
    starts = ends - counts
    number = torch.repeat_interleave(torch.arange(len(counts)), counts)
    first = torch.arange(grid.rows) * block_size
    last = (first + block_size).clamp(max=length) - 1
    low = starts[number[first]] // block_size
    columns = (ends[number[last]] - 1) // block_size - low + 1
    row = torch.repeat_interleave(torch.arange(grid.rows), columns)
    place = torch.arange(len(row)) - torch.repeat_interleave(columns.cumsum(0) - columns, columns)
    column = low[row] + place
    # Blocks within one sequence are whole.
    whole = (number[first[row]] == number[last[column]]) & (number[last[row]] == number[first[column]])
    mask = torch.full_like(row, FULL)
    mask[~whole] = torch.arange(int((~whole).sum()))
    filled = torch.cat([number, number.new_full((grid.rows * block_size - length,), -1)])
    tiles = filled.view(grid.rows, block_size)
    masks = tiles[row[~whole]][:, :, None] == tiles[column[~whole]][:, None, :]
    where = torch.get_default_device() if device is None else device
    row, column, mask, masks = (part.to(where) for part in (row, column, mask, masks))
    return BlockPattern.assemble(grid, torch.zeros_like(row), row, column, mask, masks)


def random_blocks(
    length: int,
    density: float | None = None,
    block_size: int = 64,
    *,
    blocks_per_row: int | None = None,
    heads: int = 1,
    seed: int = 0,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Choose full blocks at random, equally many in every block row; the same on every device.

    Args:
        length: queries.
        density: share of the blocks of a row, in (0, 1]; rounded, at least one block.
        blocks_per_row: instead of ``density``; more than exist means all.
        heads: number of different patterns; 1 is shared by all heads.
        seed: of the random numbers.
        block_size, key_length, device: as for :func:`full`.

    Raises:
        ValueError: not exactly one of ``density`` and ``blocks_per_row``, one outside its range, or bad
            lengths or block size.
    """
    grid = _grid(length, key_length, block_size, heads)
    if (density is None) == (blocks_per_row is None):
        raise ValueError(
            f"give either density or blocks_per_row, got density={density}, blocks_per_row={blocks_per_row}"
        )
    if density is not None and not 0 < density <= 1:
        raise ValueError(f"density must be in (0, 1], got {density}")
    if blocks_per_row is not None and blocks_per_row < 1:
        raise ValueError(f"blocks_per_row must be at least 1, got {blocks_per_row}")
    requested = round(density * grid.columns) if density is not None else blocks_per_row or 1
    kept = min(grid.columns, max(1, requested))
    generator = torch.Generator("cpu").manual_seed(seed)
    lines, chunk = heads * grid.rows, max(1, _DRAWN // grid.columns)
    chunks = []
    for start in range(0, lines, chunk):
        numbers = torch.rand(
            min(chunk, lines - start), grid.columns, generator=generator, device="cpu", dtype=torch.float32
        )
        chunks.append(torch.sort(numbers, stable=True).indices[:, :kept].sort(dim=1).values)
    column = torch.cat(chunks).flatten().to(torch.get_default_device() if device is None else device)
    line = torch.arange(lines, device=column.device).repeat_interleave(kept)
    none = torch.zeros((0, block_size, block_size), dtype=torch.bool, device=column.device)
    mask = torch.full_like(column, FULL)
    return BlockPattern.assemble(grid, line // grid.rows, line % grid.rows, column, mask, none)


def bigbird(
    length: int,
    window: int = 24,
    count: int = 3,
    random: int = 3,
    block_size: int = 64,
    *,
    heads: int = 1,
    seed: int = 0,
    key_length: int | None = None,
    device: torch.device | str | None = None,
) -> BlockPattern:
    """Combine a window, global tokens and random blocks (Zaheer et al. 2020, "Big Bird").

    Args:
        length: queries.
        window: tokens on either side, as for :func:`local_window`.
        count: global tokens, as for :func:`global_tokens`.
        random: random blocks per block row, which may coincide with others; 0 for none.
        heads: number of patterns with different random blocks; 1 is shared by all heads.
        seed: of the random numbers.
        block_size, key_length, device: as for :func:`full`.

    Raises:
        ValueError: a negative window or number, or bad lengths or block size.
    """
    if random < 0:
        raise ValueError(f"random must be at least 0, got {random}")
    near = local_window(length, window, block_size, key_length=key_length, device=device)
    fixed = near | global_tokens(length, count, block_size, key_length=key_length, device=device)
    if random == 0:
        return fixed.expand_heads(heads)
    return fixed | random_blocks(
        length,
        block_size=block_size,
        blocks_per_row=random,
        heads=heads,
        seed=seed,
        key_length=key_length,
        device=device,
    )


def per_sequence(patterns: Sequence[BlockPattern], heads: int) -> BlockPattern:
    """Combine one pattern per sequence of a batch into one for ``sparse_attention``.

    Args:
        patterns: of equal lengths, block size and device, each with 1 head or ``heads``.
        heads: query heads.

    Returns:
        A pattern with ``len(patterns) * heads`` heads, sequence by sequence.

    Raises:
        ValueError: no pattern, or patterns that do not match.
    """
    if not patterns:
        raise ValueError("per_sequence needs at least one pattern")
    grid = patterns[0].grid
    parts: list[tuple[Tensor, ...]] = []
    masks, offset = [], 0
    for place, pattern in enumerate(patterns):
        if pattern.heads not in (1, heads):
            raise ValueError(f"patterns[{place}] has {pattern.heads} heads: give 1 or {heads}")
        check_alike(patterns[0], pattern)
        own = pattern.expand_heads(heads)
        head, row, column = own.coordinates()
        mask = own.partial.long()
        parts.append((head + place * heads, row, column, torch.where(mask == FULL, FULL, mask + offset)))
        masks.append(own.token_masks)
        offset += len(own.token_masks)
    head, row, column, mask = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return BlockPattern.assemble(
        grid._replace(heads=heads * len(patterns)), head, row, column, mask, torch.cat(masks)
    )


def _grid(length: int, key_length: int | None, block_size: int, heads: int = 1) -> BlockGrid:
    grid = BlockGrid(heads, length, length if key_length is None else key_length, block_size)
    grid.check()
    return grid


def _check_whole(name: str, value: object, least: int) -> None:
    """Raise ``ValueError`` unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _along_diagonals(
    grid: BlockGrid, diagonals: Tensor, allowed: Callable[[Tensor], Tensor], *, period: int | None = None
) -> BlockPattern:
    """Build a pattern that depends only on query position minus key position.

    Args:
        diagonals: distinct values of block column minus block row whose blocks may have a pair.
        allowed: returns True for differences that are pairs.
        period: of ``allowed``, if it has one.
    """
    size = grid.block_size
    offset = -diagonals * size
    offset, mask = torch.unique(offset % period if period else offset, return_inverse=True)
    place = torch.arange(size, device=diagonals.device)
    masks = allowed(offset[:, None, None] + place[:, None] - place)
    first = (-diagonals).clamp(min=0)
    lengths = (torch.minimum(first.new_tensor(grid.rows), grid.columns - diagonals) - first).clamp(min=0)
    diagonal = torch.repeat_interleave(torch.arange(len(diagonals), device=diagonals.device), lengths)
    along = torch.arange(len(diagonal), device=diagonals.device) - (lengths.cumsum(0) - lengths)[diagonal]
    row = first[diagonal] + along
    return BlockPattern.assemble(
        grid, torch.zeros_like(row), row, row + diagonals[diagonal], mask[diagonal], masks
    )
