"""Rotated NMS in Triton: exact overlaps of possible pairs, then the greedy choice as a fixed point.

A box is kept once every better box that it overlaps is suppressed, and suppressed once one of them is kept.
Both decisions are final, so boxes can be decided in any order. The result equals visiting them
from the best to the worst. The number of rounds is the length of the longest chain of decisions: a few
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
from perception.stages.nms.common import Suppressed
from perception.stages.nms.overlap_triton import iou_of
from sparse_core.kernels.launches import begin_next, dependent, wait_for_launch

#: Boxes per word of the table, and boxes that a program compares with them.
_WORD, _TILE = 32, 8
#: Above this number of boxes, more warps are faster.
_FEW_DECIDED = 64


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
    """See :func:`perception.stages.nms.fixed_suppress`; two launches."""
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
        indices,
    )
    given = _Given(boxes, scores, labels, fit, score_threshold)
    out = (indices, counts, found.boxes, found.scores, found.labels)
    _choose(given, iou_threshold, most, "bev", out, weight, True)
    return found


class _Given(NamedTuple):
    """Inputs of both kernels for few boxes."""

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
        double_bits(iou_threshold),
        SIZE=size,
        WORD=_WORD,
        TILE=_TILE,
        VOLUME=metric == "3d",
        LIMIT=MAX_FIELD,
        WEIGHT=weight,
        num_warps=4,
        enable_fp_fusion=False,  # round as the exact overlap does
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
        num_warps=4 if size > _FEW_DECIDED else 8,
        **dependent(given.boxes),
    )


def double_bits(value: float) -> int:
    """Return the bits of a double as an integer, because Triton takes floats in single precision."""
    return int(struct.unpack("q", struct.pack("d", value))[0])


@triton.jit
def double_of(bits):
    """Inverse of ``double_bits``."""
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
