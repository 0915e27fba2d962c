"""Greedy non-maximum suppression of rotated boxes, without looking at every pair.

A box can only overlap boxes whose circumscribed circles meet its own. A spatial hash with one grid per size
class proposes those: a pedestrian is looked up among pedestrians in small cells and among trucks in large
ones, so one huge box does not make every lookup large (hierarchical spatial hashing; Mirtich, "Efficient
Algorithms for Two-Phase Collision Detection", MERL TR97-23, 1997). The exact IoU of ``perception.boxes``
decides the rest.

Hashed boxes are taken in blocks of descending score, as many as keep the number of proposed pairs within a
fixed budget. A block is resolved greedily and its survivors strike out later boxes before the next block is
formed. Memory is therefore linear in the number of boxes, also when all of them coincide. Where there are
few boxes, all circles are tested in one table instead; only the number of boxes and the device decide.
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

# Up to this many boxes, testing all circles at once is quicker than building the hash.
_BOXES_IN_ONE_TABLE = {"cpu": 256, "cuda": 2048}

# Proposed pairs looked at together; a block always holds at least one box.
_PAIRS_PER_BLOCK = 1 << 16

# Size classes differ by powers of two; boxes below the smallest class share its cells.
_SIZE_CLASSES = 12

# Cells are a little larger than the largest circle in their class, so that rounding of x / cell never puts
# overlapping boxes two cells apart; it stays below this slack while |x / cell| < 2**26.
_CELL_SLACK = 1.0 + 1e-6

# Cell indices are clamped to 26 bits. Clamping never separates neighbours: boxes beyond share border cells.
_CELL_BITS = 26


class _Options(TypedDict, total=False):
    max_output: int | None
    labels: Values | None
    metric: Metric


class _Ranked(NamedTuple):
    """Boxes that take part, best score first.

    Attributes:
        order: (M,) int64 index of each in the input.
        boxes: (M, 7) float64, as ``checked_boxes``.
        labels: (M,) int64; all zero where the caller gave none.
    """

    order: Tensor
    boxes: Tensor
    labels: Tensor


class _Proposals(NamedTuple):
    """For every box, runs of ``members`` that hold all boxes it may overlap (and some that it does not).

    Attributes:
        start: (M, R) int64 where each run begins in ``members``.
        length: (M, R) int64; zero for all runs of a box without area, which overlaps nothing.
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
    """Keep the best box of every group that overlaps.

    From the highest score down, a box is kept unless its IoU with a kept box exceeds the threshold. The
    result is that of ``rotated_nms_exact``, index for index. Boxes without area (or, in 3D, volume) overlap
    nothing and are always kept.

    Args:
        boxes: (M, 7), LiDAR frame, metres and radians.
        scores: (M,) real numbers; equal scores rank by lower index first.
        iou_threshold: suppress above this IoU, in [0, 1].
        max_output: stop after this many kept boxes, counted over all labels; None for no limit.
        labels: (M,) integers; when given, only boxes of equal label suppress each other.
        metric: ``"bev"`` compares areas seen from above, ``"3d"`` volumes.

    Returns:
        int64 indices of the kept boxes, best score first. A tensor on the device of ``boxes`` when they are
        a tensor, numpy otherwise.

    Raises:
        TypeError: boxes, scores or labels of another kind than numbers, or labels that are not integers.
        ValueError: wrong shape, devices that differ, NaN scores, a box that is not finite or has a negative
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
    """The reference for ``rotated_nms``: every kept box against every box that is left.

    Args, Returns, Raises: as ``rotated_nms``.
    """
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


def _rank(boxes: Rows, scores: Values, labels: Values | None) -> _Ranked:
    """Check the data and sort it by descending score, ties by ascending index."""
    checked = checked_boxes(boxes)
    ranking = _checked_column(scores, like=checked, name="scores")
    if bool(ranking.isnan().any()):
        raise ValueError(f"scores[{int(ranking.isnan().nonzero()[0])}] is NaN")
    order = torch.argsort(ranking, descending=True, stable=True)
    if labels is None:
        return _Ranked(order, checked[order], torch.zeros_like(order))
    classes = _checked_column(labels, like=checked, name="labels")
    if classes.is_floating_point():
        raise TypeError(f"labels must be integers, got {classes.dtype}")
    return _Ranked(order, checked[order], classes.long()[order])


def _checked_column(values: Values, *, like: Tensor, name: str) -> Tensor:
    """One number a box, as a tensor on the device of the boxes."""
    if isinstance(values, Tensor):
        column = values.detach()
        if column.device != like.device:
            raise ValueError(f"{name} must be on the device of boxes, {like.device}; got {column.device}")
    else:
        array = np.asarray(values)
        if array.size == 0 and not isinstance(values, np.ndarray):
            array = array.astype(np.int64)  # an empty list has no type of its own
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} must hold real numbers, got {array.dtype}")
        wide = np.float64 if array.dtype.kind == "f" else np.int64
        column = torch.from_numpy(np.array(array, dtype=wide)).to(like.device)
    if column.shape != (len(like),):
        raise ValueError(f"{name} must have shape ({len(like)},), one a box; got {tuple(column.shape)}")
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


def _suppress(ranked: _Ranked, *, iou_threshold: float, max_output: int | None, metric: Metric) -> IndexArray:
    """Ranks of the kept boxes, ascending."""
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


def _suppress_hashed(ranked: _Ranked, iou_threshold: float, limit: int, metric: Metric) -> list[int]:
    """Ranks of the kept boxes, ascending: ``limit`` of them or a few more, block by block."""
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
    """The next surviving ranks whose proposed pairs fit the budget; at least one while any is left."""
    block = start + np.flatnonzero(alive[start:])
    fitting = int(np.searchsorted(proposed[block].cumsum(), _PAIRS_PER_BLOCK, side="right"))
    return block[: max(1, fitting)]


def _resolve(
    block: IndexArray, first: IndexArray, second: IndexArray, alive: npt.NDArray[np.bool_]
) -> list[int]:
    """Greedy pass over one block; strikes suppressed boxes, of any later rank, out of ``alive``.

    Args:
        block: ranks, ascending.
        first, second: pairs that overlap too much, ``first`` ascending and the better rank of the two.
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
    ranked: _Ranked, first: Tensor, second: Tensor, iou_threshold: float, metric: Metric
) -> tuple[IndexArray, IndexArray]:
    """Those of the proposed pairs that have one label and an IoU above the threshold, in the same order."""
    radius = circumscribed_radius(ranked.boxes)
    offset = ranked.boxes[first, :2] - ranked.boxes[second, :2]
    meet = circles_meet(offset[:, 0], offset[:, 1], radius[first] + radius[second])
    meet &= ranked.labels[first] == ranked.labels[second]
    first, second = first[meet], second[meet]
    iou = iou_of_checked_pairs(ranked.boxes[first], ranked.boxes[second], metric=metric)
    over = torch.stack((first, second))[:, iou > iou_threshold].cpu().numpy()
    return over[0], over[1]


def _expand(proposals: _Proposals, block: Tensor) -> tuple[Tensor, Tensor]:
    """All proposed pairs of a block: its ranks, ascending and repeated, and the members of their runs."""
    length, start = proposals.length[block].flatten(), proposals.start[block].flatten()
    run = torch.repeat_interleave(length)
    step = torch.arange(len(run), device=run.device) - (length.cumsum(0) - length)[run]
    return block[run // proposals.length.shape[1]], proposals.members[start[run] + step]


def _propose(boxes: Tensor) -> _Proposals:
    """Hash the boxes into one grid per size class and find the runs of cells around every box.

    Each grid holds two tables: its own class, and everything up to its own class. A box looks into the
    second table of its own grid and into the first table of every coarser grid, so that any two boxes meet
    in exactly one grid, that of the larger, where their cells are neighbours. Cells are numbered along x, so
    the nine cells around a box are three runs.
    """
    size_class, cells_m = _size_classes(boxes)
    classes = torch.arange(len(cells_m), device=boxes.device)
    centre = boxes[:, :2] - boxes[:, :2].amin(dim=0)
    # (M, classes, 2): from 1 to 2**26 - 2, so that neighbours of border cells keep to their own bits.
    cell = (centre[:, None, :] / cells_m[:, None]).floor().clamp_max((1 << _CELL_BITS) - 3).long() + 1
    finer_or_own, own = classes >= size_class[:, None], classes == size_class[:, None]

    # Even tables hold the own class of a grid, odd tables everything up to it.
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
    """Class of each box, (M,) int64 from the largest downwards, and the cell of each class in metres.

    Only classes that occur get a grid. A cell is at least the circumscribed diameter of the class.
    """
    diameter = 2 * circumscribed_radius(boxes)
    largest = diameter.amax().clamp_min(torch.finfo(diameter.dtype).tiny)
    halvings = (largest / diameter).log2().floor().clamp(0, _SIZE_CLASSES - 1).long()
    present, size_class = (_SIZE_CLASSES - 1 - halvings).unique(return_inverse=True)
    return size_class, largest * _CELL_SLACK * 2.0 ** (present - (_SIZE_CLASSES - 1)).double()
