"""Pairs of boxes whose circles meet, from a spatial hash, as Triton kernels.

As in ``perception.nms``, the size of a box decides its level. Each level has a grid, with cells twice as wide
as those of the level below. A cell is at least two diameters wide. So a box can only meet boxes of its level
or above in 2 x 2 cells: those around the corner nearest to its centre. A hash of cell, level and label picks
the bucket; the four cells of a 2 x 2 block never share one. Boxes larger than the coarsest cells, and boxes
whose bucket is full, are set aside and compared with every box.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.stages.nms.triton import double_of, usable
from sparse_core.kernels.launches import begin_next, wait_for_launch

#: Counters of a frame: pairs found, boxes set aside, better boxes omitted, boxes kept, finished programs.
NUMBERS = tl.constexpr(8)
PAIRS_FOUND, PUT_ASIDE, LEFT_OUT, KEPT_FOUND, DONE = (tl.constexpr(place) for place in range(5))
#: States of a box.
SUPPRESSED, OPEN, KEPT = (tl.constexpr(state) for state in range(3))
#: Entries, by label, of the table of levels that occur.
LABELS = tl.constexpr(32)
#: A pair of boxes is one int32, ``STRIDE`` times one box plus the other.
STRIDE = tl.constexpr(32768)
#: Side of the finest cells in metres, and number of levels, counted from 1. Each class should be in one
#: level: the usual sizes of cars, cyclists and pedestrians are far from the limits of a level.
_FINEST_M, _LEVELS = tl.constexpr(11.25 / 4096), tl.constexpr(24)
#: Coordinates are at most this many cells, so that cells are int32 and rounding stays below the slack.
_FARTHEST = tl.constexpr(float(1 << 25))
#: Beyond this, squares overflow in single precision, so such a box counts as meeting every box.
_VAST_M = tl.constexpr(1e18)
#: Bits of a tag for the level; the other bits are the lowest ones of the label.
_LEVEL_BITS, _LEVEL_MASK = tl.constexpr(5), tl.constexpr(31)


@triton.jit
def level_of(x, y, radius):
    """The level of a box; 0 for what is too large or too far for any."""
    needed = tl.maximum(radius * (4.0 * (1.0 + 1e-6)), tl.maximum(tl.abs(x), tl.abs(y)) / _FARTHEST)
    level = tl.where(needed > _FINEST_M, 2, 1)
    for step in tl.static_range(1, _LEVELS):
        level += tl.where(needed > _FINEST_M * (1 << step), 1, 0)
    return tl.where(level > _LEVELS, 0, level)


@triton.jit
def cell_of(place, level_bit):
    """Coordinates in cells of a level; where ``level_bit`` is 0, in the finest."""
    return place / (_FINEST_M * tl.maximum(level_bit, 1).to(tl.float64))


@triton.jit
def bucket_of(column, row, tag, BUCKETS: tl.constexpr):
    """Bucket of a cell; cells of a 2 x 2 block have four different ones."""
    mixed = (column >> 1).to(tl.uint32) * 73856093
    mixed = mixed ^ ((row >> 1).to(tl.uint32) * 19349663)
    mixed = mixed ^ (tag.to(tl.uint32) * 83492791)
    mixed = (mixed ^ (mixed >> 15)) * 739982445
    block = ((mixed ^ (mixed >> 13)) % (BUCKETS // 4)).to(tl.int32)
    return block * 4 + (column & 1) * 2 + (row & 1)


@triton.jit
def joined(low, high):
    """Two float32 or int32 values as one int64."""
    high = high.to(tl.int32, bitcast=True).to(tl.int64)
    return (high << 32) | (low.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def record(records, place, present):
    """Coordinates, radius and tag of boxes; a radius of 0 where nothing is."""
    centre = tl.load(records + place * 2, mask=present, other=0)
    rest = tl.load(records + place * 2 + 1, mask=present, other=0)
    x = centre.to(tl.int32).to(tl.float32, bitcast=True)
    y = (centre >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return x, y, rest.to(tl.int32).to(tl.float32, bitcast=True), (rest >> 32).to(tl.int32)


@triton.jit
def relative(values, origin):
    """Coordinates in single precision from an origin, unless that is far away itself."""
    start = tl.load(origin).to(tl.float64)
    # A comparison with NaN is false.
    offset = values - tl.where(tl.abs(start) < 1e9, start, 0.0)
    vast = tl.abs(offset) > _VAST_M
    return tl.where(vast, 0.0, offset).to(tl.float32), vast


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
    label = tl.load(labels + place, mask=good, other=0).to(tl.int32)
    own_x, vast_x = relative(x, boxes + frame * count * 7)
    own_y, vast_y = relative(y, boxes + frame * count * 7 + 1)
    begin_next(DEPENDENT)
    radius = tl.sqrt(length * length + width * width) / 2
    # The slack covers what single precision rounds; the last term, squares that are no longer normal.
    reach = tl.where(vast_x | vast_y | (radius > _VAST_M), float("inf"), radius).to(tl.float32)
    reach = reach * (1.0 + 1e-5) + 3e-7 * (tl.abs(own_x) + tl.abs(own_y)) + 1e-18
    # What has no area overlaps nothing.
    solid = (length > 0) & (width > 0)
    level = tl.zeros((BLOCK,), tl.int32)
    if BUCKETS > 0:
        level = tl.where(solid, level_of(x, y, radius), 0)
        tl.store(held + frame.to(tl.int64) * BUCKETS + box, 0, mask=box < BUCKETS)
    word = records + (frame.to(tl.int64) * count + box) * 2
    tl.store(word, joined(own_x, own_y), mask=inside)
    tl.store(word + 1, joined(tl.where(solid, reach, 0.0), (label << _LEVEL_BITS) | level), mask=inside)
    tl.store(degree + place, 0, mask=inside)
    tl.store(state + place, tl.where(good, OPEN, SUPPRESSED), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(numbers + frame * NUMBERS + tl.arange(0, NUMBERS), 0)
        tl.store(levels + frame * LABELS + tl.arange(0, LABELS), 0)


@triton.jit
def level_bit_of(tag):
    """The level of a tag as a bit; 0 for no level."""
    level = tag & _LEVEL_MASK
    return tl.where(level > 0, 1 << tl.maximum(level - 1, 0), 0)


@triton.jit
def level_of_bit(bit):
    """The inverse, from the exponent of a float; 0 for 0."""
    exponent = bit.to(tl.float32).to(tl.int32, bitcast=True) >> 23
    return tl.where(bit > 0, exponent - 126, 0)


@triton.jit
def insert_kernel(
    boxes,
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
    x = tl.load(boxes + (start + box) * 7, mask=inside, other=0.0).to(tl.float64)
    y = tl.load(boxes + (start + box) * 7 + 1, mask=inside, other=0.0).to(tl.float64)
    _, _, radius, tag = record(records, start + box, inside)
    begin_next(DEPENDENT)
    bit = level_bit_of(tag)
    hashed = bit > 0
    column = tl.floor(cell_of(tl.where(hashed, x, 0.0), bit)).to(tl.int32)
    row = tl.floor(cell_of(tl.where(hashed, y, 0.0), bit)).to(tl.int32)
    bucket = frame.to(tl.int64) * BUCKETS + bucket_of(column, row, tag, BUCKETS)
    slot = tl.atomic_add(held + bucket, 1, mask=hashed, sem="relaxed")
    entry = tl.arange(0, LABELS)
    same = ((tag >> _LEVEL_BITS) & (LABELS - 1))[:, None] == entry[None, :]
    seen = tl.reduce(tl.where(same, bit[:, None], 0), 0, _either)
    tl.atomic_or(levels + frame * LABELS + entry, seen, mask=seen > 0, sem="relaxed")
    fitting = hashed & (slot < SLOTS)
    tl.store(members + bucket * SLOTS + slot, box, mask=fitting)
    other = ((radius > 0) & ~fitting).to(tl.int32)
    found = tl.sum(other, 0)
    if found > 0:
        base = tl.atomic_add(numbers + frame * NUMBERS + PUT_ASIDE, found, sem="relaxed")
        tl.store(aside + start + base + tl.cumsum(other, 0) - 1, box, mask=other > 0)
        tag = (tag >> _LEVEL_BITS) << _LEVEL_BITS
        tl.store(records + (start + box) * 2 + 1, joined(radius, tag), mask=other > 0)


@triton.jit
def list_meeting(
    records, pairs, found_before, start, own, x, y, radius, wanted, any_order, other, possible, room, counted
):  # fmt: skip
    """List those of ``other`` (1 or own, others) that meet ``own`` (own,) and have the wanted tag.

    ``any_order`` (own,): only this one of both sees the other; elsewhere both do, and the later one lists.

    Returns:
        ``counted``, which is -1 until the list is full; then pairs are counted there, and no longer listed.
    """
    other_x, other_y, other_radius, tag = record(records, start + other, possible)
    reach = radius[:, None] + other_radius
    across, along = x[:, None] - other_x, y[:, None] - other_y
    meet = (across * across + along * along <= reach * reach) & (tag == wanted[:, None])
    meet = meet & (other_radius > 0) & (radius[:, None] > 0)
    meet = (meet & (any_order[:, None] | (other < own[:, None]))).to(tl.int32)
    a_box = tl.sum(meet, 1)
    found = tl.sum(a_box, 0)
    if found > 0:
        if counted < 0:
            base = tl.atomic_add(found_before, found, sem="relaxed")
            before = base + tl.cumsum(a_box, 0) - a_box
            place = before[:, None] + tl.cumsum(meet, 1) - 1
            pair = own[:, None] * STRIDE + other
            tl.store(pairs + place, pair, mask=(meet > 0) & (place < room))
            counted = tl.where(base + found > room, 0, counted)
        else:
            counted += found
    return counted


@triton.jit
def pair_kernel(
    boxes,
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
    x, y, radius, tag = record(records, start + own, inside)
    begin_next(DEPENDENT)
    bit = level_bit_of(tag)
    label_tag = (tag >> _LEVEL_BITS) << _LEVEL_BITS
    listed, found = pairs + frame.to(tl.int64) * room, numbers + frame * NUMBERS + PAIRS_FOUND
    behind = tl.minimum(first + BOXES, count)
    # All programs of a crowded frame would wait for one address.
    counted = frame * 0 - 1
    if BUCKETS > 0:
        exact_x = tl.load(boxes + (start + own) * 7, mask=inside, other=0.0).to(tl.float64)
        exact_y = tl.load(boxes + (start + own) * 7 + 1, mask=inside, other=0.0).to(tl.float64)
        behind = tl.load(numbers + frame * NUMBERS + PUT_ASIDE)
        entry = tl.arange(0, LABELS)
        seen = tl.load(levels + frame * LABELS + entry)
        same = ((tag >> _LEVEL_BITS) & (LABELS - 1))[:, None] == entry[None, :]
        # From the own level up; none for what was put aside.
        left = tl.sum(tl.where(same, seen[None, :], 0), 1) & -bit
        lane = tl.arange(0, 4 * SPAN)[None, :]
        corner, lane_slot = lane // SPAN, lane % SPAN
        while tl.max(left, 0) > 0:
            level = left & -left
            active = level > 0
            wanted = label_tag | level_of_bit(level)
            column = tl.floor(cell_of(tl.where(active, exact_x, 0.0), level) - 0.5).to(tl.int32)
            row = tl.floor(cell_of(tl.where(active, exact_y, 0.0), level) - 0.5).to(tl.int32)
            bucket = bucket_of(
                column[:, None] + corner // 2, row[:, None] + corner % 2, wanted[:, None], BUCKETS
            )
            bucket = frame.to(tl.int64) * BUCKETS + bucket
            amount = tl.load(held + bucket, mask=active[:, None], other=0)
            amount = tl.minimum(amount, SLOTS)
            for begin in range(0, tl.max(tl.max(amount, 1), 0), SPAN):
                slot = begin + lane_slot
                # Asked for before it is known what is there.
                other = tl.load(members + bucket * SLOTS + slot, mask=active[:, None], other=0)
                counted = list_meeting(
                    records, listed, found, start, own, x, y, radius, wanted, level != bit,
                    other, slot < amount, room, counted,
                )  # fmt: skip
            left = left - level
    for begin in range(0, behind, ASIDE):
        place = begin + tl.arange(0, ASIDE)[None, :]
        possible = place < behind
        other = place
        if BUCKETS > 0:
            other = tl.load(aside + start + place, mask=possible, other=0)
        counted = list_meeting(
            records, listed, found, start, own, x, y, radius, label_tag, bit > 0, other, possible, room,
            counted,
        )  # fmt: skip
    if counted > 0:
        tl.atomic_add(found, counted, sem="relaxed")
