"""Reporting in Triton: one launch, which finds the place of each box by counting the boxes before it."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from perception.stages.report.common import LEAST_SHARE, LEAST_SIZE, RULES, ReportLayout, ReportRules
from sparse_core.kernels.launches import dependent, wait_for_launch

#: Boxes that a program writes, and boxes that it compares them with per step.
_OWN, _OTHERS = 8, 64
_PI = tl.constexpr(math.pi)
#: Pi in single precision.
_END = tl.constexpr(float(torch.tensor(math.pi, dtype=torch.float32)))


@triton.jit
def shown_score(scores, labels, table, place, inside, LEAST: tl.constexpr, RULES: tl.constexpr):
    """Scores as they are reported, -1 where there is no box."""
    score = tl.load(scores + place, mask=inside, other=0.0)
    label = tl.load(labels + place, mask=inside, other=-1)
    there = label >= 0
    row = table + label * RULES
    share = tl.minimum(tl.maximum(score.to(tl.float64), LEAST), 1 - LEAST)
    scale = tl.load(row + 1, mask=there, other=1.0)
    logit = scale * tl.log(share / (1 - share)) + tl.load(row + 2, mask=there, other=0.0)
    mapped = (1 / (1 + tl.exp(-logit))).to(tl.float32)
    shown = tl.where(tl.load(row, mask=there, other=0.0) > 0, mapped, score)
    return tl.where(there, shown, -1.0), label


@triton.jit
def wrapped(yaw):
    """Angles in (-pi, pi]; those that are stay as they are."""
    exact = yaw.to(tl.float64)
    turns = tl.ceil((exact - _PI) / (2 * _PI))
    near = tl.minimum(tl.maximum(exact - turns * (2 * _PI), -_PI), _PI).to(tl.float32)
    near = tl.where(near <= -_END, _END, near)
    return tl.where((yaw > -_END) & (yaw <= _END), yaw, near)


@triton.jit
def grown(size, offset, LEAST_SIZE: tl.constexpr):
    """Sizes with the offsets of their classes."""
    return tl.maximum(size + tl.load(offset).to(tl.float32), size * LEAST_SIZE)


@triton.jit
def report_kernel(
    boxes, scores, labels, counts, numbers, embeddings, table, words,
    most, numbered, width,
    OWN: tl.constexpr, OTHERS: tl.constexpr, WIDTH: tl.constexpr, LEAST: tl.constexpr,
    RULES: tl.constexpr, LEAST_SIZE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Write some boxes of a frame to their places; the first program hands counts and numbers through."""
    wait_for_launch(DEPENDENT)
    frame, frames = tl.program_id(1), tl.num_programs(1)
    other = tl.arange(0, OTHERS)
    if (tl.program_id(0) == 0) & (frame == 0):
        for start in range(0, frames, OTHERS):
            inside = start + other < frames
            tl.store(words + start + other, tl.load(counts + start + other, mask=inside), mask=inside)
        for start in range(0, numbered, OTHERS):
            inside = start + other < numbered
            number = tl.load(numbers + start + other, mask=inside)
            tl.store(words + frames + start + other, number, mask=inside)
    own = tl.program_id(0) * OWN + tl.arange(0, OWN)
    mine, first = own < most, frame * most
    score, label = shown_score(scores, labels, table, first + own, mine, LEAST, RULES)
    rank = tl.zeros([OWN], tl.int32)
    for start in range(0, most, OTHERS):
        beside = start + other
        theirs, _ = shown_score(scores, labels, table, first + beside, beside < most, LEAST, RULES)
        before = (theirs[None, :] > score[:, None]) | (
            (theirs[None, :] == score[:, None]) & (beside[None, :] < own[:, None])
        )
        rank += tl.sum((before & (beside < most)[None, :]).to(tl.int32), 1)
    place = first + rank
    out = words + frames + numbered
    tl.store(out + place, tl.maximum(score, 0.0).to(tl.int32, bitcast=True), mask=mine)
    out += frames * most
    tl.store(out + place, label, mask=mine)
    out += frames * most
    kind = table + tl.maximum(label, 0) * RULES
    box = boxes + (first + own) * 7
    length, height = tl.load(box + 3, mask=mine, other=1.0), tl.load(box + 5, mask=mine, other=1.0)
    yaw = tl.load(box + 6, mask=mine, other=0.0)
    cosine, sine = tl.cos(yaw), tl.sin(yaw)
    along = tl.load(box, mask=mine, other=0.0) * cosine + tl.load(box + 1, mask=mine, other=0.0) * sine
    away = tl.minimum(tl.maximum(along / (0.5 * length), -1.0), 1.0)
    shift = 0.5 * away * (grown(length, kind + 5, LEAST_SIZE) - length)
    rise = 0.5 * (grown(height, kind + 7, LEAST_SIZE) - height)
    for field in tl.static_range(7):
        value = tl.load(box + field, mask=mine, other=0.0)
        if field == 0:
            value += shift * cosine
        if field == 1:
            value += shift * sine
        if field == 2:
            value += rise
        if (field >= 3) and (field <= 5):
            value = grown(value, kind + field + 2, LEAST_SIZE)
        if (field == 3) or (field == 4):
            side = tl.load(kind + field).to(tl.float32)
            value = tl.where(side > 0, side, value)
        if field == 6:
            value = wrapped(value)
        tl.store(out + place * 7 + field, value.to(tl.int32, bitcast=True), mask=mine)
    if width > 0:
        out += frames * most * 7
        column = tl.arange(0, WIDTH)
        inside = mine[:, None] & (column < width)[None, :]
        source = embeddings + (first + own)[:, None] * width + column[None, :]
        vector = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        target = out + place[:, None] * width + column[None, :]
        tl.store(target, vector.to(tl.int32, bitcast=True), mask=inside)


def report(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    counts: Tensor,
    numbers: Tensor,
    embeddings: Tensor,
    rules: ReportRules,
) -> Tensor:
    """See :func:`perception.stages.report.fixed_report`."""
    frames, most, width = embeddings.shape
    layout = ReportLayout(frames, most, len(numbers), width)
    words = torch.empty(layout.words, dtype=torch.int32, device=boxes.device)
    given = (boxes, scores, labels, counts, numbers, embeddings, rules.table)
    report_kernel[(triton.cdiv(most, _OWN), frames)](
        *(part.contiguous() for part in given),
        words,
        most,
        len(numbers),
        width,
        OWN=_OWN,
        OTHERS=_OTHERS,
        WIDTH=max(16, triton.next_power_of_2(width)),
        LEAST=LEAST_SHARE,
        RULES=RULES,
        LEAST_SIZE=LEAST_SIZE,
        num_warps=4,
        enable_fp_fusion=False,  # round as plain torch does
        **dependent(boxes),
    )
    return words
