"""Kernels of pyramids: bits of a level from those of an earlier one, and rows from bits.

They take their geometry as one flat tuple of constants: a level is a few unrolled lines of code, and
divisions by its sizes become multiplications.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.conv.grid.triton import popcount
from sparse_core.kernels.launches import begin_next, wait_for_launch

#: Entries per level in the tuple of constants.
LEVEL_FIELDS = tl.constexpr(20)


@triton.jit
def _halve(words, STRIDE: tl.constexpr):
    """Bit j of the result: whether any of the bits ``STRIDE * j ..`` up to the next ones are set."""
    for step in tl.static_range(5):
        if (1 << (step + 1)) <= STRIDE:
            words = (words | (words >> 1)) & 0x55555555
            words = (words | (words >> 1)) & 0x33333333
            words = (words | (words >> 2)) & 0x0F0F0F0F
            words = (words | (words >> 4)) & 0x00FF00FF
            words = (words | (words >> 8)) & 0x0000FFFF
    return words


@triton.jit
def _level_bits(
    source, words, counts, block, GEOMETRY: tl.constexpr, AT: tl.constexpr, DEPENDENT: tl.constexpr
):  # fmt: skip
    """One block of words of a level whose fields begin at ``AT``; with a stride of 1 it is counted only."""
    WORDS: tl.constexpr = GEOMETRY[AT + 1]
    BLOCK: tl.constexpr = GEOMETRY[AT + 19]
    COUNTS: tl.constexpr = GEOMETRY[AT + 2]
    LINE: tl.constexpr = GEOMETRY[AT + 3]
    WIDTH: tl.constexpr = GEOMETRY[AT + 4]
    HEIGHT: tl.constexpr = GEOMETRY[AT + 5]
    DEPTH: tl.constexpr = GEOMETRY[AT + 6]
    SOURCE_STRIDE: tl.constexpr = GEOMETRY[AT + 7]
    SOURCE_LINE: tl.constexpr = GEOMETRY[AT + 8]
    SOURCE_HEIGHT: tl.constexpr = GEOMETRY[AT + 9]
    SOURCE_DEPTH: tl.constexpr = GEOMETRY[AT + 10]
    STRIDE: tl.constexpr = GEOMETRY[AT + 11]
    BEFORE: tl.constexpr = GEOMETRY[AT + 12]
    STRIDE_Y: tl.constexpr = GEOMETRY[AT + 13]
    BEFORE_Y: tl.constexpr = GEOMETRY[AT + 14]
    STRIDE_Z: tl.constexpr = GEOMETRY[AT + 15]
    BEFORE_Z: tl.constexpr = GEOMETRY[AT + 16]
    TAIL: tl.constexpr = GEOMETRY[AT + 17]
    TOP: tl.constexpr = GEOMETRY[AT + 18]
    index = block * BLOCK + tl.arange(0, BLOCK)
    inside = index < WORDS
    if STRIDE == 1:
        bits = tl.load(source + index * SOURCE_STRIDE, mask=inside, other=0)
    else:
        column = index % LINE
        rest = index // LINE
        y = rest % HEIGHT * STRIDE_Y - BEFORE_Y
        rest = rest // HEIGHT
        z = rest % DEPTH * STRIDE_Z - BEFORE_Z
        batch = rest // DEPTH
        part = tl.arange(0, STRIDE)
        exists = inside[:, None] & ((column * STRIDE)[:, None] + part[None, :] < SOURCE_LINE)
        joined = tl.zeros([BLOCK, STRIDE], tl.int32)
        left = tl.zeros([BLOCK], tl.int32)
        for plane in range(STRIDE_Z + BEFORE_Z):
            below = (z + plane >= 0) & (z + plane < SOURCE_DEPTH)
            for line in tl.static_range(STRIDE_Y + BEFORE_Y):
                open_line = below & (y + line >= 0) & (y + line < SOURCE_HEIGHT)
                height = (batch * SOURCE_DEPTH + z + plane) * SOURCE_HEIGHT + y + line
                first = source + (height * SOURCE_LINE + column * STRIDE) * SOURCE_STRIDE
                joined |= tl.load(
                    first[:, None] + (part * SOURCE_STRIDE)[None, :],
                    mask=exists & open_line[:, None],
                    other=0,
                )
                if BEFORE > 0:
                    left |= tl.load(first - SOURCE_STRIDE, mask=inside & open_line & (column > 0), other=0)
        place = (part * (32 // STRIDE))[None, :]
        # The parts of a word have no bit in common, so their sum joins them.
        bits = tl.sum(_halve(joined, STRIDE) << place, axis=1).to(tl.int32)
        if BEFORE > 0:
            late = tl.sum(_halve(joined & TAIL, STRIDE) << place, axis=1).to(tl.int32)
            bits |= (late << 1) | ((left & TOP) != 0).to(tl.int32)
        room = tl.minimum(WIDTH - column * 32, 31)
        bits &= tl.where(column * 32 + 32 <= WIDTH, -1, (1 << room) - 1)
        begin_next(DEPENDENT)
        tl.store(words + index * 2, bits, mask=inside)
    ones = tl.where(inside, popcount(bits), 0)
    tl.store(counts + COUNTS + block, tl.sum(ones, axis=0))


@triton.jit
def bits_kernel(
    sources, words, counts, GEOMETRY: tl.constexpr, LEVELS: tl.constexpr, DEPENDENT: tl.constexpr = False
):
    """Bits of some levels, and the ones of each block of them.

    ``GEOMETRY`` holds for each level the first program, the words, the place of its counts, the fields of
    :func:`~sparse_core.conv.grid.pyramid_triton.level_fields`, and the words of a program.
    """
    wait_for_launch(DEPENDENT)
    program = tl.program_id(0)
    for level in tl.static_range(LEVELS):
        block = program - GEOMETRY[level * LEVEL_FIELDS]
        if (block >= 0) & (block * GEOMETRY[level * LEVEL_FIELDS + 19] < GEOMETRY[level * LEVEL_FIELDS + 1]):
            _level_bits(
                sources[level], words[level], counts, block, GEOMETRY, level * LEVEL_FIELDS, DEPENDENT
            )  # fmt: skip


@triton.jit
def window_kernel(
    source, words, counts,
    source_stride, total,
    line, height, depth, width,
    source_line, source_height, source_depth, source_width,
    step_z, step_y, step_x,
    shift_z, shift_y, shift_x,
    reach_z, reach_y, reach_x,
    DILATING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Bits of a level with any kernel, cell by cell: each looks at what lies under its window.

    Without dilation the window is the cell itself, and the last cell of an axis goes on to the end.
    """
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    column = (index % line * 32)[:, None] + tl.arange(0, 32)[None, :]
    rest = index // line
    y = (rest % height)[:, None]
    rest = rest // height
    z = (rest % depth)[:, None]
    batch = (rest // depth)[:, None]
    found = tl.zeros([BLOCK, 32], tl.int32)
    for plane in range(reach_z):
        source_z = z * step_z + (plane - shift_z)
        open_z = (source_z >= 0) & (source_z < source_depth)
        if not DILATING:
            open_z &= source_z < tl.where(z == depth - 1, source_depth, (z + 1) * step_z)
        for row in range(reach_y):
            source_y = y * step_y + (row - shift_y)
            open_y = open_z & (source_y >= 0) & (source_y < source_height)
            if not DILATING:
                open_y &= source_y < tl.where(y == height - 1, source_height, (y + 1) * step_y)
            for cell in range(reach_x):
                source_x = column * step_x + (cell - shift_x)
                open_x = open_y & (source_x >= 0) & (source_x < source_width) & (column < width)
                if not DILATING:
                    open_x &= source_x < tl.where(column == width - 1, source_width, (column + 1) * step_x)
                place = ((batch * source_depth + source_z) * source_height + source_y) * source_line
                place = place + (source_x >> 5)
                word = tl.load(source + place * source_stride, mask=open_x & inside[:, None], other=0)
                found |= (word >> (source_x & 31)) & 1
    bits = tl.sum(found << tl.arange(0, 32)[None, :], axis=1).to(tl.int32)
    tl.store(words + index * 2, bits, mask=inside)
    ones = tl.where(inside, popcount(bits), 0)
    tl.store(counts + tl.program_id(0), tl.sum(ones, axis=0))


@triton.jit
def _level_rows(
    bits, words, cells, totals, counts, capacity, block,
    WORDS: tl.constexpr, FIRST_LEVEL: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rows of one block of words of a level; ``counts`` and ``totals`` are those of the level."""
    BLOCKS: tl.constexpr = (WORDS + BLOCK - 1) // BLOCK
    lane = tl.arange(0, CHUNK)
    before_lane = tl.zeros([CHUNK], tl.int32)
    every_lane = tl.zeros([CHUNK], tl.int32)
    for first in range(0, BLOCKS, CHUNK):
        ones = tl.load(counts + first + lane, mask=first + lane < BLOCKS, other=0)
        before_lane += tl.where(first + lane < block, ones, 0)
        every_lane += ones
    before_block = tl.sum(before_lane, axis=0).to(tl.int32)
    active = tl.sum(every_lane, axis=0).to(tl.int32)

    index = block * BLOCK + tl.arange(0, BLOCK)
    inside = index < WORDS
    if FIRST_LEVEL:
        word = tl.load(bits + index, mask=inside, other=0)
        tl.store(words + index * 2, word, mask=inside)
    else:
        word = tl.load(words + index * 2, mask=inside, other=0)
    ones = popcount(word)
    before = before_block + tl.cumsum(ones, axis=0).to(tl.int32) - ones
    begin_next(DEPENDENT)
    tl.store(words + index * 2 + 1, before, mask=inside)

    place = tl.arange(0, 32)[None, :]
    row = before[:, None] + popcount(word[:, None] & ((1 << place) - 1))
    kept = (((word[:, None] >> place) & 1) != 0) & (row < capacity)
    tl.store(cells + row, index[:, None] * 32 + place, mask=kept)

    share = (capacity + BLOCKS - 1) // BLOCKS
    last = tl.minimum((block + 1) * share, capacity)
    for first in range(block * share, last, CHUNK):
        behind = (first + lane < last) & (first + lane >= active)
        tl.store(cells + first + lane, -1, mask=behind)
    if block == 0:
        tl.store(totals, tl.minimum(active, capacity))
        tl.store(totals + 1, active)


@triton.jit
def rows_kernel(
    bits, words, cells, totals, counts, capacities,
    GEOMETRY: tl.constexpr, LEVELS: tl.constexpr, CHUNK: tl.constexpr, DEPENDENT: tl.constexpr = False,
):  # fmt: skip
    """Ones before each word, the cell of each row, -1 behind the last, and the totals, of all levels.

    ``GEOMETRY`` holds the first program, the words and the words of a program of each level.
    """
    wait_for_launch(DEPENDENT)
    program = tl.program_id(0)
    for level in tl.static_range(LEVELS):
        block = program - GEOMETRY[level * 3]
        if (block >= 0) & (block * GEOMETRY[level * 3 + 2] < GEOMETRY[level * 3 + 1]):
            _level_rows(
                bits, words[level], cells[level], totals + level * 2, counts + GEOMETRY[level * 3],
                capacities[level], block,
                GEOMETRY[level * 3 + 1], level == 0, GEOMETRY[level * 3 + 2], CHUNK,
                DEPENDENT,
            )  # fmt: skip
