"""Greedy choice for frames with more pairs of boxes than the lists can hold, as Triton kernels.

A table with one bit per ordered pair replaces the lists, as for few boxes. One program per frame visits the
boxes in the order of their scores, one block per step. Frames whose lists sufficed are left unchanged, at the
cost of two launches that read two numbers.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from perception.stages.nms.candidates_triton import (
    KEPT_FOUND,
    NUMBERS,
    OPEN,
    SUPPRESSED,
)
from perception.stages.nms.greedy_triton import better_first, is_crowded
from perception.stages.nms.overlap_triton import iou_of
from perception.stages.nms.triton import double_of, roughly_over
from sparse_core.kernels.launches import begin_next, wait_for_launch


@triton.jit
def fields_of(boxes, place, present):
    """The seven fields of boxes in double precision."""
    box = boxes + place * 7
    return (
        tl.load(box, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 1, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 2, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 3, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 4, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 5, mask=present, other=0.0).to(tl.float64),
        tl.load(box + 6, mask=present, other=0.0).to(tl.float64),
    )


@triton.jit
def better_overlaps(
    boxes, scores, labels, state, start, row, column, count, iou_threshold_bits, VOLUME: tl.constexpr
):  # fmt: skip
    """Overlaps of boxes ``row`` (R,) and ``column`` (C,) that are too large, (R, C) int32, by who is better.

    Returns:
        Flags of pairs whose better box is the row's, and of those whose better box is the column's.
    """
    row_open = tl.load(state + start + row, mask=row < count, other=SUPPRESSED) == OPEN
    column_open = tl.load(state + start + column, mask=column < count, other=SUPPRESSED) == OPEN
    row_label = tl.load(labels + start + row, mask=row_open, other=-1)
    column_label = tl.load(labels + start + column, mask=column_open, other=-2)
    rx, ry, rz, rl, rw, rh, ryaw = fields_of(boxes, start + row, row_open)
    cx, cy, cz, cl, cw, ch, cyaw = fields_of(boxes, start + column, column_open)
    reach = (tl.sqrt(rl * rl + rw * rw) / 2)[:, None] + (tl.sqrt(cl * cl + cw * cw) / 2)[None, :]
    across, along = rx[:, None] - cx[None, :], ry[:, None] - cy[None, :]
    meet = row_open[:, None] & column_open[None, :] & (row_label[:, None] == column_label[None, :])
    meet = meet & (across * across + along * along <= reach * reach * (1.0 + 1e-6))
    meet = meet & (row[:, None] != column[None, :])
    by_row = meet.to(tl.int32)
    by_column = by_row
    if tl.max(tl.max(by_row, 1), 0) > 0:
        row_score = tl.load(scores + start + row, mask=row_open, other=0.0)[:, None]
        column_score = tl.load(scores + start + column, mask=column_open, other=0.0)[None, :]
        swap = (column_score > row_score) | ((column_score == row_score) & (column[None, :] < row[:, None]))
        # The better box is a, as in exact suppression.
        ax, bx = better_first(swap, rx[:, None], cx[None, :])
        ay, by = better_first(swap, ry[:, None], cy[None, :])
        az, bz = better_first(swap, rz[:, None], cz[None, :])
        al, bl = better_first(swap, rl[:, None], cl[None, :])
        aw, bw = better_first(swap, rw[:, None], cw[None, :])
        ah, bh = better_first(swap, rh[:, None], ch[None, :])
        ayaw, byaw = better_first(swap, ryaw[:, None], cyaw[None, :])
        over, doubtful = roughly_over(
            ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, reach, iou_threshold_bits, VOLUME
        )
        doubtful = doubtful & meet
        if tl.max(tl.max(doubtful.to(tl.int32), 1), 0) > 0:
            iou = iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME)
            over = tl.where(doubtful, iou > double_of(iou_threshold_bits), over)
        over = over & meet
        by_row = (over & ~swap).to(tl.int32)
        by_column = (over & swap).to(tl.int32)
    return by_row, by_column


@triton.jit
def write_order(scores, state, order, start, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """List the boxes that take part, best score first; equal scores rank by lower index."""
    for begin in range(tl.program_id(0) * ROWS, count, tl.num_programs(0) * ROWS):
        row = begin + tl.arange(0, ROWS)
        own = tl.load(state + start + row, mask=row < count, other=SUPPRESSED) == OPEN
        score = tl.load(scores + start + row, mask=own, other=0.0)
        rank = tl.zeros((ROWS,), tl.int32)
        for other in range(0, count, COLUMNS):
            column = other + tl.arange(0, COLUMNS)
            present = tl.load(state + start + column, mask=column < count, other=SUPPRESSED) == OPEN
            beside = tl.load(scores + start + column, mask=present, other=0.0)
            before = (beside[None, :] > score[:, None]) | (
                (beside[None, :] == score[:, None]) & (column[None, :] < row[:, None])
            )
            rank += tl.sum((before & present[None, :]).to(tl.int32), 1)
        tl.store(order + start + rank, row, mask=own)


@triton.jit
def crowd_table_kernel(
    boxes,
    scores,
    labels,
    state,
    numbers,
    table,
    table_bytes,
    order,
    count,
    words,
    room,
    iou_threshold_bits,
    VOLUME: tl.constexpr,
    WORD: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Which boxes suppress each box of a crowded frame if they are kept, one bit each, and their order.

    Bit i of word w in row b of the table stands for box 32 w + i. Overlaps are found once for both orders of
    a pair: a tile of 32 and 8 boxes gives a word to each of the 8 and a byte to each of the 32.
    """
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    if is_crowded(numbers, frame, room):
        start = frame.to(tl.int64) * count
        bit, byte_bit = tl.arange(0, WORD), tl.arange(0, TILE)
        for tile in range(tl.program_id(0), words * words * (WORD // TILE), tl.num_programs(0)):
            word, strip = tile % words, tile // words
            own_word = strip // (WORD // TILE)
            if own_word >= word:
                row, column = word * WORD + bit, strip * TILE + byte_bit
                by_row, by_column = better_overlaps(
                    boxes, scores, labels, state, start, row, column, count,
                    iou_threshold_bits, VOLUME,
                )  # fmt: skip
                place = (start + column) * words + word
                tl.store(table + place, tl.sum(by_row << bit[:, None], 0), mask=column < count)
                # Words of the diagonal are whole already.
                place = (start + row) * (words * (WORD // TILE)) + strip
                packed = tl.sum(by_column << byte_bit[None, :], 1)
                tl.store(table_bytes + place, packed.to(tl.uint8), mask=(row < count) & (own_word > word))
        write_order(scores, state, order, start, count, ROWS, COLUMNS)
    begin_next(DEPENDENT)


@triton.jit
def crowd_choice_kernel(
    scores,
    state,
    numbers,
    table,
    order,
    kept_bits,
    kept_boxes,
    kept_scores,
    count,
    words,
    most,
    room,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Settle all boxes of a crowded frame, a block of ranks at a time, and list the kept ones by rank."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(0)
    if is_crowded(numbers, frame, room):
        start = frame.to(tl.int64) * count
        bits = kept_bits + frame.to(tl.int64) * words
        # Places within a frame's table are int32.
        own_table = table + start * words
        lane, member = tl.arange(0, CHUNK), tl.arange(0, BLOCK)
        for begin in range(0, words, CHUNK):
            tl.store(bits + begin + lane, 0, mask=begin + lane < words)
        taking_part = frame * 0
        for begin in range(0, count, CHUNK * 8):
            box = begin + tl.arange(0, CHUNK * 8)
            own = tl.load(state + start + box, mask=box < count, other=SUPPRESSED)
            taking_part += tl.sum((own == OPEN).to(tl.int32), 0)
        kept, rank = frame * 0, frame * 0
        while (rank < taking_part) & (kept < most):
            # What one thread has stored another may read.
            tl.debug_barrier()
            inside = rank + member < taking_part
            box = tl.load(order + start + rank + member, mask=inside, other=0)
            rows = box * words
            # Within the block: who of it suppresses whom.
            within = tl.load(
                own_table + rows[:, None] + (box >> 5)[None, :],
                mask=inside[:, None] & inside[None, :],
                other=0,
            )
            better = (within >> (box & 31)[None, :]) & 1
            struck = tl.zeros((BLOCK,), tl.int32)
            for begin in range(0, words, CHUNK):
                word = begin + lane
                there = word < words
                known = tl.load(bits + word, mask=there, other=0, volatile=True)
                theirs = tl.load(
                    own_table + rows[:, None] + word[None, :], mask=inside[:, None] & there[None, :], other=0
                )
                struck = tl.maximum(struck, tl.max(((theirs & known[None, :]) != 0).to(tl.int32), 1))
            waiting = tl.where(inside & (struck == 0), 1, 0)
            taken = tl.zeros((BLOCK,), tl.int32)
            while tl.max(waiting, 0) > 0:
                lost = tl.max(better & taken[None, :], 1)
                waits = tl.max(better & waiting[None, :], 1)
                taken = tl.where((waiting > 0) & (lost == 0) & (waits == 0), 1, taken)
                waiting = tl.where((waiting > 0) & (lost == 0) & (waits > 0), 1, 0)
            place = start + kept + tl.cumsum(taken, 0) - 1
            score = tl.load(scores + start + box, mask=taken > 0, other=0.0)
            tl.store(kept_boxes + place, box, mask=taken > 0)
            tl.store(kept_scores + place, score, mask=taken > 0)
            tl.atomic_or(bits + (box >> 5), taken << (box & 31), mask=taken > 0, sem="relaxed")
            kept += tl.sum(taken, 0)
            rank += BLOCK
        tl.store(numbers + frame * NUMBERS + KEPT_FOUND, kept)
    begin_next(DEPENDENT)
