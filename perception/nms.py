"""Greedy non-maximum suppression of rotated boxes, without testing every pair.

Boxes can only overlap if their circumscribed circles do. Hierarchical spatial hashing proposes such pairs
with one grid per size class, so that one huge box does not enlarge all lookups (Mirtich, "Efficient
Algorithms for Two-Phase Collision Detection", MERL TR97-23, 1997). The exact IoU decides.

Boxes are processed in blocks of descending score with a bounded number of proposed pairs. A block is resolved
greedily, and its survivors suppress later boxes before the next block. Memory is therefore linear in the
number of boxes, even if all boxes coincide. Few boxes are tested in one table of all pairs instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import Unpack

from perception.boxes import (
    ArrayRows,
    Metric,
    Rows,
    checked_boxes,
    circles_meet,
    circumscribed_radius,
    iou_of_checked_pairs,
)

Values = Tensor | npt.NDArray[Any] | list[float] | list[int]
IndexArray = npt.NDArray[np.int64]

# Number of boxes up to which one table of all circles is faster than the hash.
_BOXES_IN_ONE_TABLE = {"cpu": 256, "cuda": 2048}

# Largest number of proposed pairs per block; a block has at least one box.
_PAIRS_PER_BLOCK = 1 << 16

# Size classes differ by powers of two; boxes below the smallest class share its cells.
_SIZE_CLASSES = 12

# Cells are slightly larger than the largest circle of their class. Rounding of x / cell then never puts
# overlapping boxes two cells apart while |x / cell| < 2**26.
_CELL_SLACK = 1.0 + 1e-6

# Cell indices are clamped to 26 bits; boxes beyond share border cells, so neighbours stay neighbours.
_CELL_BITS = 26


class _Options(TypedDict, total=False):
    max_output: int | None
    labels: Values | None
    metric: Metric


class _RankedBoxes(NamedTuple):
    """Boxes, best score first.

    Attributes:
        order: (M,) int64 index of each box in the input.
        boxes: (M, 7) float64, as ``checked_boxes``.
        labels: (M,) int64; all zero without labels.
    """

    order: Tensor
    boxes: Tensor
    labels: Tensor


class _Proposals(NamedTuple):
    """Candidates of each box: runs of ``members`` that include all boxes it overlaps.

    Attributes:
        start: (M, R) int64 start of each run in ``members``.
        length: (M, R) int64; zero for boxes without area, which overlap nothing.
        members: ranks of boxes, int64, sorted by grid cell.
    """

    start: Tensor
    length: Tensor
    members: Tensor


@overload
def rotated_nms(
    boxes: Tensor, scores: Values, iou_threshold: float, **options: Unpack[_Options]
) -> Tensor: ...
@overload
def rotated_nms(
    boxes: ArrayRows, scores: Values, iou_threshold: float, **options: Unpack[_Options]
) -> IndexArray: ...
def rotated_nms(
    boxes: Rows,
    scores: Values,
    iou_threshold: float,
    *,
    max_output: int | None = None,
    labels: Values | None = None,
    metric: Metric = "bev",
) -> Tensor | IndexArray:
    """Suppress rotated boxes that overlap a better box.

    From the highest score down, a box is kept unless its IoU with a kept box exceeds the threshold. The
    result equals that of ``rotated_nms_exact``. Boxes without area (in 3D, volume) are always kept.

    Args:
        boxes: (M, 7), LiDAR frame, metres and radians.
        scores: (M,) real numbers; equal scores rank by lower index first.
        iou_threshold: suppress above this IoU, in [0, 1].
        max_output: largest number of kept boxes over all labels; None: no limit.
        labels: (M,) integers; if given, only boxes with equal labels suppress each other.
        metric: ``"bev"`` compares areas seen from above, ``"3d"`` volumes.

    Returns:
        int64 indices of the kept boxes, best score first: a tensor if ``boxes`` is one, else numpy.

    Raises:
        TypeError: boxes or scores that are not real numbers, or labels that are not integers.
        ValueError: wrong shape, different devices, NaN scores, boxes that are not finite or have a negative
            size, or an option out of range.
    """
    ranked = _rank(boxes, scores, labels)
    check_options(iou_threshold, max_output, metric)
    kept = _suppress(ranked, iou_threshold=iou_threshold, max_output=max_output, metric=metric)
    indices = ranked.order[torch.from_numpy(kept).to(ranked.order.device)]
    return indices if isinstance(boxes, Tensor) else np.asarray(indices.numpy(), dtype=np.int64)


@overload
def rotated_nms_exact(
    boxes: Tensor, scores: Values, iou_threshold: float, **options: Unpack[_Options]
) -> Tensor: ...
@overload
def rotated_nms_exact(
    boxes: ArrayRows, scores: Values, iou_threshold: float, **options: Unpack[_Options]
) -> IndexArray: ...
def rotated_nms_exact(
    boxes: Rows,
    scores: Values,
    iou_threshold: float,
    *,
    max_output: int | None = None,
    labels: Values | None = None,
    metric: Metric = "bev",
) -> Tensor | IndexArray:
    """Reference for ``rotated_nms``: test each kept box against all remaining boxes."""
    ranked = _rank(boxes, scores, labels)
    check_options(iou_threshold, max_output, metric)
    kept: list[Tensor] = []
    left = torch.arange(len(ranked.order), device=ranked.order.device)
    while len(left) and (max_output is None or len(kept) < max_output):
        best, left = left[0], left[1:]
        kept.append(best)
        iou = iou_of_checked_pairs(
            ranked.boxes[best].expand(len(left), -1), ranked.boxes[left], metric=metric
        )
        left = left[(iou <= iou_threshold) | (ranked.labels[left] != ranked.labels[best])]
    indices = ranked.order[torch.stack(kept)] if kept else ranked.order[:0]
    return indices if isinstance(boxes, Tensor) else np.asarray(indices.numpy(), dtype=np.int64)


def _rank(boxes: Rows, scores: Values, labels: Values | None) -> _RankedBoxes:
    """Check the data, and sort by descending score, ties by ascending index."""
    checked = checked_boxes(boxes)
    ranking = _checked_column(scores, like=checked, name="scores")
    if bool(ranking.isnan().any()):
        raise ValueError(f"scores[{int(ranking.isnan().nonzero()[0])}] is NaN")
    order = torch.argsort(ranking, descending=True, stable=True)
    if labels is None:
        return _RankedBoxes(order, checked[order], torch.zeros_like(order))
    classes = _checked_column(labels, like=checked, name="labels")
    if classes.is_floating_point():
        raise TypeError(f"labels must be integers, got {classes.dtype}")
    return _RankedBoxes(order, checked[order], classes.long()[order])


def _checked_column(values: Values, *, like: Tensor, name: str) -> Tensor:
    """Convert one number per box to a tensor on the device of the boxes."""
    if isinstance(values, Tensor):
        column = values.detach()
        if column.device != like.device:
            raise ValueError(f"{name} must be on the device of boxes, {like.device}; got {column.device}")
    else:
        array = np.asarray(values)
        if array.size == 0 and not isinstance(values, np.ndarray):
            array = array.astype(np.int64)  # numpy makes an empty list float64
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} must hold real numbers, got {array.dtype}")
        wide = np.float64 if array.dtype.kind == "f" else np.int64
        column = torch.from_numpy(np.array(array, dtype=wide)).to(like.device)
    if column.shape != (len(like),):
        raise ValueError(f"{name} must have shape ({len(like)},), one per box; got {tuple(column.shape)}")
    if column.is_complex() or column.dtype == torch.bool:
        raise TypeError(f"{name} must hold real numbers, got {column.dtype}")
    return column


def check_options(iou_threshold: float, max_output: int | None, metric: str) -> None:
    """Raise ``ValueError`` for an option of :func:`rotated_nms` that is out of range."""
    if not 0.0 <= iou_threshold <= 1.0:
        raise ValueError(f"iou_threshold must be in [0, 1], got {iou_threshold}")
    if max_output is not None and max_output < 0:
        raise ValueError(f"max_output must be None or at least 0, got {max_output}")
    if metric not in ("bev", "3d"):
        raise ValueError(f"metric must be 'bev' or '3d', got {metric!r}")


def _suppress(
    ranked: _RankedBoxes, *, iou_threshold: float, max_output: int | None, metric: Metric
) -> IndexArray:
    """Return the ranks of the kept boxes, ascending."""
    total = len(ranked.order)
    limit = total if max_output is None else min(max_output, total)
    if limit == 0:
        return np.zeros(0, dtype=np.int64)
    if total <= _BOXES_IN_ONE_TABLE.get(ranked.boxes.device.type, 0):
        pairs = torch.triu_indices(total, total, offset=1, device=ranked.boxes.device)
        first, second = _exceeding(ranked, pairs[0], pairs[1], iou_threshold, metric)
        kept = _resolve(np.arange(total), first, second, np.ones(total, dtype=np.bool_))
    else:
        kept = _suppress_hashed(ranked, iou_threshold, limit, metric)
    return np.array(kept[:limit], dtype=np.int64)


def _suppress_hashed(ranked: _RankedBoxes, iou_threshold: float, limit: int, metric: Metric) -> list[int]:
    """Return at least ``limit`` ranks of kept boxes if there are as many, ascending, block by block."""
    total, device = len(ranked.order), ranked.boxes.device
    proposals = _propose(ranked.boxes)
    proposed = proposals.length.sum(dim=1).cpu().numpy()
    alive = np.ones(total, dtype=np.bool_)
    kept: list[int] = []
    start = 0
    while start < total and len(kept) < limit:
        block = _next_block(alive, proposed, start)
        if len(block) == 0:
            break
        first, second = _expand(proposals, torch.from_numpy(block).to(device))
        possible = (second > first) & torch.from_numpy(alive).to(device)[second]
        over = _exceeding(ranked, first[possible], second[possible], iou_threshold, metric)
        kept += _resolve(block, *over, alive)
        start = int(block[-1]) + 1
    return kept


def _next_block(alive: npt.NDArray[np.bool_], proposed: IndexArray, start: int) -> IndexArray:
    """Return the next surviving ranks whose proposed pairs fit the limit, at least one if any is left."""
    block = start + np.flatnonzero(alive[start:])
    fitting = int(np.searchsorted(proposed[block].cumsum(), _PAIRS_PER_BLOCK, side="right"))
    return block[: max(1, fitting)]


def _resolve(
    block: IndexArray, first: IndexArray, second: IndexArray, alive: npt.NDArray[np.bool_]
) -> list[int]:
    """Resolve one block greedily; clear suppressed boxes of any later rank in ``alive``.

    Args:
        block: ranks, ascending.
        first, second: overlapping pairs; ``first`` is the better rank, ascending.
    """
    begins = np.searchsorted(first, block, side="left").tolist()
    ends = np.searchsorted(first, block, side="right").tolist()
    kept = []
    for rank, begin, end in zip(block.tolist(), begins, ends, strict=True):
        if alive[rank]:
            kept.append(rank)
            alive[second[begin:end]] = False
    return kept


def _exceeding(
    ranked: _RankedBoxes, first: Tensor, second: Tensor, iou_threshold: float, metric: Metric
) -> tuple[IndexArray, IndexArray]:
    """Return the proposed pairs with equal labels and an IoU above the threshold, in the same order."""
    radius = circumscribed_radius(ranked.boxes)
    offset = ranked.boxes[first, :2] - ranked.boxes[second, :2]
    meet = circles_meet(offset[:, 0], offset[:, 1], radius[first] + radius[second])
    meet &= ranked.labels[first] == ranked.labels[second]
    first, second = first[meet], second[meet]
    iou = iou_of_checked_pairs(ranked.boxes[first], ranked.boxes[second], metric=metric)
    over = torch.stack((first, second))[:, iou > iou_threshold].cpu().numpy()
    return over[0], over[1]


def _expand(proposals: _Proposals, block: Tensor) -> tuple[Tensor, Tensor]:
    """Return all proposed pairs of a block: its ranks, ascending and repeated, and the members."""
    length, start = proposals.length[block].flatten(), proposals.start[block].flatten()
    run = torch.repeat_interleave(length)
    step = torch.arange(len(run), device=run.device) - (length.cumsum(0) - length)[run]
    return block[run // proposals.length.shape[1]], proposals.members[start[run] + step]


def _propose(boxes: Tensor) -> _Proposals:
    """Hash the boxes into one grid per size class, and find the runs of cells around every box.

    Each grid has two tables: one for its own class, one for all classes up to it. A box searches the second
    table of its own grid and the first table of every coarser grid. Two boxes therefore meet only in the grid
    of the larger one, in neighbouring cells. Cells are numbered along x, so nine cells are three runs.
    """
    size_class, cells_m = _size_classes(boxes)
    classes = torch.arange(len(cells_m), device=boxes.device)
    centre = boxes[:, :2] - boxes[:, :2].amin(dim=0)
    # (M, classes, 2), from 1 to 2**26 - 2, so that neighbours of border cells fit their bits.
    cell = (centre[:, None, :] / cells_m[:, None]).floor().clamp_max((1 << _CELL_BITS) - 3).long() + 1
    finer_or_own, own = classes >= size_class[:, None], classes == size_class[:, None]

    # Even tables have the own class of a grid, odd tables all classes up to it.
    def key(table: Tensor, row: Tensor, column: Tensor) -> Tensor:
        return (((table << _CELL_BITS) | row) << _CELL_BITS) | column

    own_key = key(2 * classes, cell[..., 1], cell[..., 0])[own]
    any_key = key(2 * classes + 1, cell[..., 1], cell[..., 0])[finer_or_own]
    rank = torch.arange(len(boxes), device=boxes.device)[:, None].expand(-1, len(classes))
    keys, by_cell = torch.cat((own_key, any_key)).sort(stable=True)
    members = torch.cat((rank[own], rank[finer_or_own]))[by_cell]

    table = 2 * classes + own.long()
    rows = cell[..., 1, None] + torch.tensor([-1, 0, 1], device=boxes.device)
    begin = key(table[..., None], rows, cell[..., 0, None] - 1)
    start = torch.searchsorted(keys, begin)
    length = torch.searchsorted(keys, begin + 2, right=True) - start
    searching = finer_or_own & (boxes[:, 3:5] > 0).all(dim=1, keepdim=True)
    length = torch.where(searching[..., None], length, 0)
    return _Proposals(start.flatten(1), length.flatten(1), members)


def _size_classes(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the size class (M,) int64 of each box and the cell of each class in metres.

    Only classes that occur get a grid. A cell is at least the circumscribed diameter of the class.
    """
    diameter = 2 * circumscribed_radius(boxes)
    largest = diameter.amax().clamp_min(torch.finfo(diameter.dtype).tiny)
    halvings = (largest / diameter).log2().floor().clamp(0, _SIZE_CLASSES - 1).long()
    present, size_class = (_SIZE_CLASSES - 1 - halvings).unique(return_inverse=True)
    return size_class, largest * _CELL_SLACK * 2.0 ** (present - (_SIZE_CLASSES - 1)).double()
