"""Second launch of a refinement step in Triton: the layers for the points inside each box.

A fixed number of programs share the blocks of listed points evenly, however many points a box has, and each
reads its weights once. Products are transposed (channels by points). So a thread has many points of few
channels and computes most of the maximum over points alone.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def points_kernel(
    points, boxes, indices, found_points, counts, pooled,
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3, items, room, per_frame, proposals,
    HAS_INDICES: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr, C3: tl.constexpr,
    POINTS: tl.constexpr, COLUMNS: tl.constexpr, ITEMS: tl.constexpr, SLOTS: tl.constexpr,
    PRECISION: tl.constexpr, PER_POINT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """``COLUMNS`` features of every ``SLOTS``-th block of points, their maxima into ``pooled``."""
    slices: tl.constexpr = C3 // COLUMNS
    slot = tl.program_id(0) // slices
    c1, c2 = tl.arange(0, C1), tl.arange(0, C2)
    c3 = (tl.program_id(0) % slices) * COLUMNS + tl.arange(0, COLUMNS)
    number = tl.arange(0, ITEMS)
    # Under way while the launch before ends: no launch writes them.
    first = tl.load(weight_1 + c1[:, None] + tl.arange(0, 16)[None, :] * C1)
    second = tl.load(weight_2 + c1[None, :] * C2 + c2[:, None])
    third = tl.load(weight_3 + c2[None, :] * C3 + c3[:, None])
    shift_1, shift_2, shift_3 = tl.load(bias_1 + c1), tl.load(bias_2 + c2), tl.load(bias_3 + c3)
    wait_for_launch(DEPENDENT)
    count = tl.load(counts + number, mask=number < items, other=0)
    passed = 0
    for chunk in range(0, items, ITEMS):
        blocks = (count + (POINTS - 1)) // POINTS
        end = tl.cumsum(blocks, axis=0)
        total = tl.sum(blocks, axis=0)
        for block in range((slot + SLOTS - passed % SLOTS) % SLOTS, total, SLOTS):
            in_chunk = tl.sum((end <= block).to(tl.int32), axis=0)
            here = number == in_chunk
            size = tl.sum(tl.where(here, count, 0), axis=0)
            before = tl.sum(tl.where(here, end - blocks, 0), axis=0)
            item = chunk + in_chunk
            place = (block - before) * POINTS + tl.arange(0, POINTS)
            alive = place < size
            features = _features(
                item, place, alive, points, boxes, indices, found_points, room, per_frame, proposals,
                HAS_INDICES, PER_POINT,
            )  # fmt: skip
            hidden = tl.dot(first, tl.trans(features), input_precision=PRECISION)
            hidden = tl.maximum(hidden + shift_1[:, None], 0.0).to(second.dtype)
            hidden = tl.dot(second, hidden, input_precision=PRECISION)
            hidden = tl.maximum(hidden + shift_2[:, None], 0.0).to(third.dtype)
            output = tl.dot(third, hidden, input_precision=PRECISION)
            # Adding the bias rounds larger sums to no smaller ones, so the maximum may come first.
            peak = tl.max(tl.where(alive[None, :], output, float("-inf")), axis=1) + shift_3
            # Numbers that are not negative sort like their bits; zero stays what it was.
            tl.atomic_max(
                pooled + item * C3 + c3, peak.to(tl.int32, bitcast=True), mask=peak > 0.0, sem="relaxed"
            )
        passed += total
        begin_next(DEPENDENT)
        count = tl.load(counts + chunk + ITEMS + number, mask=chunk + ITEMS + number < items, other=0)


@triton.jit
def _features(
    item, place, alive, points, boxes, indices, found_points, room, per_frame, proposals,
    HAS_INDICES: tl.constexpr, PER_POINT: tl.constexpr,
):  # fmt: skip
    """What the first layer reads of listed points of a box: (points, 16) float32."""
    index = tl.load(found_points + tl.cast(item, tl.int64) * room + place, mask=alive, other=0)
    row = item
    if HAS_INDICES:
        row = (item // per_frame) * proposals + tl.load(indices + item)
    box = boxes + row * 7
    box_x, box_y, box_z = tl.load(box), tl.load(box + 1), tl.load(box + 2)
    length, width, height = tl.load(box + 3) / 2, tl.load(box + 4) / 2, tl.load(box + 5) / 2
    yaw = tl.load(box + 6)
    cosine, sine = tl.cos(yaw), tl.sin(yaw)
    x = tl.load(points + index * PER_POINT, mask=alive, other=0.0)
    y = tl.load(points + index * PER_POINT + 1, mask=alive, other=0.0)
    z = tl.load(points + index * PER_POINT + 2, mask=alive, other=0.0)
    intensity = tl.load(points + index * PER_POINT + 3, mask=alive, other=0.0)
    delta_x, delta_y, above = x - box_x, y - box_y, z - box_z
    ahead = cosine * delta_x + sine * delta_y
    left = cosine * delta_y - sine * delta_x
    column = tl.arange(0, 16)[None, :]
    axis = column % 3
    local = tl.where(axis == 0, ahead[:, None], tl.where(axis == 1, left[:, None], above[:, None]))
    half = tl.where(axis == 0, length, tl.where(axis == 1, width, height))
    # 0-2 position, 3-5 distance to the faces ahead, 6-8 to those behind, 9 intensity, 10 z, 11 range, 12 age.
    features = tl.where(column < 3, local, tl.where(column < 6, half - local, half + local))
    features = tl.where(column == 9, intensity[:, None], features)
    features = tl.where(column == 10, z[:, None], features)
    features = tl.where(column == 11, (tl.sqrt(x * x + y * y) / 40.0)[:, None], features)
    if PER_POINT > 4:
        age = tl.load(points + index * PER_POINT + 4, mask=alive, other=0.0)
        features = tl.where(column == 12, age[:, None], features)
    return tl.where(column < 8 + PER_POINT, features, 0.0)
