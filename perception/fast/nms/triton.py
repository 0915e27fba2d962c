"""Rotated NMS in Triton: exact overlaps of the pairs that matter, then the greedy choice as a fixed point.

A box is kept once every better box that it overlaps is suppressed, and suppressed once one of them is kept.
Both are final whenever they are found, so boxes settle in any order and the outcome is that of going through
them from the best to the worst. The number of rounds is the length of the longest chain of decisions, a few
for the proposals of a detector.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.boxes import MAX_FIELD, Metric
from perception.fast.nms.common import Suppressed
from perception.fast.nms.overlap import iou_of
from sparse_core.launches import begin_next, dependent, wait_for_launch

#: Boxes of a word of the table, and boxes a program compares with these.
_WORD, _TILE = 32, 8
#: Boxes up to which more warps settle them sooner.
_FEW_SETTLED = 64
_KEYS, _RANK_ROWS, _RANK_COLUMNS = 64, 32, 1024
_PAIR_ROWS, _PAIR_COLUMNS = 64, 64
_PAIRS = 128
_SETTLED_AT_ONCE = 32
#: Launches that settle boxes all over the device before one program finishes the rest.
_SETTLE_LAUNCHES = 2
#: Better boxes that overlap one box.
_DEGREE = 64
_FIELDS = 8


def few(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    iou_threshold: float,
    score_threshold: float,
    most: int,
    metric: Metric,
) -> tuple[Tensor, Tensor, Tensor]:
    """At most ``FEW_BOXES`` boxes a frame: the table of all pairs, in two launches."""
    boxes, scores, labels = boxes.contiguous(), scores.contiguous(), labels.contiguous()
    frames = len(boxes)
    indices = torch.empty((frames, most), dtype=torch.int32, device=boxes.device)
    counts = torch.empty((2, frames), dtype=torch.int32, device=boxes.device)
    given = _Given(boxes, scores, labels, scores, score_threshold)
    _choose(given, iou_threshold, most, metric, (indices, counts, indices, indices, indices), 0.0, False)
    return indices, counts[0], counts[1]


def suppress(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    iou_threshold: float,
    score_threshold: float,
    most: int,
    fit: Tensor | None,
    weight: float,
) -> Suppressed:
    """See :func:`perception.fast.nms.fixed_suppress`; two launches."""
    boxes, scores, labels = boxes.contiguous(), scores.contiguous(), labels.contiguous()
    fit = scores if fit is None else fit.contiguous()
    frames, device = len(boxes), boxes.device
    indices = torch.empty((frames, most), dtype=torch.int32, device=device)
    counts = torch.empty((2, frames), dtype=torch.int32, device=device)
    found = Suppressed(
        torch.empty((frames, most, 7), dtype=torch.float32, device=device),
        torch.empty((frames, most), dtype=torch.float32, device=device),
        torch.empty((frames, most), dtype=torch.int32, device=device),
        counts[0],
    )
    given = _Given(boxes, scores, labels, fit, score_threshold)
    out = (indices, counts, found.boxes, found.scores, found.labels)
    _choose(given, iou_threshold, most, "bev", out, weight, True)
    return found


class _Given(NamedTuple):
    """What both kernels of few boxes read."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    fit: Tensor
    score_threshold: float


def _choose(
    given: _Given,
    iou_threshold: float,
    most: int,
    metric: Metric,
    out: tuple[Tensor, ...],
    weight: float,
    take: bool,
) -> None:
    frames, count = given.boxes.shape[:2]
    size = max(_WORD, triton.next_power_of_2(count))
    words = size // _WORD
    table = torch.empty((frames, size, words), dtype=torch.int32, device=given.boxes.device)
    overlap_kernel[(words, size // _TILE, frames)](
        *given,
        table,
        count,
        _double_bits(iou_threshold),
        SIZE=size,
        WORD=_WORD,
        TILE=_TILE,
        VOLUME=metric == "3d",
        LIMIT=MAX_FIELD,
        WEIGHT=weight,
        num_warps=4,
        enable_fp_fusion=False,  # the roundings of the exact overlap
        **dependent(given.boxes),
    )
    choose_kernel[(frames,)](
        *given,
        table,
        *out,
        count,
        most,
        SIZE=size,
        OUT=triton.next_power_of_2(most),
        LIMIT=MAX_FIELD,
        WEIGHT=weight,
        TAKE=take,
        WORDS=words,
        num_warps=4 if size > _FEW_SETTLED else 8,
        **dependent(given.boxes),
    )


def many(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    iou_threshold: float,
    score_threshold: float,
    most: int,
    metric: Metric,
    pairs_a_box: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Any number of boxes: ranks, pairs whose circles meet, their exact overlap, lists a box, choice."""
    boxes, scores, labels = boxes.contiguous(), scores.contiguous(), labels.contiguous()
    frames, count = boxes.shape[:2]
    device = boxes.device
    room = pairs_a_box * count
    fields = torch.empty((frames, _FIELDS, count), dtype=torch.float64, device=device)
    sorted_labels = torch.empty((frames, count), dtype=torch.int32, device=device)
    order = torch.empty_like(sorted_labels)
    degree, state = torch.empty_like(sorted_labels), torch.empty_like(sorted_labels)
    better = torch.empty((frames, _DEGREE, count), dtype=torch.int32, device=device)
    pairs = torch.empty((frames, room), dtype=torch.int32, device=device)
    #: Boxes that take part, pairs listed, boxes with more than ``_DEGREE`` better ones.
    numbers = torch.empty((3, frames), dtype=torch.int32, device=device)
    keys = torch.empty((frames, count), dtype=torch.float64, device=device)
    key_kernel[(triton.cdiv(frames * count, _KEYS),)](
        boxes,
        scores,
        labels,
        keys,
        frames * count,
        score_threshold,
        BLOCK=_KEYS,
        LIMIT=MAX_FIELD,
        num_warps=2,
        **dependent(boxes),
    )
    rank_kernel[(triton.cdiv(count, _RANK_ROWS), frames)](
        boxes,
        keys,
        labels,
        fields,
        sorted_labels,
        order,
        degree,
        state,
        numbers,
        count,
        ROWS=_RANK_ROWS,
        COLUMNS=_RANK_COLUMNS,
        num_warps=8,
        **dependent(boxes),
    )
    pair_kernel[(triton.cdiv(count, _PAIR_ROWS), triton.cdiv(count, _PAIR_COLUMNS), frames)](
        fields,
        sorted_labels,
        numbers,
        pairs,
        count,
        room,
        ROWS=_PAIR_ROWS,
        COLUMNS=_PAIR_COLUMNS,
        num_warps=4,
        **dependent(fields),
    )
    exact_kernel[(triton.cdiv(room, _PAIRS), frames)](
        fields,
        numbers,
        pairs,
        degree,
        better,
        count,
        room,
        _double_bits(iou_threshold),
        VOLUME=metric == "3d",
        PAIRS=_PAIRS,
        DEGREE=_DEGREE,
        num_warps=4,
        enable_fp_fusion=False,
        **dependent(fields),
    )
    for _ in range(_SETTLE_LAUNCHES):
        settle_kernel[(triton.cdiv(count, _SETTLED_AT_ONCE), frames)](
            degree,
            better,
            state,
            numbers,
            count,
            BLOCK=_SETTLED_AT_ONCE,
            DEGREE=_DEGREE,
            num_warps=4,
            **dependent(degree),
        )
    indices = torch.empty((frames, most), dtype=torch.int32, device=device)
    counts = torch.empty((2, frames), dtype=torch.int32, device=device)
    finish_kernel[(frames,)](
        degree,
        better,
        state,
        order,
        numbers,
        indices,
        counts,
        count,
        most,
        room,
        BLOCK=min(1024, triton.next_power_of_2(count)),
        FEW=_SETTLED_AT_ONCE,
        DEGREE=_DEGREE,
        OUT=min(1024, triton.next_power_of_2(most)),
        num_warps=8,
        **dependent(degree),
    )
    return indices, counts[0], counts[1]


def _double_bits(value: float) -> int:
    """Triton takes floats in single precision; the bits of a double pass as a whole number."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


@triton.jit
def double_of(bits):
    """Inverse of ``_double_bits``."""
    return tl.cast(bits, tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def score_of(scores, fit, place, inside, WEIGHT: tl.constexpr):
    """Scores, joined with how well the box fits unless the weight is 0."""
    score = tl.load(scores + place, mask=inside, other=0.0)
    if WEIGHT == 0.0:
        return score
    logit = tl.load(fit + place, mask=inside, other=0.0)
    fitting = 1.0 / (1.0 + tl.exp(-logit))
    if WEIGHT == 0.5:
        return tl.sqrt_rn(score) * tl.sqrt_rn(fitting)
    return tl.exp2((1.0 - WEIGHT) * tl.log2(score)) * tl.exp2(WEIGHT * tl.log2(fitting))


@triton.jit
def usable(boxes, scores, labels, fit, place, inside, threshold, LIMIT: tl.constexpr, WEIGHT: tl.constexpr):
    """Which boxes take part; ``place`` counts boxes from the first frame on."""
    score = score_of(scores, fit, place, inside, WEIGHT)
    good = inside & (tl.load(labels + place, mask=inside, other=-1) >= 0) & (score >= threshold)
    for field in tl.static_range(7):
        value = tl.load(boxes + place * 7 + field, mask=inside, other=0.0).to(tl.float64)
        # A comparison with NaN is false.
        good = good & (tl.abs(value) <= LIMIT)
        if (field >= 3) and (field < 6):
            good = good & (value >= 0)
    return good


@triton.jit
def roughly_over(
    ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, reach, threshold_bits, VOLUME: tl.constexpr
):  # fmt: skip
    """Whether the overlap is too large by single precision, and where that may not be so.

    Single precision errs by some 1e-7 of the boxes' extent; the margin is a hundred times that.
    """
    wide = tl.abs(ayaw) + tl.abs(byaw) > 100.0
    zero = (bx - bx).to(tl.float32)
    iou = iou_of(
        (ax - bx).to(tl.float32), (ay - by).to(tl.float32), (az - bz).to(tl.float32),
        al.to(tl.float32), aw.to(tl.float32), ah.to(tl.float32), ayaw.to(tl.float32),
        zero, zero, zero,
        bl.to(tl.float32), bw.to(tl.float32), bh.to(tl.float32), byaw.to(tl.float32),
        VOLUME,
    )  # fmt: skip
    extent, size = reach.to(tl.float32), tl.maximum(al * aw, bl * bw).to(tl.float32)
    margin = 1e-4 + 2e-5 * extent * extent / tl.maximum(size, 1e-30)
    above = iou - double_of(threshold_bits).to(tl.float32)
    return above > 0, wide | ~(tl.abs(above) > margin)


@triton.jit
def overlap_kernel(
    boxes,
    scores,
    labels,
    fit,
    score_threshold,
    table,
    count,
    threshold_bits,
    SIZE: tl.constexpr,
    WORD: tl.constexpr,
    TILE: tl.constexpr,
    VOLUME: tl.constexpr,
    LIMIT: tl.constexpr,
    WEIGHT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Words of the table: which of 32 boxes suppress each of TILE others if they are kept.

    They must be better, of the same label, and overlap too much.
    """
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(2)
    row = tl.program_id(0) * WORD + tl.arange(0, WORD)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    start = frame * count
    a, b = start + row, start + column
    good_a = usable(boxes, scores, labels, fit, a, row < count, score_threshold, LIMIT, WEIGHT)
    good_b = usable(boxes, scores, labels, fit, b, column < count, score_threshold, LIMIT, WEIGHT)
    label_a = tl.load(labels + a, mask=good_a, other=-1)
    label_b = tl.load(labels + b, mask=good_b, other=-2)
    possible = (label_a[:, None] == label_b[None, :]) & good_a[:, None] & good_b[None, :]
    ax = tl.load(boxes + a * 7, mask=good_a, other=0.0).to(tl.float64)[:, None]
    ay = tl.load(boxes + a * 7 + 1, mask=good_a, other=0.0).to(tl.float64)[:, None]
    al = tl.load(boxes + a * 7 + 3, mask=good_a, other=0.0).to(tl.float64)[:, None]
    aw = tl.load(boxes + a * 7 + 4, mask=good_a, other=0.0).to(tl.float64)[:, None]
    bx = tl.load(boxes + b * 7, mask=good_b, other=0.0).to(tl.float64)[None, :]
    by = tl.load(boxes + b * 7 + 1, mask=good_b, other=0.0).to(tl.float64)[None, :]
    bl = tl.load(boxes + b * 7 + 3, mask=good_b, other=0.0).to(tl.float64)[None, :]
    bw = tl.load(boxes + b * 7 + 4, mask=good_b, other=0.0).to(tl.float64)[None, :]
    reach = tl.sqrt(al * al + aw * aw) / 2 + tl.sqrt(bl * bl + bw * bw) / 2
    distance = (ax - bx) * (ax - bx) + (ay - by) * (ay - by)
    possible = possible & (distance <= reach * reach * (1.0 + 1e-6))
    # The better box is a, as in exact suppression.
    score_a = score_of(scores, fit, a, good_a, WEIGHT)[:, None]
    score_b = score_of(scores, fit, b, good_b, WEIGHT)[None, :]
    possible = possible & ((score_a > score_b) | ((score_a == score_b) & (row[:, None] < column[None, :])))
    over = tl.zeros((WORD, TILE), tl.int32)
    if tl.sum(tl.sum(possible.to(tl.int32), 1), 0) > 0:
        az = tl.load(boxes + a * 7 + 2, mask=good_a, other=0.0).to(tl.float64)[:, None]
        ah = tl.load(boxes + a * 7 + 5, mask=good_a, other=0.0).to(tl.float64)[:, None]
        ayaw = tl.load(boxes + a * 7 + 6, mask=good_a, other=0.0).to(tl.float64)[:, None]
        bz = tl.load(boxes + b * 7 + 2, mask=good_b, other=0.0).to(tl.float64)[None, :]
        bh = tl.load(boxes + b * 7 + 5, mask=good_b, other=0.0).to(tl.float64)[None, :]
        byaw = tl.load(boxes + b * 7 + 6, mask=good_b, other=0.0).to(tl.float64)[None, :]
        over, doubtful = roughly_over(
            ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, reach, threshold_bits, VOLUME
        )
        doubtful = doubtful & possible
        if tl.sum(tl.sum(doubtful.to(tl.int32), 1), 0) > 0:
            iou = iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME)
            over = tl.where(doubtful, iou > double_of(threshold_bits), over)
        over = (over & possible).to(tl.int32)
    bit = tl.arange(0, WORD)[:, None]
    word = tl.sum(over << bit, 0)
    begin_next(DEPENDENT)
    tl.store(table + (frame * SIZE + column) * (SIZE // WORD) + tl.program_id(0), word)


@triton.jit
def packed(flags, WORDS: tl.constexpr):
    """Flags, 0 or 1, as words of 32 bits."""
    bits = tl.reshape(flags, (WORDS, 32)) << tl.arange(0, 32)[None, :]
    return tl.sum(bits, 1)


@triton.jit
def choose_kernel(
    boxes,
    scores,
    labels,
    fit,
    score_threshold,
    table,
    indices,
    counts,
    out_boxes,
    out_scores,
    out_labels,
    count,
    most,
    SIZE: tl.constexpr,
    WORDS: tl.constexpr,
    OUT: tl.constexpr,
    LIMIT: tl.constexpr,
    WEIGHT: tl.constexpr,
    TAKE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Settle all boxes of a frame from the table of who suppresses whom, and write the kept ones by rank."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(0)
    box = tl.arange(0, SIZE)
    inside = box < count
    place = frame * count + box
    good = usable(boxes, scores, labels, fit, place, inside, score_threshold, LIMIT, WEIGHT)
    score = score_of(scores, fit, place, inside, WEIGHT)
    word = tl.arange(0, WORDS)
    better = tl.load(table + (frame * SIZE + box[:, None]) * WORDS + word[None, :])
    open_boxes = good.to(tl.int32)
    kept = tl.zeros((SIZE,), tl.int32)
    while tl.sum(open_boxes, 0) > 0:
        struck = tl.max(((better & packed(kept, WORDS)[None, :]) != 0).to(tl.int32), 1)
        waits = tl.max(((better & packed(open_boxes, WORDS)[None, :]) != 0).to(tl.int32), 1)
        kept = tl.where((open_boxes > 0) & (struck == 0) & (waits == 0), 1, kept)
        open_boxes = tl.where((open_boxes > 0) & (struck == 0) & (waits > 0), 1, 0)
    # In parts, because what is written out for all pairs takes longer to fetch than to run.
    rank = tl.zeros((SIZE,), tl.int32)
    flags = packed(kept, WORDS)
    for part in range(WORDS):
        other = part * 32 + tl.arange(0, 32)
        beside = score_of(scores, fit, frame * count + other, other < count, WEIGHT)
        chosen = (tl.sum(tl.where(word == part, flags, 0), 0) >> tl.arange(0, 32)) & 1
        before = (beside[:, None] > score[None, :]) | (
            (beside[:, None] == score[None, :]) & (other[:, None] < box[None, :])
        )
        rank += tl.sum((before & (chosen[:, None] > 0)).to(tl.int32), 0)
    total = tl.minimum(tl.sum(kept, 0), most)
    begin_next(DEPENDENT)
    tl.store(counts + frame, total)
    tl.store(counts + tl.num_programs(0) + frame, 0)
    out = tl.arange(0, OUT)
    behind = (out < most) & (out >= total)
    leaving = (kept > 0) & (rank < most)
    tl.store(indices + frame * most + out, -1, mask=behind)
    tl.store(indices + frame * most + rank, box, mask=leaving)
    if TAKE:
        place_out = frame * most + rank
        for field in tl.static_range(7):
            value = tl.load(boxes + place * 7 + field, mask=leaving, other=0.0)
            tl.store(out_boxes + place_out * 7 + field, value, mask=leaving)
        tl.store(out_scores + place_out, score, mask=leaving)
        tl.store(out_labels + place_out, tl.load(labels + place, mask=leaving, other=-1), mask=leaving)
        place_out = frame * most + out
        for field in tl.static_range(7):
            tl.store(out_boxes + place_out * 7 + field, 0.0, mask=behind)
        tl.store(out_scores + place_out, 0.0, mask=behind)
        tl.store(out_labels + place_out, -1, mask=behind)


@triton.jit
def key_kernel(
    boxes,
    scores,
    labels,
    keys,
    total,
    threshold,
    BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Scores in double precision; -inf for boxes that take no part."""
    wait_for_launch(DEPENDENT)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    good = usable(boxes, scores, labels, scores, place, place < total, threshold, LIMIT, 0.0)
    score = tl.load(scores + place, mask=good, other=0.0).to(tl.float64)
    tl.store(keys + place, tl.where(good, score, -float("inf")), mask=place < total)


@triton.jit
def rank_kernel(
    boxes,
    keys,
    labels,
    fields,
    sorted_labels,
    order,
    degree,
    state,
    numbers,
    count,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Ranks of some boxes by counting the better ones; their fields at these ranks, lists emptied."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    start = frame * count
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    absent = -float("inf")
    score = tl.load(keys + start + row, mask=row < count, other=absent)
    good = score > absent
    rank = tl.zeros((ROWS,), tl.int32)
    total = tl.zeros((COLUMNS,), tl.int32)
    for begin in range(0, count, COLUMNS):
        column = begin + tl.arange(0, COLUMNS)
        other = tl.load(keys + start + column, mask=column < count, other=absent)
        better = (other[None, :] > score[:, None]) | (
            (other[None, :] == score[:, None]) & (column[None, :] < row[:, None])
        )
        rank += tl.sum(better.to(tl.int32), 1)
        total += (other > absent).to(tl.int32)
    frames = tl.num_programs(1)
    if tl.program_id(0) == 0:
        tl.store(numbers + frame, tl.sum(total, 0))
        tl.store(numbers + frames + frame, 0)
        tl.store(numbers + 2 * frames + frame, 0)
    place = start + row
    tl.store(degree + place, 0, mask=row < count)
    tl.store(state + place, 0, mask=row < count)
    tl.store(order + start + rank, row, mask=good)
    tl.store(
        sorted_labels + start + rank, tl.load(labels + place, mask=good, other=0).to(tl.int32), mask=good
    )
    wide = frame.to(tl.int64) * 8 * count
    for field in tl.static_range(7):
        value = tl.load(boxes + place * 7 + field, mask=good, other=0.0).to(tl.float64)
        tl.store(fields + wide + field * count + rank, value, mask=good)
    length = tl.load(boxes + place * 7 + 3, mask=good, other=0.0).to(tl.float64)
    width = tl.load(boxes + place * 7 + 4, mask=good, other=0.0).to(tl.float64)
    radius = tl.sqrt(length * length + width * width) / 2
    # What has no area overlaps nothing.
    radius = tl.where((length > 0) & (width > 0), radius, -float("inf"))
    tl.store(fields + wide + 7 * count + rank, radius, mask=good)


@triton.jit
def pair_kernel(
    fields,
    labels,
    numbers,
    pairs,
    count,
    room,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """List the pairs of a tile whose circles meet, the better rank first; their order may vary."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(2)
    taking = tl.load(numbers + frame)
    first, second = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    if (first < second + COLUMNS) & (first < taking) & (second < taking):
        a, b = first + tl.arange(0, ROWS), second + tl.arange(0, COLUMNS)
        good_a, good_b = a < taking, b < taking
        start = fields + frame.to(tl.int64) * 8 * count
        # Relative to one of the boxes, and single precision from there on; the slack covers what it rounds.
        origin_x, origin_y = tl.load(start + first), tl.load(start + count + first)
        ax = (tl.load(start + a, mask=good_a, other=0.0) - origin_x).to(tl.float32)
        ay = (tl.load(start + count + a, mask=good_a, other=0.0) - origin_y).to(tl.float32)
        bx = (tl.load(start + b, mask=good_b, other=0.0) - origin_x).to(tl.float32)
        by = (tl.load(start + count + b, mask=good_b, other=0.0) - origin_y).to(tl.float32)
        dx, dy = ax[:, None] - bx[None, :], ay[:, None] - by[None, :]
        # Boxes without area have -inf here; a box behind the last has, too.
        none = -float("inf")
        reach_a = tl.load(start + 7 * count + a, mask=good_a, other=none).to(tl.float32) * (1.0 + 1e-5)
        reach_b = tl.load(start + 7 * count + b, mask=good_b, other=none).to(tl.float32) * (1.0 + 1e-5)
        reach_a += 3e-7 * (tl.abs(ax) + tl.abs(ay))
        reach_b += 3e-7 * (tl.abs(bx) + tl.abs(by))
        reach = reach_a[:, None] + reach_b[None, :]
        label_a = tl.load(labels + frame * count + a, mask=good_a, other=-1)
        label_b = tl.load(labels + frame * count + b, mask=good_b, other=-2)
        meet = (tl.abs(dx) <= reach) & (tl.abs(dy) <= reach)
        meet = meet & (label_a[:, None] == label_b[None, :]) & (a[:, None] < b[None, :])
        # Squares of huge boxes overflow: then the test is that of the squares around the circles.
        meet = meet & ((dx * dx + dy * dy <= reach * reach) | (reach > 1e18))
        flat = tl.reshape(meet.to(tl.int32), (ROWS * COLUMNS,))
        found = tl.sum(flat, 0)
        if found > 0:
            base = tl.atomic_add(numbers + tl.num_programs(2) + frame, found, sem="relaxed")
            place = base + tl.cumsum(flat, 0) - 1
            pair = tl.reshape(a[:, None] * 32768 + b[None, :], (ROWS * COLUMNS,))
            tl.store(pairs + frame.to(tl.int64) * room + place, pair, mask=(flat > 0) & (place < room))


@triton.jit
def exact_kernel(
    fields,
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
    """Exact overlap of listed pairs; the better box enters the list of the other if it is too large."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    frames = tl.num_programs(1)
    listed = tl.minimum(tl.load(numbers + frames + frame), room)
    if tl.program_id(0) * PAIRS < listed:
        place = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
        inside = place < listed
        pair = tl.load(pairs + frame.to(tl.int64) * room + place, mask=inside, other=0)
        a, b = pair // 32768, pair % 32768
        start = fields + frame.to(tl.int64) * 8 * count
        ax = tl.load(start + a, mask=inside, other=0.0)
        ay = tl.load(start + count + a, mask=inside, other=0.0)
        az = tl.load(start + 2 * count + a, mask=inside, other=0.0)
        al = tl.load(start + 3 * count + a, mask=inside, other=0.0)
        aw = tl.load(start + 4 * count + a, mask=inside, other=0.0)
        ah = tl.load(start + 5 * count + a, mask=inside, other=0.0)
        ayaw = tl.load(start + 6 * count + a, mask=inside, other=0.0)
        bx = tl.load(start + b, mask=inside, other=0.0)
        by = tl.load(start + count + b, mask=inside, other=0.0)
        bz = tl.load(start + 2 * count + b, mask=inside, other=0.0)
        bl = tl.load(start + 3 * count + b, mask=inside, other=0.0)
        bw = tl.load(start + 4 * count + b, mask=inside, other=0.0)
        bh = tl.load(start + 5 * count + b, mask=inside, other=0.0)
        byaw = tl.load(start + 6 * count + b, mask=inside, other=0.0)
        reach = tl.load(start + 7 * count + a, mask=inside, other=0.0)
        reach += tl.load(start + 7 * count + b, mask=inside, other=0.0)
        over, doubtful = roughly_over(
            ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, reach, threshold_bits, VOLUME
        )
        doubtful = doubtful & inside
        if tl.sum(doubtful.to(tl.int32), 0) > 0:
            iou = iou_of(ax, ay, az, al, aw, ah, ayaw, bx, by, bz, bl, bw, bh, byaw, VOLUME)
            over = tl.where(doubtful, iou > double_of(threshold_bits), over)
        over = over & inside
        slot = tl.atomic_add(degree + frame * count + b, 1, mask=over, sem="relaxed")
        room_left = over & (slot < DEGREE)
        tl.store(better + (frame.to(tl.int64) * DEGREE + slot) * count + b, a, mask=room_left)
        lost = tl.sum((over & (slot >= DEGREE)).to(tl.int32), 0)
        if lost > 0:
            tl.atomic_add(numbers + 2 * frames + frame, lost, sem="relaxed")


@triton.jit
def settled(degree, better, state, frame, box, taking, count, DEGREE: tl.constexpr):
    """New states of some boxes: 0 open, 1 kept, 2 suppressed."""
    inside = box < taking
    own = tl.load(state + frame * count + box, mask=inside, other=2, volatile=True)
    length = tl.load(degree + frame * count + box, mask=inside & (own == 0), other=0)
    slot = tl.arange(0, DEGREE)[None, :]
    listed = slot < length[:, None]
    place = (frame.to(tl.int64) * DEGREE + slot) * count + box[:, None]
    other = tl.load(better + place, mask=listed, other=0)
    theirs = tl.load(state + frame * count + other, mask=listed, other=2, volatile=True)
    struck = tl.max((theirs == 1).to(tl.int32), 1)
    waits = tl.max((theirs == 0).to(tl.int32), 1)
    decided = tl.where(struck > 0, 2, tl.where(waits > 0, 0, 1))
    return tl.where(own == 0, decided, own)


@triton.jit
def settle_kernel(
    degree,
    better,
    state,
    numbers,
    count,
    BLOCK: tl.constexpr,
    DEGREE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A few rounds over some boxes; what other programs decide meanwhile may or may not be seen."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(1)
    taking = tl.load(numbers + frame)
    if tl.program_id(0) * BLOCK < taking:
        box = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        for _ in range(3):
            new = settled(degree, better, state, frame, box, taking, count, DEGREE)
            tl.store(state + frame * count + box, new, mask=box < taking)
            tl.debug_barrier()


@triton.jit
def finish_kernel(
    degree,
    better,
    state,
    order,
    numbers,
    indices,
    counts,
    count,
    most,
    room,
    BLOCK: tl.constexpr,
    FEW: tl.constexpr,
    DEGREE: tl.constexpr,
    OUT: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Settle what is left of a frame and write the kept boxes by rank."""
    wait_for_launch(DEPENDENT)
    frame = tl.program_id(0)
    frames = tl.num_programs(0)
    taking = tl.load(numbers + frame)
    left = taking * 0
    for begin in range(0, taking, BLOCK):
        box = begin + tl.arange(0, BLOCK)
        left += tl.sum(
            (tl.load(state + frame * count + box, mask=box < taking, other=2) == 0).to(tl.int32), 0
        )
    # Seldom: chains longer than the rounds before.
    while left > 0:
        left = taking * 0
        for begin in range(0, taking, FEW):
            box = begin + tl.arange(0, FEW)
            new = settled(degree, better, state, frame, box, taking, count, DEGREE)
            tl.store(state + frame * count + box, new, mask=box < taking)
            left += tl.sum((new == 0).to(tl.int32), 0)
            tl.debug_barrier()
    kept = taking * 0
    for begin in range(0, taking, BLOCK):
        box = begin + tl.arange(0, BLOCK)
        one = (tl.load(state + frame * count + box, mask=box < taking, other=2) == 1).to(tl.int32)
        place = kept + tl.cumsum(one, 0) - 1
        row = tl.load(order + frame * count + box, mask=one > 0, other=0)
        tl.store(indices + frame.to(tl.int64) * most + place, row, mask=(one > 0) & (place < most))
        kept += tl.sum(one, 0)
    total = tl.minimum(kept, most)
    for begin in range(0, most, OUT):
        out = begin + tl.arange(0, OUT)
        tl.store(indices + frame.to(tl.int64) * most + out, -1, mask=(out < most) & (out >= total))
    tl.store(counts + frame, total)
    listed = tl.load(numbers + frames + frame)
    lost = tl.load(numbers + 2 * frames + frame) + tl.maximum(listed - room, 0)
    tl.store(counts + frames + frame, lost)
