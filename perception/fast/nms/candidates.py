"""Pairs of boxes whose circles meet, from a spatial hash, as Triton kernels.

As in ``perception.nms``, boxes fall in levels by size, each with a grid of its own; cells of a level are
twice those of the level below. A cell is at least two diameters wide, so that what a box may meet on its own
level or above lies in 2 x 2 cells: those around the corner that is nearest to its centre. The cells of a
level and a label share buckets with others by a hash, the four of a 2 x 2 block never with each other. What
is larger than the coarsest cells, or finds its bucket full, is put aside and compared with every box.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.fast.nms.triton import double_of, usable
from sparse_core.launches import begin_next, wait_for_launch

#: Numbers of a frame: pairs found, boxes put aside, better boxes left out, boxes kept, programs that are done.
NUMBERS = tl.constexpr(8)
PAIRS_FOUND, PUT_ASIDE, LEFT_OUT, KEPT, DONE = (tl.constexpr(place) for place in range(5))
#: Entries of the table of levels that occur, by label.
LABELS = tl.constexpr(32)
#: Side of the finest cells in metres, and levels of cells. Cars, cyclists and pedestrians of usual size,
#: which are best not split between two levels, are each well within one.
FINEST_M, LEVELS = tl.constexpr(11.25 / 4096), tl.constexpr(24)
#: A pair of boxes is one int32, ``_STRIDE`` times one box plus the other.
STRIDE = tl.constexpr(32768)
#: Words of a record: x, y and radius, float64, 0 for what overlaps nothing; level times 2**32 plus label.
_WORDS = tl.constexpr(4)
#: Coordinates are at most this many cells, so that cells are int32 and rounding stays below the slack.
_FARTHEST = tl.constexpr(float(1 << 25))


@triton.jit
def bits_of(value):
    """The bits of float64 values."""
    return value.to(tl.int64, bitcast=True)


@triton.jit
def level_of(x, y, radius):
    """The level of a box, a power of two; 0 for what is too large or too far for any."""
    needed = tl.maximum(radius * (4.0 * (1.0 + 1e-6)), tl.maximum(tl.abs(x), tl.abs(y)) / _FARTHEST)
    level = tl.where(needed <= FINEST_M, 1, 0)
    for step in tl.static_range(1, LEVELS):
        finer, cell = FINEST_M * (1 << (step - 1)), FINEST_M * (1 << step)
        level = tl.where((needed > finer) & (needed <= cell), 1 << step, level)
    return level


@triton.jit
def bucket_of(column, row, level, label, BUCKETS: tl.constexpr):
    """Bucket of a cell; cells of a 2 x 2 block have four different ones."""
    mixed = (column >> 1).to(tl.uint32) * 73856093
    mixed = mixed ^ ((row >> 1).to(tl.uint32) * 19349663)
    mixed = mixed ^ (level.to(tl.uint32) * 83492791)
    mixed = mixed ^ (label.to(tl.uint32) * 50331653)
    mixed = (mixed ^ (mixed >> 15)) * 739982445
    block = ((mixed ^ (mixed >> 13)) % (BUCKETS // 4)).to(tl.int32)
    return block * 4 + (column & 1) * 2 + (row & 1)


@triton.jit
def _either(first, second):
    return first | second


@triton.jit
def prepare_kernel(
    boxes,
    scores,
    labels,
    records,
    degree,
    state,
    held,
    levels,
    numbers,
    count,
    threshold_bits,
    BLOCK: tl.constexpr,
    BUCKETS: tl.constexpr,
    LIMIT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Records of the boxes; everything that is counted later is 0."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    box = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = box < count
    place = frame * count + box
    threshold = double_of(threshold_bits).to(scores.dtype.element_ty)
    good = usable(boxes, scores, labels, scores, place, inside, threshold, LIMIT, 0.0)
    x = tl.load(boxes + place * 7, mask=good, other=0.0).to(tl.float64)
    y = tl.load(boxes + place * 7 + 1, mask=good, other=0.0).to(tl.float64)
    length = tl.load(boxes + place * 7 + 3, mask=good, other=0.0).to(tl.float64)
    width = tl.load(boxes + place * 7 + 4, mask=good, other=0.0).to(tl.float64)
    label = tl.load(labels + place, mask=good, other=0).to(tl.int64) & 0xFFFFFFFF
    begin_next(DEPENDENT)
    radius = tl.sqrt(length * length + width * width) / 2
    radius = tl.where((length > 0) & (width > 0), radius, 0.0)
    level = tl.zeros((BLOCK,), tl.int32)
    if BUCKETS > 0:
        level = tl.where(radius > 0, level_of(x, y, radius), 0)
        tl.store(held + frame.to(tl.int64) * BUCKETS + box, 0, mask=box < BUCKETS)
    word = records + (frame.to(tl.int64) * count + box) * _WORDS
    tl.store(word, bits_of(x), mask=inside)
    tl.store(word + 1, bits_of(y), mask=inside)
    tl.store(word + 2, bits_of(radius), mask=inside)
    tl.store(word + 3, (level.to(tl.int64) << 32) | label, mask=inside)
    tl.store(degree + place, 0, mask=inside)
    tl.store(state + place, tl.where(good, 0, 2), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(numbers + frame * NUMBERS + tl.arange(0, NUMBERS), 0)
        tl.store(levels + frame * LABELS + tl.arange(0, LABELS), 0)


@triton.jit
def insert_kernel(
    records,
    held,
    members,
    levels,
    aside,
    numbers,
    count,
    BLOCK: tl.constexpr,
    BUCKETS: tl.constexpr,
    SLOTS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Put boxes into the buckets of their cells, in any order, or aside."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame.to(tl.int64) * count
    box = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = box < count
    word = records + (start + box) * _WORDS
    tag = tl.load(word + 3, mask=inside, other=0)
    x = double_of(tl.load(word, mask=inside, other=0))
    y = double_of(tl.load(word + 1, mask=inside, other=0))
    radius = double_of(tl.load(word + 2, mask=inside, other=0))
    begin_next(DEPENDENT)
    level, label = (tag >> 32).to(tl.int32), tag.to(tl.int32)
    hashed = level > 0
    cell = FINEST_M * tl.maximum(level, 1).to(tl.float64)
    column = tl.floor(tl.where(hashed, x, 0.0) / cell).to(tl.int32)
    row = tl.floor(tl.where(hashed, y, 0.0) / cell).to(tl.int32)
    bucket = frame.to(tl.int64) * BUCKETS + bucket_of(column, row, level, label, BUCKETS)
    slot = tl.atomic_add(held + bucket, 1, mask=hashed, sem="relaxed")
    entry = tl.arange(0, LABELS)
    own = tl.where((label & (LABELS - 1))[:, None] == entry[None, :], level[:, None], 0)
    seen = tl.reduce(own, 0, _either)
    tl.atomic_or(levels + frame * LABELS + entry, seen, mask=seen > 0, sem="relaxed")
    fitting = hashed & (slot < SLOTS)
    tl.store(members + bucket * SLOTS + slot, box, mask=fitting)
    other = ((radius > 0) & ~fitting).to(tl.int32)
    found = tl.sum(other, 0)
    if found > 0:
        base = tl.atomic_add(numbers + frame * NUMBERS + PUT_ASIDE, found, sem="relaxed")
        tl.store(aside + start + base + tl.cumsum(other, 0) - 1, box, mask=other > 0)
        tl.store(word + 3, tag & 0xFFFFFFFF, mask=other > 0)


@triton.jit
def list_meeting(
    records, pairs, found_before, start, own, x, y, radius, wanted, any_order, other, possible, room
):  # fmt: skip
    """List those of ``other`` (1 or own, others) that meet ``own`` (own,) and have the wanted tag.

    ``any_order`` (own,): of every pair only this one of both sees the other; elsewhere the later one lists it.
    """
    word = records + (start + other) * _WORDS
    other_x = double_of(tl.load(word, mask=possible, other=0))
    other_y = double_of(tl.load(word + 1, mask=possible, other=0))
    other_radius = double_of(tl.load(word + 2, mask=possible, other=0))
    tag = tl.load(word + 3, mask=possible, other=0)
    reach = radius[:, None] + other_radius
    across, along = x[:, None] - other_x, y[:, None] - other_y
    meet = across * across + along * along <= reach * reach * (1.0 + 1e-9)
    meet = meet & (other_radius > 0) & (radius[:, None] > 0) & (tag == wanted[:, None])
    meet = (meet & (any_order[:, None] | (other < own[:, None]))).to(tl.int32)
    a_box = tl.sum(meet, 1)
    found = tl.sum(a_box, 0)
    if found > 0:
        base = tl.atomic_add(found_before, found, sem="relaxed")
        before = base + tl.cumsum(a_box, 0) - a_box
        place = before[:, None] + tl.cumsum(meet, 1) - 1
        pair = own[:, None] * STRIDE + other
        tl.store(pairs + place, pair, mask=(meet > 0) & (place < room))


@triton.jit
def pair_kernel(
    records,
    held,
    members,
    levels,
    aside,
    numbers,
    pairs,
    count,
    room,
    BOXES: tl.constexpr,
    SPAN: tl.constexpr,
    ASIDE: tl.constexpr,
    BUCKETS: tl.constexpr,
    SLOTS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """List the pairs of one label whose circles meet, each once and in any order.

    A box looks into its own level and those above, ``SPAN`` members of four buckets at a time, then at what
    was put aside. Without buckets it looks at all boxes before it.
    """
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame.to(tl.int64) * count
    first = tl.program_id(0) * BOXES
    own = first + tl.arange(0, BOXES)
    inside = own < count
    word = records + (start + own) * _WORDS
    tag = tl.load(word + 3, mask=inside, other=0)
    x = double_of(tl.load(word, mask=inside, other=0))
    y = double_of(tl.load(word + 1, mask=inside, other=0))
    radius = double_of(tl.load(word + 2, mask=inside, other=0))
    own_level, label = (tag >> 32).to(tl.int32), tag.to(tl.int32)
    label_word = tag & 0xFFFFFFFF
    listed, found = pairs + frame.to(tl.int64) * room, numbers + frame * NUMBERS + PAIRS_FOUND
    behind = tl.minimum(first + BOXES, count)
    if BUCKETS > 0:
        behind = tl.load(numbers + frame * NUMBERS + PUT_ASIDE)
        entry = tl.arange(0, LABELS)
        seen = tl.load(levels + frame * LABELS + entry)
        same = (label & (LABELS - 1))[:, None] == entry[None, :]
        # From the own level up; none for what was put aside.
        left = tl.sum(tl.where(same, seen[None, :], 0), 1) & -own_level
        lane = tl.arange(0, 4 * SPAN)[None, :]
        corner, lane_slot = lane // SPAN, lane % SPAN
        while tl.max(left, 0) > 0:
            level = left & -left
            active = level > 0
            cell = FINEST_M * tl.maximum(level, 1).to(tl.float64)
            column = tl.floor(tl.where(active, x, 0.0) / cell - 0.5).to(tl.int32)[:, None] + corner // 2
            row = tl.floor(tl.where(active, y, 0.0) / cell - 0.5).to(tl.int32)[:, None] + corner % 2
            bucket = bucket_of(column, row, level[:, None], label[:, None], BUCKETS)
            bucket = frame.to(tl.int64) * BUCKETS + bucket
            amount = tl.load(held + bucket, mask=active[:, None], other=0)
            amount = tl.minimum(amount, SLOTS)
            wanted = (level.to(tl.int64) << 32) | label_word
            for begin in range(0, tl.max(tl.max(amount, 1), 0), SPAN):
                slot = begin + lane_slot
                possible = slot < amount
                # Asked for before it is known what is there.
                other = tl.load(members + bucket * SLOTS + slot, mask=active[:, None], other=0)
                list_meeting(
                    records, listed, found, start, own, x, y, radius, wanted, level != own_level,
                    other, possible, room,
                )  # fmt: skip
            left = left - level
    for begin in range(0, behind, ASIDE):
        place = begin + tl.arange(0, ASIDE)[None, :]
        possible = place < behind
        other = place
        if BUCKETS > 0:
            other = tl.load(aside + start + place, mask=possible, other=0)
        list_meeting(
            records, listed, found, start, own, x, y, radius, label_word, own_level > 0,
            other, possible, room,
        )  # fmt: skip
