"""First launch of a refinement step in Triton: which points lie in each box, and samples of the map.

After LiDAR R-CNN (Li et al., CVPR 2021), see :mod:`perception.model.refine`. Some programs sample the map
while others search for points. About half of the points under a box are inside it, and the numbers of points
differ by a factor of a hundred. So a separate launch runs the layers over full blocks of listed points.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.conv.grid.triton import popcount
from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def source_rows(labels, indices, item, alive, per_frame, proposals, HAS_INDICES: tl.constexpr):
    """Row in the boxes of each item, and its label; both -1 where there is no box."""
    if HAS_INDICES:
        index = tl.load(indices + item, mask=alive, other=-1)
        row = tl.where(index >= 0, (item // per_frame) * proposals + index, -1)
    else:
        row = tl.where(alive, item, -1)
    label = tl.load(labels + row, mask=row >= 0, other=-1)
    return tl.where(label >= 0, row, -1), tl.where(label >= 0, label, -1)


@triton.jit
def _rows_before(words, cell, taken, INCLUSIVE: tl.constexpr):
    """Active cells before each cell of a grid, or up to it; see ``sparse_core.conv.grid.triton.row_of``."""
    pairs = words.to(tl.pointer_type(tl.int64))
    pair = tl.load(pairs + (cell >> 5), mask=taken, other=0)
    bit = 1 << (cell & 31)
    below = bit - 1
    if INCLUSIVE:
        below = below | bit
    return (pair >> 32).to(tl.int32) + popcount(pair.to(tl.int32) & below)


@triton.jit
def _cell(position, size, last):
    """Cell of a position relative to the grid's corner, drawn into the grid."""
    return tl.minimum(tl.maximum(tl.floor(position / size), 0.0), last * 1.0).to(tl.int32)


@triton.jit
def _narrowed(low, high, factor, least, greatest):
    """[low, high] cut with the d of ``least <= factor * d <= greatest``; as it was for small factors."""
    steep = tl.abs(factor) > 0.02
    divisor = tl.where(steep, factor, 1.0)
    one, other = least / divisor, greatest / divisor
    low = tl.where(steep, tl.maximum(low, tl.minimum(one, other)), low)
    return low, tl.where(steep, tl.minimum(high, tl.maximum(one, other)), high)


@triton.jit
def _point_runs(
    words, offsets, line, taken, y, centre_x, centre_y, cosine, sine, half_x, half_y, size, width, capacity
):  # fmt: skip
    """First point and length of the run in each pillar row: what of it the turned rectangle may touch.

    A little slack covers the rounding of cells and of this arithmetic.
    """
    slack = 0.02 * size
    near = y.to(tl.float32) * size - centre_y - slack
    far = near + size + 2 * slack
    reach = tl.abs(cosine) * half_x + tl.abs(sine) * half_y + slack
    low, high = near * 0.0 - reach, near * 0.0 + reach
    # |cosine * dx + sine * dy| <= half_x and |cosine * dy - sine * dx| <= half_y, for any dy of the row.
    one, other = sine * near, sine * far
    low, high = _narrowed(
        low, high, cosine, -half_x - slack - tl.maximum(one, other), half_x + slack - tl.minimum(one, other)
    )
    one, other = cosine * near, cosine * far
    low, high = _narrowed(
        low, high, sine, tl.minimum(one, other) - half_y - slack, tl.maximum(one, other) + half_y + slack
    )
    taken = taken & (low <= high)
    first = line + _cell(centre_x + low, size, width - 1)
    last = line + _cell(centre_x + high, size, width - 1)
    first = tl.minimum(_rows_before(words, first, taken, False), capacity)
    last = tl.minimum(_rows_before(words, last, taken, True), capacity)
    start = tl.load(offsets + first, mask=taken, other=0)
    end = tl.load(offsets + last, mask=taken, other=0)
    return start, tl.where(taken, end - start, 0)


@triton.jit
def _append(
    item, start, run, points, box_x, box_y, box_z, length, width, height, cosine, sine, counts, found_points,
    room, margin, ROWS: tl.constexpr, LENGTH: tl.constexpr, PER_POINT: tl.constexpr,
):  # fmt: skip
    """Numbers of the points of ``ROWS`` runs that are inside a box, into the box's list.

    In which order programs append to the list does not show: only maxima are taken over it.
    """
    into = found_points + tl.cast(item, tl.int64) * room
    for begin in range(0, tl.max(run, axis=0), LENGTH):
        place = begin + tl.arange(0, LENGTH)
        index = start[:, None] + place[None, :]
        alive = place[None, :] < run[:, None]
        delta_x = tl.load(points + index * PER_POINT, mask=alive, other=0.0) - box_x
        delta_y = tl.load(points + index * PER_POINT + 1, mask=alive, other=0.0) - box_y
        above = tl.load(points + index * PER_POINT + 2, mask=alive, other=0.0) - box_z
        ahead = cosine * delta_x + sine * delta_y
        left = cosine * delta_y - sine * delta_x
        inside = alive & (tl.abs(ahead) <= length + margin)
        inside = inside & (tl.abs(left) <= width + margin) & (tl.abs(above) <= height + margin)
        kept = tl.reshape(inside.to(tl.int32), [ROWS * LENGTH])
        number = tl.sum(kept, axis=0)
        if number > 0:
            rank = tl.cumsum(kept, axis=0) - 1
            first = tl.atomic_add(counts + item, number, sem="relaxed")
            tl.store(into + first + rank, tl.reshape(index, [ROWS * LENGTH]), mask=kept > 0)


@triton.jit
def _gather(
    item, part, points, offsets, words, boxes, labels, indices, counts, found_points, room,
    per_frame, proposals, capacity, grid_height, grid_width, line_width,
    size, origin_x, origin_y, margin,
    HAS_INDICES: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr,
    PER_POINT: tl.constexpr,
):  # fmt: skip
    """Points inside a box from every ``PARTS``-th ``ROWS`` pillar rows, into the box's list."""
    row, _ = source_rows(labels, indices, item, item >= 0, per_frame, proposals, HAS_INDICES)
    if row >= 0:
        box = boxes + row * 7
        box_x, box_y, box_z = tl.load(box), tl.load(box + 1), tl.load(box + 2)
        length, width, height = tl.load(box + 3) / 2, tl.load(box + 4) / 2, tl.load(box + 5) / 2
        yaw = tl.load(box + 6)
        cosine, sine = tl.cos(yaw), tl.sin(yaw)
        half_x, half_y = length + margin, width + margin
        centre_x, centre_y = box_x - origin_x, box_y - origin_y
        reach = tl.abs(sine) * half_x + tl.abs(cosine) * half_y + 0.02 * size
        first_y = _cell(centre_y - reach, size, grid_height - 1)
        last_y = _cell(centre_y + reach, size, grid_height - 1)
        for chunk in range(first_y + part * ROWS, last_y + 1, PARTS * ROWS):
            y = chunk + tl.arange(0, ROWS)
            line = ((item // per_frame) * grid_height + y) * line_width
            start, run = _point_runs(
                words, offsets, line, y <= last_y, y, centre_x, centre_y, cosine, sine, half_x, half_y, size,
                grid_width, capacity,
            )  # fmt: skip
            _append(
                item, start, run, points, box_x, box_y, box_z, length, width, height, cosine, sine, counts,
                found_points, room, margin, ROWS, LENGTH, PER_POINT,
            )  # fmt: skip


@triton.jit
def listed_crop_kernel(
    points, starts, runs, boxes, labels, counts, found_points, rows, room, per_frame, proposals, margin,
    PARTS: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr, PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Points inside a box from every ``PARTS``-th ``ROWS`` of the runs under it, into the box's list."""
    wait_for_launch(DEPENDENT)
    item, part = tl.program_id(0), tl.program_id(1)
    row, _ = source_rows(labels, labels, item, item >= 0, per_frame, proposals, False)
    if row >= 0:
        box = boxes + row * 7
        box_x, box_y, box_z = tl.load(box), tl.load(box + 1), tl.load(box + 2)
        length, width, height = tl.load(box + 3) / 2, tl.load(box + 4) / 2, tl.load(box + 5) / 2
        yaw = tl.load(box + 6)
        cosine, sine = tl.cos(yaw), tl.sin(yaw)
        for chunk in range(part * ROWS, rows, PARTS * ROWS):
            number = chunk + tl.arange(0, ROWS)
            place = item * rows + number
            start = tl.load(starts + place, mask=number < rows, other=0)
            run = tl.load(runs + place, mask=number < rows, other=0)
            _append(
                item, start, run, points, box_x, box_y, box_z, length, width, height, cosine, sine, counts,
                found_points, room, margin, ROWS, LENGTH, PER_POINT,
            )  # fmt: skip


@triton.jit
def _sample(features, frame, x, y, alive, channel, rows, columns, CHANNELS: tl.constexpr):
    """Bilinear sample of a map at (x, y) in cells, zeros outside: (boxes, channels) float32."""
    base_x, base_y = tl.floor(x), tl.floor(y)
    part_x, part_y = x - base_x, y - base_y
    # Far outside every corner is; the limit keeps integers in range.
    column = tl.minimum(tl.maximum(base_x, -2.0), columns * 1.0).to(tl.int32)
    row = tl.minimum(tl.maximum(base_y, -2.0), rows * 1.0).to(tl.int32)
    total = tl.zeros((x.shape[0], channel.shape[0]), dtype=tl.float32)
    for corner in tl.static_range(4):
        to_x = column + corner % 2
        to_y = row + corner // 2
        share_x = part_x if corner % 2 else 1.0 - part_x
        share_y = part_y if corner // 2 else 1.0 - part_y
        valid = alive & (to_x >= 0) & (to_x < columns) & (to_y >= 0) & (to_y < rows)
        cell = (frame * rows + to_y) * columns + to_x
        value = tl.load(
            features + cell[:, None] * CHANNELS + channel[None, :],
            mask=valid[:, None] & (channel < CHANNELS)[None, :],
            other=0.0,
        )
        total += value.to(tl.float32) * (share_x * share_y)[:, None]
    return total


@triton.jit
def _context(
    group, spot, first_column, features, boxes, labels, indices, context, weight_map, weight_rest, bias,
    items, per_frame, proposals, map_height, map_width, cell_m, origin_x, origin_y,
    HAS_INDICES: tl.constexpr, CLASSES: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr,
    HIDDEN: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """What some outputs of the first hidden layer get from one spot of the map, for 16 boxes.

    The first spot's programs add what comes from class and size.
    """
    item = group * 16 + tl.arange(0, 16)
    row, label = source_rows(labels, indices, item, item < items, per_frame, proposals, HAS_INDICES)
    alive = row >= 0
    frame = item // per_frame
    box = boxes + row * 7
    box_x, box_y = tl.load(box, mask=alive, other=0.0), tl.load(box + 1, mask=alive, other=0.0)
    length, width = tl.load(box + 3, mask=alive, other=1.0), tl.load(box + 4, mask=alive, other=1.0)
    height, yaw = tl.load(box + 5, mask=alive, other=1.0), tl.load(box + 6, mask=alive, other=0.0)
    cosine, sine = tl.cos(yaw), tl.sin(yaw)
    ahead_x, ahead_y = cosine * length / 2, sine * length / 2
    left_x, left_y = -sine * width / 2, cosine * width / 2
    column = first_column + tl.arange(0, COLUMNS)
    ahead = tl.where(spot == 1, 1.0, tl.where(spot == 2, -1.0, 0.0))
    left = tl.where(spot == 3, 1.0, tl.where(spot == 4, -1.0, 0.0))
    x = box_x + ahead * ahead_x + left * left_x
    y = box_y + ahead * ahead_y + left * left_y
    x = tl.div_rn(x - origin_x, tl.zeros_like(x) + cell_m) - 0.5
    y = tl.div_rn(y - origin_y, tl.zeros_like(y) + cell_m) - 0.5
    # With the first spot only; by masks and not a branch, so that these loads do not wait for the product.
    rest, read = weight_rest + column[None, :], spot * HIDDEN + column[None, :] < HIDDEN
    total = tl.zeros((16, COLUMNS), dtype=tl.float32) + tl.load(bias + column[None, :], mask=read, other=0.0)
    total += tl.load(rest + label[:, None] * HIDDEN, mask=alive[:, None] & read, other=0.0)
    total += tl.log(length)[:, None] * tl.load(rest + (CLASSES + 1) * HIDDEN, mask=read, other=0.0)
    total += tl.log(width)[:, None] * tl.load(rest + (CLASSES + 2) * HIDDEN, mask=read, other=0.0)
    total += tl.log(height)[:, None] * tl.load(rest + (CLASSES + 3) * HIDDEN, mask=read, other=0.0)
    for start in tl.static_range(0, PADDED, DEPTH):
        channel = start + tl.arange(0, DEPTH)
        sample = _sample(features, frame, x, y, alive, channel, map_height, map_width, CHANNELS)
        weight = tl.load(weight_map + (spot * PADDED + channel)[:, None] * HIDDEN + column[None, :])
        total = tl.dot(sample.to(weight.dtype), weight, total, input_precision=PRECISION)
    into = context + (spot * items + item)[:, None] * HIDDEN + column[None, :]
    begin_next(DEPENDENT)
    tl.store(into, total, mask=(item < items)[:, None])


@triton.jit
def crop_kernel(
    points, offsets, words, features, boxes, labels, indices, counts, found_points, context,
    weight_map, weight_rest, bias,
    items, room, per_frame, proposals, capacity, grid_height, grid_width, line_width, map_height, map_width,
    size, cell_m, origin_x, origin_y, margin,
    HAS_INDICES: tl.constexpr, CLASSES: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr,
    HIDDEN: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr,
    SLICE: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr, PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Samples of one spot for 16 boxes and ``SLICE`` outputs a program, then some pillar rows of a box each.

    Parts follow in order of their number, so that the ones that small boxes leave idle come last.
    """
    wait_for_launch(DEPENDENT)
    program = tl.program_id(0)
    slices: tl.constexpr = HIDDEN // SLICE
    sampling = ((items + 15) // 16) * slices * 5
    if program < sampling:
        _context(
            program // (slices * 5), program // slices % 5, (program % slices) * SLICE, features, boxes,
            labels, indices, context, weight_map, weight_rest, bias,
            items, per_frame, proposals, map_height, map_width, cell_m, origin_x, origin_y,
            HAS_INDICES, CLASSES, CHANNELS, PADDED, HIDDEN, SLICE, DEPTH, PRECISION,
            DEPENDENT,
        )  # fmt: skip
    else:
        place = program - sampling
        _gather(
            place % items, place // items, points, offsets, words, boxes, labels, indices, counts,
            found_points, room, per_frame, proposals, capacity, grid_height, grid_width, line_width,
            size, origin_x, origin_y, margin, HAS_INDICES, PARTS, ROWS, LENGTH, PER_POINT,
        )  # fmt: skip
