"""Points to pillars in Triton: count and sum by cell; once rows are known, sort the points.

Atomic additions are of integers. Their order decides only the order of points within a pillar.
Runs on CUDA, and on a CPU through ``TRITON_INTERPRET=1``.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.config import PillarConfig
from perception.stages.pillars.types import FIXED_POINT, TILE, FixedPillars, LocatedPoints, PillarWorkspace
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.conv.grid.triton import row_of
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch

#: Points per program: few, so that a single frame uses every multiprocessor.
_POINTS = 128
#: Warps per block of cells.
_OFFSET_WARPS = 8
_FIXED_POINT = tl.constexpr(FIXED_POINT)


@triton.jit
def whole(values):
    """Nearest whole numbers of the fixed-point part, int64."""
    return tl.floor(values * _FIXED_POINT + 0.5).to(tl.int64)


@triton.jit
def load_points(points, index, mask):
    """(N, 4) points at (N,), zeros where masked; 16 bytes a thread."""
    part = tl.arange(0, 4)[None, :]
    return tl.load(points + index[:, None] * 4 + part, mask=mask[:, None], other=0.0)


@triton.jit
def split_points(values):
    """x, y, z and intensity (N,) of (N, 4) points."""
    even, odd = tl.split(tl.reshape(values, [values.shape[0], 2, 2]))
    x, z = tl.split(even)
    y, intensity = tl.split(odd)
    return x, y, z, intensity


@triton.jit
def parts_of(points, index, mask, PER_POINT: tl.constexpr):
    """x, y, z, intensity and age (N,) of points at (N,), zeros where masked and for a missing column."""
    if PER_POINT == 4:
        x, y, z, intensity = split_points(load_points(points, index, mask))
        age = tl.zeros_like(x)
    else:
        first = points + index * PER_POINT
        x = tl.load(first, mask=mask, other=0.0)
        y = tl.load(first + 1, mask=mask, other=0.0)
        z = tl.load(first + 2, mask=mask, other=0.0)
        intensity = tl.load(first + 3, mask=mask, other=0.0)
        age = tl.load(first + 4, mask=mask, other=0.0)
    return x, y, z, intensity, age


@triton.jit
def centre_of(column, line, size, x_low, y_low):
    """x and y of the middle of cells, rounded as in the reference if nothing is fused."""
    return (column.to(tl.float32) + 0.5) * size + x_low, (line.to(tl.float32) + 0.5) * size + y_low


@triton.jit
def locate_kernel(
    points,
    lengths,
    cells,
    ranks,
    counts,
    bits,
    sums,
    block_points,
    invalid,
    room,
    x_low,
    y_low,
    z_low,
    x_high,
    y_high,
    z_high,
    size,
    height,
    width,
    line_cells,
    block_shift,
    COPIES: tl.constexpr,
    POINTS: tl.constexpr,
    PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Cell and rank of each point; sums by cell, counts by block; the first point of a cell sets its bit."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    length = tl.minimum(tl.load(lengths + frame), room)
    if tl.program_id(0) * POINTS < length:
        lane = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
        held = lane < length
        index = frame * room + lane
        x, y, z, intensity, age = parts_of(points, index, held, PER_POINT)
        # Comparisons with NaN are false.
        finite = (tl.abs(x) < float("inf")) & (tl.abs(y) < float("inf"))
        finite = finite & (tl.abs(z) < float("inf")) & (tl.abs(intensity) < float("inf"))
        if PER_POINT > 4:
            finite = finite & (tl.abs(age) < float("inf"))
        inside = held & finite & (x >= x_low) & (y >= y_low) & (z >= z_low)
        inside = inside & (x < x_high) & (y < y_high) & (z < z_high)
        # Exactly rounded, as torch divides by a tensor; `/` is not.
        column = tl.floor(tl.div_rn(tl.where(inside, x, x_low) - x_low, tl.zeros_like(x) + size)).to(tl.int32)
        line = tl.floor(tl.div_rn(tl.where(inside, y, y_low) - y_low, tl.zeros_like(y) + size)).to(tl.int32)
        column = tl.minimum(column, width - 1)
        line = tl.minimum(line, height - 1)
        cell = (frame * height + line) * line_cells + column
        begin_next(DEPENDENT)
        tl.store(cells + index, tl.where(inside, cell, -1), mask=held)
        rank = tl.atomic_add(counts + cell, 1, mask=inside, sem="relaxed")
        counter = (cell >> block_shift) * COPIES + (lane & (COPIES - 1))
        tl.atomic_add(block_points + counter, 1, mask=inside, sem="relaxed")
        one = tl.full(cell.shape, 1, tl.int32) << (cell & 31)
        tl.atomic_or(bits + (cell >> 5), one, mask=inside & (rank == 0), sem="relaxed")
        tl.store(ranks + index, rank, mask=inside)
        x_centre, y_centre = centre_of(column, line, size, x_low, y_low)
        total = sums + cell.to(tl.int64) * 4
        tl.atomic_add(total, whole(x - x_centre), mask=inside, sem="relaxed")
        tl.atomic_add(total + 1, whole(y - y_centre), mask=inside, sem="relaxed")
        tl.atomic_add(total + 2, whole(z), mask=inside, sem="relaxed")
        tl.atomic_add(total + 3, tl.full(cell.shape, 1, tl.int64), mask=inside, sem="relaxed")
        # Last, because it waits for all of the program.
        bad = tl.sum((held & (finite == 0)).to(tl.int32), 0)
        if bad > 0:
            tl.atomic_add(invalid + frame, bad, sem="relaxed")


@triton.jit
def offsets_kernel(
    counts,
    bits,
    block_points,
    words,
    active,
    offsets,
    sums,
    cell_count,
    counter_count,
    capacity,
    rest,
    COPIES: tl.constexpr,
    COUNTERS: tl.constexpr,
    TILES: tl.constexpr,
    TILE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """First point of each pillar of a block of cells; counts, bits and sums become zero again."""
    wait_for_launch(DEPENDENT)
    block = tl.program_id(0)
    step = tl.arange(0, TILE)
    counter = tl.arange(0, COUNTERS)
    held = tl.load(block_points + counter, mask=counter < counter_count, other=0)
    rows = tl.load(active)
    inside = tl.sum(tl.load(block_points + block * COPIES + tl.arange(0, COPIES)), 0)
    start = tl.cast(block, tl.int64) * (TILES * TILE)
    stop = start + TILES * TILE
    limit = tl.cast(cell_count, tl.int64)
    if TILES > 1:
        # Large grids are mostly empty; on small ones waiting for the counter takes longer than the cells.
        limit = tl.where(inside > 0, limit, 0)
    count = tl.load(counts + start + step, mask=start + step < limit, other=0)
    passed = tl.load(words + (start >> 5) * 2 + 1)
    # Points in blocks before this one and all points in one sum: the former in the high half.
    earlier = tl.where(counter < block * COPIES, held, 0).to(tl.int64)
    sums_of_points = tl.sum((earlier << 32) + held, 0)
    before = (sums_of_points >> 32).to(tl.int32)
    total = (sums_of_points & 0xFFFFFFFF).to(tl.int32)
    if rows <= capacity:
        # Rows that are not in use are pillars without points behind the last one.
        for place in range(0, rest, TILE):
            row = block * rest + place + step
            tl.store(offsets + row, total, mask=(place + step < rest) & (row >= rows) & (row <= capacity))
    if inside > 0:
        for tile in range(TILES):
            first = start + tile * TILE
            cell = first + step
            here = inside
            if TILES > 1:
                here = tl.sum(count, 0)
            if here > 0:
                full = count > 0
                # Pillars and points before a cell in one sum, as above.
                both = tl.cumsum((full.to(tl.int64) << 32) + count, 0)
                if tile > 0:
                    passed = tl.load(words + (first >> 5) * 2 + 1)
                row = passed + (both >> 32).to(tl.int32) - 1
                begin = before + (both & 0xFFFFFFFF).to(tl.int32) - count
                # The first pillar beyond the capacity ends the last one within.
                tl.store(offsets + row, begin, mask=full & (row <= capacity))
                none = tl.zeros([TILE], tl.int64)
                for part in tl.static_range(4):
                    tl.store(sums + cell * 4 + part, none, mask=full)
                tl.store(counts + cell, tl.zeros_like(count), mask=full)
                word = (first >> 5) + tl.arange(0, TILE // 32)
                tl.store(bits + word, tl.zeros([TILE // 32], tl.int32), mask=word < cell_count // 32)
                before += here
            if TILES > 1:
                cell += TILE
                count = tl.load(counts + cell, mask=cell < tl.minimum(cell_count, stop), other=0)


@triton.jit
def scatter_kernel(
    points,
    lengths,
    cells,
    ranks,
    words,
    offsets,
    ordered,
    block_points,
    found_invalid,
    invalid,
    room,
    capacity,
    counter_count,
    batch_size,
    POINTS: tl.constexpr,
    PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Copy each point into its pillar; what counted blocks and bad points becomes zero."""
    wait_for_launch(DEPENDENT)
    step = tl.arange(0, POINTS)
    frame = tl.program_id(1)
    program = frame * tl.num_programs(0) + tl.program_id(0)
    programs = tl.num_programs(0) * tl.num_programs(1)
    for start in range(program * POINTS, counter_count, programs * POINTS):
        counter = start + step
        tl.store(block_points + counter, tl.zeros([POINTS], tl.int32), mask=counter < counter_count)
    for start in range(program * POINTS, batch_size, programs * POINTS):
        some = start + step
        bad = tl.load(found_invalid + some, mask=some < batch_size, other=0)
        tl.store(invalid + some, bad, mask=some < batch_size)
        tl.store(found_invalid + some, tl.zeros_like(bad), mask=some < batch_size)
    length = tl.minimum(tl.load(lengths + frame), room)
    if tl.program_id(0) * POINTS < length:
        lane = tl.program_id(0) * POINTS + step
        index = frame * room + lane
        cell = tl.load(cells + index, mask=lane < length, other=-1)
        part = tl.arange(0, 4 if PER_POINT == 4 else 8)[None, :]
        if PER_POINT == 4:
            values = load_points(points, index, cell >= 0)
        else:
            there = (cell >= 0)[:, None] & (part < PER_POINT)
            values = tl.load(points + index[:, None] * PER_POINT + part, mask=there, other=0.0)
        row = row_of(words, cell, cell >= 0, capacity)
        kept = row >= 0
        place = tl.load(offsets + row, mask=kept, other=0) + tl.load(ranks + index, mask=kept, other=0)
        chosen = kept[:, None]
        if PER_POINT > 4:
            chosen = chosen & (part < PER_POINT)
        tl.store(ordered + place[:, None] * PER_POINT + part, values, mask=chosen)


def locate(
    points: Tensor, lengths: Tensor, config: PillarConfig, workspace: PillarWorkspace
) -> LocatedPoints:
    """See :func:`perception.stages.pillars.locate_points`."""
    batch, room = points.shape[:2]
    cells, ranks = points.new_empty((2, batch * room), dtype=torch.int32).unbind(0)
    if room:
        locate_kernel[(triton.cdiv(room, _POINTS), batch)](
            points,
            lengths,
            cells,
            ranks,
            workspace.counts,
            workspace.bits,
            workspace.sums,
            workspace.block_points,
            workspace.invalid,
            room,
            *config.closed_grid.range_m,
            config.pillar_size_m,
            *config.grid_shape,
            workspace.line_cells,
            workspace.block_cells.bit_length() - 1,
            COPIES=workspace.copies,
            POINTS=_POINTS,
            PER_POINT=points.shape[2],
            num_warps=4,
            enable_fp_fusion=False,
            **dependent(points),
        )
    return LocatedPoints(points, lengths, config, cells, ranks, workspace)


def sort(located: LocatedPoints, grid: FixedGrid) -> FixedPillars:
    """See :func:`perception.stages.pillars.sort_points`."""
    points, workspace = located.points, located.workspace
    batch, room = points.shape[:2]
    counters = len(workspace.block_points)
    blocks = counters // workspace.copies
    offsets = points.new_empty(grid.capacity + 1, dtype=torch.int32)
    ordered = points.new_empty((batch * room, points.shape[2]))
    invalid = torch.empty_like(workspace.invalid)
    offsets_kernel[(blocks,)](
        workspace.counts,
        workspace.bits,
        workspace.block_points,
        grid.words,
        grid.active,
        offsets,
        workspace.sums,
        len(workspace.counts),
        counters,
        grid.capacity,
        triton.cdiv(grid.capacity + 1, blocks),
        COPIES=workspace.copies,
        COUNTERS=triton.next_power_of_2(counters),
        TILES=workspace.block_cells // TILE,
        TILE=TILE,
        num_warps=_OFFSET_WARPS,
        **dependent(workspace.counts),
    )
    scatter_kernel[(max(1, triton.cdiv(room, _POINTS)), batch)](
        points,
        located.lengths,
        located.cells,
        located.ranks,
        grid.words,
        offsets,
        ordered,
        workspace.block_points,
        workspace.invalid,
        invalid,
        room,
        grid.capacity,
        counters,
        batch,
        POINTS=_POINTS,
        PER_POINT=points.shape[2],
        num_warps=4,
        **dependent(points),
    )
    return FixedPillars(grid, ordered, offsets, invalid)
