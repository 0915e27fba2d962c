"""Rotated NMS of many boxes in Triton: eight launches, of which the hash takes one.

Records of the boxes, the hash, pairs whose circles meet, their exact overlap, the greedy choice, a table of
all pairs and the choice by it where lists were too short, ranks among the kept boxes. Lists are made in any
order; what is decided from them does not depend on it.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from perception.boxes import MAX_FIELD, Metric
from perception.stages.nms.candidates_triton import (
    LABELS,
    NUMBERS,
    insert_kernel,
    pair_kernel,
    prepare_kernel,
)
from perception.stages.nms.crowded_triton import crowd_choice_kernel, crowd_table_kernel
from perception.stages.nms.greedy_triton import decide_kernel, overlap_pairs_kernel, rank_kernel
from perception.stages.nms.triton import double_bits
from sparse_core.kernels.launches import dependent

#: Fewer boxes are all compared, without a hash.
_HASHED_FROM = 512
#: Boxes of a bucket, and boxes for every bucket: what finds no place is compared with every box.
_SLOTS, _BOXES_A_BUCKET = 128, 2
_PREPARED, _INSERTED = 32, 64
#: Boxes of a program that lists pairs, members of a bucket and boxes put aside that it looks at together.
_LOOKING, _SPAN, _ASIDE = 1, 32, 128
_LOOKING_WARPS = 1
#: Pairs whose overlap a program finds at once, and programs for all frames.
_PAIRS, _PAIRS_WARPS, _PAIRS_PROGRAMS = 32, 1, 1056
#: Better boxes that overlap one box.
_DEGREE = 64
#: Boxes that a program settles at once, and programs for all frames, which should all run at once.
_DECIDED, _DECIDED_WARPS, _DECIDED_PROGRAMS = 16, 4, 264
#: Rounds and passes without news before a program leaves its boxes to the last one.
_ROUNDS, _PASSES = 8, 4
_RANK_ROWS, _RANK_COLUMNS, _RANK_WARPS = 8, 1024, 4
#: Bits of a word of a crowded frame's table, boxes that a program compares with these, and programs.
_WORD, _TILE, _TABLE_WARPS, _TABLE_PROGRAMS = 32, 8, 4, 1056
_ORDER_ROWS, _ORDER_COLUMNS = 8, 512
#: Boxes that the program of a crowded frame settles at once, and words of the table that it reads at once.
_CROWDED, _CROWDED_WORDS, _CROWDED_WARPS = 64, 64, 8


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
    """Any number of boxes up to ``MAX_BOXES``; see :func:`perception.stages.nms.fixed_nms`.

    Returns:
        ``NmsIndices.indices``, ``NmsIndices.counts`` and ``NmsIndices.overflow``.
    """
    boxes, scores, labels = boxes.contiguous(), scores.contiguous(), labels.contiguous()
    room = pairs_a_box * boxes.shape[1]
    pairs, numbers, degree, state = _pairs(boxes, scores, labels, score_threshold, room)
    frames, count = scores.shape
    better = torch.empty((frames, count, _DEGREE), dtype=torch.int32, device=boxes.device)
    blocks = min(triton.cdiv(room, _PAIRS), triton.cdiv(_PAIRS_PROGRAMS, frames))
    overlap_pairs_kernel[(blocks, frames)](
        boxes,
        scores,
        labels,
        numbers,
        pairs,
        degree,
        better,
        count,
        room,
        double_bits(iou_threshold),
        VOLUME=metric == "3d",
        PAIRS=_PAIRS,
        DEGREE=_DEGREE,
        num_warps=_PAIRS_WARPS,
        enable_fp_fusion=False,  # the roundings of the exact overlap
        **dependent(boxes),
    )
    kept = _decide(scores, degree, better, state, numbers, room)
    _decide_crowded(boxes, scores, labels, state, kept, numbers, iou_threshold, most, metric, room)
    return _ranked(*kept, numbers, most, room)


def _pairs(
    boxes: Tensor, scores: Tensor, labels: Tensor, score_threshold: float, room: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pairs whose circles meet, numbers of the frames, and an empty list and a state for every box."""
    frames, count = scores.shape
    device = boxes.device
    hashed = count >= _HASHED_FROM
    buckets = max(4, triton.next_power_of_2(count) // _BOXES_A_BUCKET) if hashed else 0

    def empty(*size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty((frames, *size), dtype=dtype, device=device)

    records, numbers = empty(count, 2, dtype=torch.int64), empty(NUMBERS.value)
    degree, state, pairs = empty(count), empty(count), empty(room)
    held, members, levels = empty(buckets), empty(buckets, _SLOTS), empty(LABELS.value)
    aside = empty(count) if hashed else levels
    prepare_kernel[(triton.cdiv(max(count, buckets), _PREPARED), frames)](
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
        double_bits(score_threshold),
        BLOCK=_PREPARED,
        BUCKETS=buckets,
        LIMIT=MAX_FIELD,
        num_warps=1,
        **dependent(boxes),
    )
    if hashed:
        insert_kernel[(triton.cdiv(count, _INSERTED), frames)](
            boxes,
            records,
            held,
            members,
            levels,
            aside,
            numbers,
            count,
            BLOCK=_INSERTED,
            BUCKETS=buckets,
            SLOTS=_SLOTS,
            num_warps=1,
            **dependent(boxes),
        )
    pair_kernel[(triton.cdiv(count, _LOOKING), frames)](
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
        BOXES=_LOOKING,
        SPAN=_SPAN,
        ASIDE=_ASIDE,
        BUCKETS=buckets,
        SLOTS=_SLOTS,
        num_warps=_LOOKING_WARPS,
        **dependent(boxes),
    )
    return pairs, numbers, degree, state


def _decide(
    scores: Tensor, degree: Tensor, better: Tensor, state: Tensor, numbers: Tensor, room: int
) -> tuple[Tensor, Tensor]:
    """The greedy choice among boxes with lists of better ones that they overlap: kept boxes and scores."""
    frames, count = scores.shape
    kept_boxes, kept_scores = torch.empty_like(degree), torch.empty_like(scores)
    blocks = triton.cdiv(count, _DECIDED)
    programs = min(blocks, triton.cdiv(_DECIDED_PROGRAMS, frames))
    decide_kernel[(programs, frames)](
        scores,
        degree,
        better,
        state,
        kept_boxes,
        kept_scores,
        numbers,
        count,
        room,
        BLOCK=_DECIDED,
        DEGREE=_DEGREE,
        ROUNDS=_ROUNDS if programs == blocks else 1,
        PASSES=_PASSES,
        num_warps=_DECIDED_WARPS,
        **dependent(scores),
    )
    return kept_boxes, kept_scores


def _decide_crowded(
    boxes: Tensor,
    scores: Tensor,
    labels: Tensor,
    state: Tensor,
    kept: tuple[Tensor, Tensor],
    numbers: Tensor,
    iou_threshold: float,
    most: int,
    metric: Metric,
    room: int,
) -> None:
    """The greedy choice of frames whose lists were too short, by a table of all pairs."""
    frames, count = scores.shape
    words = triton.cdiv(count, _WORD)
    table = torch.empty((frames, count, words), dtype=torch.int32, device=boxes.device)
    order = torch.empty((frames, count), dtype=torch.int32, device=boxes.device)
    kept_bits = torch.empty((frames, words), dtype=torch.int32, device=boxes.device)
    tiles = words * words * (_WORD // _TILE)
    crowd_table_kernel[(min(tiles, triton.cdiv(_TABLE_PROGRAMS, frames)), frames)](
        boxes,
        scores,
        labels,
        state,
        numbers,
        table,
        table.view(torch.uint8),
        order,
        count,
        words,
        room,
        double_bits(iou_threshold),
        VOLUME=metric == "3d",
        WORD=_WORD,
        TILE=_TILE,
        ROWS=_ORDER_ROWS,
        COLUMNS=_ORDER_COLUMNS,
        num_warps=_TABLE_WARPS,
        enable_fp_fusion=False,  # the roundings of the exact overlap
        **dependent(boxes),
    )
    crowd_choice_kernel[(frames,)](
        scores,
        state,
        numbers,
        table,
        order,
        kept_bits,
        *kept,
        count,
        words,
        most,
        room,
        BLOCK=_CROWDED,
        CHUNK=_CROWDED_WORDS,
        num_warps=_CROWDED_WARPS,
        **dependent(boxes),
    )


def _ranked(
    kept_boxes: Tensor, kept_scores: Tensor, numbers: Tensor, most: int, room: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Kept boxes by rank, how many there are, and what found no room."""
    frames, count = kept_boxes.shape
    indices = torch.empty((frames, most), dtype=torch.int32, device=kept_boxes.device)
    counts = torch.empty((2, frames), dtype=torch.int32, device=kept_boxes.device)
    rank_kernel[(triton.cdiv(max(count, most), _RANK_ROWS), frames)](
        kept_boxes,
        kept_scores,
        numbers,
        indices,
        counts,
        count,
        most,
        room,
        ROWS=_RANK_ROWS,
        COLUMNS=_RANK_COLUMNS,
        num_warps=_RANK_WARPS,
        **dependent(kept_boxes),
    )
    return indices, counts[0], counts[1]
