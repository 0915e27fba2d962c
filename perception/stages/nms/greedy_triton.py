"""Greedy choice among boxes; each has a list of better boxes that it overlaps. Triton kernels.

A box is kept once every better box that it overlaps is suppressed, and suppressed once one of them is kept.
Both decisions are final, so boxes can be decided in any order. The result equals visiting them
from the best to the worst.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.stages.nms.candidates_triton import (
    DONE,
    KEPT,
    KEPT_FOUND,
    LEFT_OUT,
    NUMBERS,
    OPEN,
    PAIRS_FOUND,
    STRIDE,
    SUPPRESSED,
)
from perception.stages.nms.overlap_triton import iou_of
from perception.stages.nms.triton import double_of, roughly_over
from sparse_core.kernels.launches import begin_next, wait_for_launch

#: More than the programs of a frame; the counter of open boxes is a multiple of this.
_PROGRAMS = tl.constexpr(4096)


@triton.jit
def is_crowded(numbers, frame, room):
    """True if the pairs of a frame, or the better boxes of one of its boxes, found no room."""
    number = numbers + frame * NUMBERS
    return (tl.load(number + LEFT_OUT) != 0) | (tl.load(number + PAIRS_FOUND) > room)


@triton.jit
def overlap_pairs_kernel(
    boxes,
    scores,
    labels,
    numbers,
    pairs,
    degree,
    better,
    count,
    room,
    threshold_bits,
    VOLUME: tl.constexpr,
    PAIRS: tl.constexpr,
    DEGREE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Exact overlap of listed pairs; the better box enters the list of the other if it is too large.

    Frames whose pairs found no room are left to the kernels of crowded frames.
    """
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame.to(tl.int64) * count
    listed = tl.load(numbers + frame * NUMBERS + PAIRS_FOUND)
    listed = tl.where(listed <= room, listed, 0)
    begin_next(DEPENDENT)
    for begin in range(tl.program_id(0) * PAIRS, listed, tl.num_programs(0) * PAIRS):
        place = begin + tl.arange(0, PAIRS)
        inside = place < listed
        pair = tl.load(pairs + frame.to(tl.int64) * room + place, mask=inside, other=0)
        first, second = pair // STRIDE, pair % STRIDE
        first_score = tl.load(scores + start + first, mask=inside, other=0.0)
        second_score = tl.load(scores + start + second, mask=inside, other=0.0)
        first_label = tl.load(labels + start + first, mask=inside, other=0)
        second_label = tl.load(labels + start + second, mask=inside, other=0)
        f, s = boxes + (start + first) * 7, boxes + (start + second) * 7
        fx, sx = tl.load(f, mask=inside, other=0.0), tl.load(s, mask=inside, other=0.0)
        fy, sy = tl.load(f + 1, mask=inside, other=0.0), tl.load(s + 1, mask=inside, other=0.0)
        fz, sz = tl.load(f + 2, mask=inside, other=0.0), tl.load(s + 2, mask=inside, other=0.0)
        fl, sl = tl.load(f + 3, mask=inside, other=0.0), tl.load(s + 3, mask=inside, other=0.0)
        fw, sw = tl.load(f + 4, mask=inside, other=0.0), tl.load(s + 4, mask=inside, other=0.0)
        fh, sh = tl.load(f + 5, mask=inside, other=0.0), tl.load(s + 5, mask=inside, other=0.0)
        fyaw, syaw = tl.load(f + 6, mask=inside, other=0.0), tl.load(s + 6, mask=inside, other=0.0)
        swap = (second_score > first_score) | ((second_score == first_score) & (second < first))
        # The better box is a, as in exact suppression.
        ax, bx = better_first(swap, fx, sx)
        ay, by = better_first(swap, fy, sy)
        az, bz = better_first(swap, fz, sz)
        al, bl = better_first(swap, fl, sl)
        aw, bw = better_first(swap, fw, sw)
        ah, bh = better_first(swap, fh, sh)
        ayaw, byaw = better_first(swap, fyaw, syaw)
        reach = (tl.sqrt(al * al + aw * aw) + tl.sqrt(bl * bl + bw * bw)) / 2
        over, doubtful = roughly_over(
            ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, reach, threshold_bits, VOLUME
        )
        inside = inside & (first_label == second_label)
        doubtful = doubtful & inside
        if tl.sum(doubtful.to(tl.int32), 0) > 0:
            iou = iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME)
            over = tl.where(doubtful, iou > double_of(threshold_bits), over)
        over = over & inside
        a, b = tl.where(swap, second, first), tl.where(swap, first, second)
        slot = tl.atomic_add(degree + start + b, 1, mask=over, sem="relaxed")
        tl.store(better + (start + b) * DEGREE + slot, a, mask=over & (slot < DEGREE))
        lost = tl.sum((over & (slot >= DEGREE)).to(tl.int32), 0)
        if lost > 0:
            tl.atomic_add(numbers + frame * NUMBERS + LEFT_OUT, lost, sem="relaxed")


@triton.jit
def better_first(swap, first, second):
    """A field of both boxes in double precision, that of the better one first."""
    return tl.where(swap, second, first).to(tl.float64), tl.where(swap, first, second).to(tl.float64)


@triton.jit
def decided(degree, better, state, start, box, inside, own, PATIENCE: tl.constexpr, DEGREE: tl.constexpr):
    """States of some boxes after rounds that stop once nothing changes, and how many are open.

    What other programs decide meanwhile is seen sooner or later; ``PATIENCE`` rounds may bring nothing.
    """
    length = tl.load(degree + start + box, mask=inside, other=0)
    slot = tl.arange(0, DEGREE)[None, :]
    # Asked for before it is known how many there are.
    other = tl.load(better + (start + box[:, None]) * DEGREE + slot, mask=inside[:, None], other=0)
    asked = slot < length[:, None]
    left = tl.sum((own == OPEN).to(tl.int32), 0)
    idle = left * 0
    while (left > 0) & (idle < PATIENCE):
        asked = asked & (own == OPEN)[:, None]
        theirs = tl.load(state + start + other, mask=asked, other=SUPPRESSED, volatile=True)
        # One that is kept suppresses, one that is open lets wait, none of both keeps.
        new = tl.where(own == OPEN, KEPT - tl.max(theirs, 1), own)
        tl.store(state + start + box, new, mask=inside & (new != own))
        asked = asked & (theirs == OPEN)
        own = new
        open_boxes = tl.sum((own == OPEN).to(tl.int32), 0)
        idle = tl.where(open_boxes < left, 0, idle + 1)
        left = open_boxes
        tl.debug_barrier()
    return own, left


@triton.jit
def settle_blocks(
    scores, degree, better, state, kept_boxes, kept_scores, kept_found, start, count, first, step,
    PATIENCE: tl.constexpr, BLOCK: tl.constexpr, DEGREE: tl.constexpr,
):  # fmt: skip
    """Settle every ``step``-th box block from the one at box ``first`` on, and list what is kept now.

    Returns:
        How many boxes are left open.
    """
    left = first * 0
    for begin in range(first, count, step):
        box = begin + tl.arange(0, BLOCK)
        inside = box < count
        own = tl.load(state + start + box, mask=inside, other=SUPPRESSED, volatile=True)
        new, open_boxes = decided(degree, better, state, start, box, inside, own, PATIENCE, DEGREE)
        left += open_boxes
        one = ((own == OPEN) & (new == KEPT)).to(tl.int32)
        found = tl.sum(one, 0)
        if found > 0:
            score = tl.load(scores + start + box, mask=one > 0, other=0.0)
            place = start + tl.atomic_add(kept_found, found, sem="relaxed") + tl.cumsum(one, 0) - 1
            tl.store(kept_boxes + place, box, mask=one > 0)
            tl.store(kept_scores + place, score, mask=one > 0)
    return left


@triton.jit
def decide_kernel(
    scores,
    degree,
    better,
    state,
    kept_boxes,
    kept_scores,
    numbers,
    count,
    room,
    BLOCK: tl.constexpr,
    DEGREE: tl.constexpr,
    ROUNDS: tl.constexpr,
    PASSES: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Settle all boxes of a frame that is not crowded, and list the kept ones in any order.

    Programs wait for each other's boxes, but only for ``PASSES`` times ``ROUNDS`` rounds without news,
    because other programs may not have begun. The last one to end settles what is left.
    """
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame.to(tl.int64) * count
    kept_found, done = numbers + frame * NUMBERS + KEPT_FOUND, numbers + frame * NUMBERS + DONE
    begin_next(DEPENDENT)
    left, idle = tl.where(is_crowded(numbers, frame, room), 0, count), frame * 0
    while (left > 0) & (idle < PASSES):
        before = left
        left = settle_blocks(
            scores, degree, better, state, kept_boxes, kept_scores, kept_found, start, count,
            tl.program_id(0) * BLOCK, tl.num_programs(0) * BLOCK, ROUNDS, BLOCK, DEGREE,
        )  # fmt: skip
        idle = tl.where(left < before, 0, idle + 1)
    # All threads have stored before one says so.
    tl.debug_barrier()
    mine = left * _PROGRAMS + 1
    told = tl.atomic_add(done, mine, sem="acq_rel") + mine
    if told % _PROGRAMS == tl.num_programs(0):
        open_boxes = told // _PROGRAMS
        while open_boxes > 0:
            open_boxes = settle_blocks(
                scores, degree, better, state, kept_boxes, kept_scores, kept_found, start, count,
                frame * 0, BLOCK, 1, BLOCK, DEGREE,
            )  # fmt: skip


@triton.jit
def rank_kernel(
    kept_boxes,
    kept_scores,
    numbers,
    indices,
    counts,
    count,
    most,
    room,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Write the kept boxes by rank, which is the number of better kept ones."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame.to(tl.int64) * count
    out = indices + frame.to(tl.int64) * most
    kept = tl.load(numbers + frame * NUMBERS + KEPT_FOUND)
    total = tl.minimum(kept, most)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(out + row, -1, mask=(row >= total) & (row < most))
    if tl.program_id(0) * ROWS < kept:
        inside = row < kept
        box = tl.load(kept_boxes + start + row, mask=inside, other=0)
        score = tl.load(kept_scores + start + row, mask=inside, other=0.0)
        rank = tl.zeros((ROWS,), tl.int32)
        for begin in range(0, kept, COLUMNS):
            column = begin + tl.arange(0, COLUMNS)
            present = column < kept
            other = tl.load(kept_boxes + start + column, mask=present, other=0)
            beside = tl.load(kept_scores + start + column, mask=present, other=0.0)
            before = (beside[None, :] > score[:, None]) | (
                (beside[None, :] == score[:, None]) & (other[None, :] < box[:, None])
            )
            rank += tl.sum((before & present[None, :]).to(tl.int32), 1)
        tl.store(out + rank, box, mask=inside & (rank < most))
    if tl.program_id(0) == 0:
        frames = tl.num_programs(1)
        found = tl.load(numbers + frame * NUMBERS + PAIRS_FOUND)
        # Where pairs found no room, it is chance which of them were listed.
        lost = tl.where(found > room, found - room, tl.load(numbers + frame * NUMBERS + LEFT_OUT))
        tl.store(counts + frame, total)
        tl.store(counts + frames + frame, lost)
