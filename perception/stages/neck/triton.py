"""Lists of near cells in two Triton launches, and their tables in one more.

The first kernel works on words of 32 cells. It joins lines within reach by OR, then spreads each bit to both
sides; one pass makes all lists. Other programs of this launch restore the empty scene where the previous
frame wrote. Cells then get rows as in :mod:`sparse_core.conv.grid`. Runs on CUDA, and on a CPU through
``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps
from sparse_core.conv.grid.layout import WORD, FixedGrid, carve, padded_width
from sparse_core.conv.grid.levels_triton import rows_kernel
from sparse_core.conv.grid.triton import popcount, row_of

#: Per program: words to spread, finer cells to restore, rows of tables.
_WORDS, _RESTORED, _ROWS = 32, 32, 64
#: Counts that are added per step, see ``rows_kernel``.
_CHUNK = 1024


@triton.jit
def _edge(place, SIZE: tl.constexpr, SMALL: tl.constexpr, EDGE: tl.constexpr):
    """Place in the small empty map, along one axis; see ``EmptyMaps.cell``."""
    return tl.minimum(place, tl.maximum(place - (SIZE - SMALL), EDGE))


@triton.jit
def _spread(left, middle, right, REACH: tl.constexpr):
    """Which bits of the middle word have a one within reach, in words side by side."""
    left = left.to(tl.uint32, bitcast=True)
    middle = middle.to(tl.uint32, bitcast=True)
    right = right.to(tl.uint32, bitcast=True)
    found = middle
    for step in tl.static_range(1, REACH + 1):
        found |= (middle << step) | (middle >> step) | (left >> (32 - step)) | (right << (32 - step))
    return found.to(tl.int32, bitcast=True)


@triton.jit
def _lists(
    source, bits, words, counts, block,
    LEVELS: tl.constexpr, WORDS: tl.constexpr, LINE: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of words of all lists, and their ones; those of the first list go to ``bits``."""
    BLOCKS: tl.constexpr = (WORDS + BLOCK - 1) // BLOCK
    index = block * BLOCK + tl.arange(0, BLOCK)
    inside = index < WORDS
    column = index % LINE
    y = index // LINE % HEIGHT
    room = tl.minimum(WIDTH - column * 32, 31)
    valid = tl.where(column * 32 + 32 <= WIDTH, -1, (1 << room) - 1)
    at = source + index * 2
    middle = tl.load(at, mask=inside, other=0)
    left = tl.load(at - 2, mask=inside & (column > 0), other=0)
    right = tl.load(at + 2, mask=inside & (column < LINE - 1), other=0)
    for level in tl.static_range(LEVELS):
        for side in tl.static_range(2):
            step = (level + 1) * (2 * side - 1)
            exists = inside & (y + step >= 0) & (y + step < HEIGHT)
            line = at + step * (2 * LINE)
            middle |= tl.load(line, mask=exists, other=0)
            left |= tl.load(line - 2, mask=exists & (column > 0), other=0)
            right |= tl.load(line + 2, mask=exists & (column < LINE - 1), other=0)
        found = _spread(left, middle, right, level + 1) & valid
        if level == 0:
            tl.store(bits + index, found, mask=inside)
        else:
            tl.store(words[level] + index * 2, found, mask=inside)
        ones = tl.where(inside, popcount(found), 0)
        tl.store(counts + level * BLOCKS + block, tl.sum(ones, axis=0))


@triton.jit
def _restore(
    cells, features, heat, empty_features, empty_heat, listed, block,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SMALL_HEIGHT: tl.constexpr, SMALL_WIDTH: tl.constexpr,
    EDGE: tl.constexpr, CHANNELS: tl.constexpr, CLASSES: tl.constexpr, CHANNEL_LANES: tl.constexpr,
    CLASS_LANES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Values of an empty scene for a block of listed finer cells; sizes are those of the coarse map."""
    row = block * BLOCK + tl.arange(0, BLOCK)
    cell = tl.load(cells + row, mask=row < listed, other=-1)
    inside = cell >= 0
    if tl.max(cell, 0) >= 0:
        AREA: tl.constexpr = 4 * HEIGHT * WIDTH
        x = cell % (2 * WIDTH)
        y = cell // (2 * WIDTH) % (2 * HEIGHT)
        empty_y = _edge(y // 2, HEIGHT, SMALL_HEIGHT, EDGE)
        empty_x = _edge(x // 2, WIDTH, SMALL_WIDTH, EDGE)
        source = 4 * (empty_y * SMALL_WIDTH + empty_x) + 2 * (y % 2) + x % 2
        channel = tl.arange(0, CHANNEL_LANES)
        taken = inside[:, None] & (channel < CHANNELS)[None, :]
        place = source[:, None] * CHANNELS + channel[None, :]
        value = tl.load(empty_features + place, mask=taken, other=0.0)
        target = cell.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
        tl.store(features + target, value, mask=taken)
        kind = tl.arange(0, CLASS_LANES)
        taken = inside[:, None] & (kind < CLASSES)[None, :]
        score = tl.load(empty_heat + source[:, None] * CLASSES + kind[None, :], mask=taken, other=0.0)
        frame = (cell // AREA).to(tl.int64)
        target = (frame[:, None] * CLASSES + kind[None, :]) * AREA + (cell % AREA)[:, None]
        tl.store(heat + target, score, mask=taken)


@triton.jit
def lists_kernel(
    source, bits, words, counts,
    cells, features, heat, empty_features, empty_heat, listed,
    LEVELS: tl.constexpr, WORDS: tl.constexpr, LINE: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    SMALL_HEIGHT: tl.constexpr, SMALL_WIDTH: tl.constexpr, EDGE: tl.constexpr,
    CHANNELS: tl.constexpr, CLASSES: tl.constexpr, CHANNEL_LANES: tl.constexpr, CLASS_LANES: tl.constexpr,
    BLOCK_WORDS: tl.constexpr, RESTORE: tl.constexpr, BLOCK_CELLS: tl.constexpr,
):  # fmt: skip
    """Words of all lists, then the cells that are to be restored (if ``RESTORE``)."""
    SPREADING: tl.constexpr = (WORDS + BLOCK_WORDS - 1) // BLOCK_WORDS
    program = tl.program_id(0)
    if program < SPREADING:
        _lists(source, bits, words, counts, program, LEVELS, WORDS, LINE, HEIGHT, WIDTH, BLOCK_WORDS)
    # One condition would also compile what the launch has no pointers for.
    if RESTORE:  # noqa: SIM102
        if program >= SPREADING:
            _restore(
                cells, features, heat, empty_features, empty_heat, listed, program - SPREADING,
                HEIGHT, WIDTH, SMALL_HEIGHT, SMALL_WIDTH, EDGE, CHANNELS, CLASSES, CHANNEL_LANES,
                CLASS_LANES, BLOCK_CELLS,
            )  # fmt: skip


@triton.jit
def _entry(
    words, capacity, frame, y, x, alive,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SMALL_HEIGHT: tl.constexpr, SMALL_WIDTH: tl.constexpr,
    EDGE: tl.constexpr, EMPTY: tl.constexpr,
):  # fmt: skip
    """Row of a cell in a list, or behind its capacity the cell of the small empty map; -1 outside."""
    LINE: tl.constexpr = (WIDTH + 31) // 32 * 32
    inside = alive & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
    row = row_of(words, (frame * HEIGHT + y) * LINE + x, inside, capacity)
    if EMPTY:
        empty_y = _edge(y, HEIGHT, SMALL_HEIGHT, EDGE)
        empty_x = _edge(x, WIDTH, SMALL_WIDTH, EDGE)
        otherwise = tl.where(inside, capacity + empty_y * SMALL_WIDTH + empty_x, -1)
        row = tl.where(row >= 0, row, otherwise)
    return row


@triton.jit
def tables_kernel(
    cells, words, capacities, counts, firsts, tables, residual_rows, fine_table, fine_cells, fine_count,
    LISTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SMALL_HEIGHT: tl.constexpr,
    SMALL_WIDTH: tl.constexpr, EDGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Entries of a block of rows of one list after the first: each program finds its list by ``firsts``."""
    LINE: tl.constexpr = (WIDTH + 31) // 32 * 32
    program = tl.program_id(0)
    for number in tl.static_range(1, LISTS):
        block = program - firsts[number - 1]
        capacity = capacities[number]
        if (block >= 0) & (program < firsts[number]):
            row = block * BLOCK + tl.arange(0, BLOCK)
            cell = tl.load(cells[number] + row, mask=row < capacity, other=-1)
            alive = cell >= 0
            x = cell % LINE
            y = cell // LINE % HEIGHT
            frame = cell // (LINE * HEIGHT)
            if number < LISTS - 1:
                if tl.max(cell, 0) >= 0:
                    for tap in tl.static_range(9):
                        entry = _entry(
                            words[number - 1], capacities[number - 1], frame, y + tap // 3 - 1,
                            x + tap % 3 - 1, alive,
                            HEIGHT, WIDTH, SMALL_HEIGHT, SMALL_WIDTH, EDGE, number > 1,
                        )  # fmt: skip
                        tl.store(tables[number - 1] + tap * capacity + row, entry, mask=row < capacity)
                    if number % 2 == 0:
                        entry = _entry(
                            words[number - 2], capacities[number - 2], frame, y, x, alive,
                            HEIGHT, WIDTH, SMALL_HEIGHT, SMALL_WIDTH, EDGE, number > 2,
                        )  # fmt: skip
                        tl.store(residual_rows[number // 2 - 1] + row, entry, mask=row < capacity)
            else:
                if tl.max(cell, 0) >= 0:
                    for side in tl.static_range(9):
                        parent = _entry(
                            words[number - 1], capacities[number - 1], frame, y + side // 3 - 1,
                            x + side % 3 - 1, alive,
                            HEIGHT, WIDTH, SMALL_HEIGHT, SMALL_WIDTH, EDGE, True,
                        )  # fmt: skip
                        # Which taps of which finer cells lie under this neighbour.
                        for tap in tl.static_range(9):
                            for parity in tl.static_range(4):
                                if (parity // 2 + tap // 3 + 1) // 2 == side // 3 and (
                                    parity % 2 + tap % 3 + 1
                                ) // 2 == side % 3:
                                    beside = (parity // 2 + tap // 3 + 1) % 2 * 2
                                    entry = 4 * parent + (beside + (parity + tap % 3 + 1) % 2)
                                    entry = tl.where(parent < 0, -1, entry)
                                    into = fine_table + (tap * capacity + row) * 4 + parity
                                    tl.store(into, entry, mask=row < capacity)
                # The list of finer cells ends with -1.
                for parity in tl.static_range(4):
                    fine = (frame * (2 * HEIGHT) + 2 * y + parity // 2) * (2 * WIDTH) + 2 * x + parity % 2
                    into = fine_cells + row * 4 + parity
                    tl.store(into, tl.where(alive, fine, -1), mask=row < capacity)
                if block == 0:
                    tl.store(fine_count, 4 * tl.load(counts))


def near_lists(
    first: FixedGrid,
    capacities: Sequence[int],
    written: WrittenMaps | None,
    empty: EmptyMaps | None,
) -> list[FixedGrid]:
    """See :func:`perception.stages.neck.near_lists`."""
    size, levels = len(first.words), len(capacities)
    blocks = triton.cdiv(size, _WORDS)
    lengths = [*([2 * size] * levels), *capacities, size, 2 * levels, levels * blocks]
    parts = carve(first.words.device, lengths)
    words, cells = tuple(parts[:levels]), tuple(parts[levels : 2 * levels])
    bits, totals, counts = parts[2 * levels :]
    height, width = first.spatial_shape
    small, edge = ((1, 1), 0) if empty is None else (empty.small, empty.edge)
    channels, classes = (1, 1) if written is None else (written.features.shape[1], written.heat.shape[1])
    maps: tuple[Tensor | None, ...] = (None,) * 5 if written is None else written
    assert len(maps) == 5
    listed = 0 if written is None else len(written.cells)
    lists_kernel[(blocks + triton.cdiv(listed, _RESTORED),)](
        first.words, bits, words, counts, *maps, listed,
        LEVELS=levels, WORDS=size, LINE=padded_width(width) // WORD, HEIGHT=height, WIDTH=width,
        SMALL_HEIGHT=small[0], SMALL_WIDTH=small[1], EDGE=edge, CHANNELS=channels, CLASSES=classes,
        CHANNEL_LANES=triton.next_power_of_2(channels), CLASS_LANES=triton.next_power_of_2(classes),
        BLOCK_WORDS=_WORDS, RESTORE=written is not None, BLOCK_CELLS=_RESTORED, num_warps=4,
    )  # fmt: skip
    # For each list: block, words, and words per program.
    geometry = [number for level in range(levels) for number in (level * blocks, size, _WORDS)]
    rows_kernel[(levels * blocks,)](
        bits, words, cells, totals, counts, tuple(capacities), tuple(geometry), levels, CHUNK=_CHUNK,
        num_warps=4,
    )  # fmt: skip
    return [
        FixedGrid(
            first.spatial_shape,
            first.batch_size,
            capacity,
            words[level].view(-1, 2),
            cells[level],
            totals[2 * level : 2 * level + 1],
            totals[2 * level + 1 : 2 * level + 2],
        )
        for level, capacity in enumerate(capacities)
    ]


def near_tables(lists: Sequence[FixedGrid], empty: EmptyMaps, fine_cells: Tensor) -> NearTables:
    """See :func:`perception.stages.neck.near_tables`."""
    between = [entry.capacity for entry in lists[1:-1]]
    last = lists[-1].capacity
    lengths = [*(9 * capacity for capacity in between), *between[1::2], 36 * last, 1]
    parts = carve(fine_cells.device, lengths)
    tables = tuple(
        part.view(9, capacity) for part, capacity in zip(parts[: len(between)], between, strict=True)
    )
    residual_rows = tuple(parts[len(between) : -2])
    fine_table, fine_count = parts[-2].view(9, 4 * last), parts[-1]
    firsts = [0]
    for entry in lists[1:]:
        firsts.append(firsts[-1] + triton.cdiv(entry.capacity, _ROWS))
    small = empty.small
    tables_kernel[(firsts[-1],)](
        tuple(entry.cells for entry in lists), tuple(entry.words for entry in lists),
        tuple(entry.capacity for entry in lists), lists[-1].count, tuple(firsts),
        tables, residual_rows, fine_table, fine_cells, fine_count,
        LISTS=len(lists), HEIGHT=empty.shape[0], WIDTH=empty.shape[1], SMALL_HEIGHT=small[0],
        SMALL_WIDTH=small[1], EDGE=empty.edge, BLOCK=_ROWS, num_warps=_ROWS // 32,
    )  # fmt: skip
    return NearTables(tables, residual_rows, fine_table, fine_count)
