"""The greedy choice of a frame whose boxes meet more often than there is room for, as a Triton kernel.

It needs no lists: one program a frame takes box after box from the best down and compares it with all that
are left. Frames that fitted are left as they are, at the cost of a launch that reads two numbers.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.stages.nms.candidates_triton import (
    KEPT_FOUND,
    LEFT_OUT,
    NUMBERS,
    OPEN,
    PAIRS_FOUND,
    SUPPRESSED,
)
from perception.stages.nms.overlap_triton import iou_of
from perception.stages.nms.triton import double_of, roughly_over, usable
from sparse_core.launches import wait_for_launch


@triton.jit
def better_of(score, box, is_open, best_score, best):
    """The best open box of a block or the one before, whichever is better; ties go to the lower index."""
    lowest = tl.min(tl.where(is_open, score, float("inf")), 0)
    highest = tl.max(tl.where(is_open, score, lowest), 0)
    found = tl.min(tl.where(is_open & (score == highest), box, 2147483647), 0)
    # Blocks come in the order of their boxes, so that an equal one before has the lower index.
    takes = (found < 2147483647) & ((best == 2147483647) | (highest > best_score))
    return tl.where(takes, highest, best_score), tl.where(takes, found, best)


@triton.jit
def crowded_kernel(
    boxes,
    scores,
    labels,
    state,
    kept_boxes,
    kept_scores,
    numbers,
    count,
    most,
    room,
    score_threshold_bits,
    iou_threshold_bits,
    VOLUME: tl.constexpr,
    BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Settle all boxes of a frame again, from the best to the worst, if some pairs found no room."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(0)
    number = numbers + frame * NUMBERS
    if (tl.load(number + LEFT_OUT) == 0) & (tl.load(number + PAIRS_FOUND) <= room):
        return
    start = frame.to(tl.int64) * count
    lane = tl.arange(0, BLOCK)
    threshold = double_of(score_threshold_bits).to(scores.dtype.element_ty)
    best_score = tl.load(scores + start)
    best = frame * 0 + 2147483647
    for begin in range(0, count, BLOCK):
        box = begin + lane
        inside = box < count
        good = usable(boxes, scores, labels, scores, start + box, inside, threshold, LIMIT, 0.0)
        score = tl.load(scores + start + box, mask=inside, other=0.0)
        tl.store(state + start + box, tl.where(good, OPEN, SUPPRESSED), mask=inside)
        best_score, best = better_of(score, box, good, best_score, best)
    tl.debug_barrier()
    kept = frame * 0
    while (best < count) & (kept < most):
        tl.store(kept_boxes + start + kept, best)
        tl.store(kept_scores + start + kept, best_score)
        kept += 1
        a = boxes + (start + best + tl.zeros((BLOCK,), tl.int64)) * 7
        ax, ay = tl.load(a).to(tl.float64), tl.load(a + 1).to(tl.float64)
        az, al = tl.load(a + 2).to(tl.float64), tl.load(a + 3).to(tl.float64)
        aw, ah = tl.load(a + 4).to(tl.float64), tl.load(a + 5).to(tl.float64)
        ayaw = tl.load(a + 6).to(tl.float64)
        label = tl.load(labels + start + best)
        chosen = best
        best = frame * 0 + 2147483647
        for begin in range(0, count, BLOCK):
            box = begin + lane
            inside = box < count
            is_open = tl.load(state + start + box, mask=inside, other=SUPPRESSED) == OPEN
            is_open = is_open & (box != chosen)
            if tl.max(is_open.to(tl.int32), 0) > 0:
                b = boxes + (start + box) * 7
                bx = tl.load(b, mask=is_open, other=0.0).to(tl.float64)
                by = tl.load(b + 1, mask=is_open, other=0.0).to(tl.float64)
                bl = tl.load(b + 3, mask=is_open, other=0.0).to(tl.float64)
                bw = tl.load(b + 4, mask=is_open, other=0.0).to(tl.float64)
                reach = tl.sqrt(al * al + aw * aw) / 2 + tl.sqrt(bl * bl + bw * bw) / 2
                distance = (ax - bx) * (ax - bx) + (ay - by) * (ay - by)
                meet = is_open & (tl.load(labels + start + box, mask=is_open, other=0) == label)
                meet = meet & (distance <= reach * reach * (1.0 + 1e-6))
                if tl.max(meet.to(tl.int32), 0) > 0:
                    bz = tl.load(b + 2, mask=meet, other=0.0).to(tl.float64)
                    bh = tl.load(b + 5, mask=meet, other=0.0).to(tl.float64)
                    byaw = tl.load(b + 6, mask=meet, other=0.0).to(tl.float64)
                    over, doubtful = roughly_over(
                        ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw,
                        reach, iou_threshold_bits, VOLUME,
                    )  # fmt: skip
                    doubtful = doubtful & meet
                    if tl.max(doubtful.to(tl.int32), 0) > 0:
                        iou = iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME)
                        over = tl.where(doubtful, iou > double_of(iou_threshold_bits), over)
                    over = over & meet
                    tl.store(state + start + box, SUPPRESSED, mask=over)
                    is_open = is_open & ~over
                score = tl.load(scores + start + box, mask=is_open, other=0.0)
                best_score, best = better_of(score, box, is_open, best_score, best)
            tl.store(state + start + box, SUPPRESSED, mask=box == chosen)
        # What one thread has stored another may read.
        tl.debug_barrier()
    tl.store(number + KEPT_FOUND, kept)
