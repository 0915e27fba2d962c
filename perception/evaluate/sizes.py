"""Size offsets by class: how much longer, wider and higher labels are than detections of them.

Cars of another market differ from those of the training data. Offsets are medians over detections that
match a label. They are fitted on one half of the frames and checked on the other, so that offsets that do not
help are visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from perception.boxes import rotated_iou_bev, rotated_iou_pairs
from perception.evaluate.box_table import Float64Array, Mask, Rows, finite_or_none
from perception.stages.report import ReportRules
from perception.stages.report.reference import with_sizes
from perception.types import Boxes3D, Detections, FloatArray

#: Least score and BEV IoU of a detection that is compared with a label, and least number of them.
_SCORE, _OVERLAP, _LEAST = 0.3, 0.3, 10
Offsets = tuple[float, float, float]


class SizeFit(NamedTuple):
    """Offsets of a class.

    Attributes:
        boxes: compared detections.
        offsets_m: metres to add to length, width and height.
        overlap: mean 3D IoU of these detections with their labels; NaN without labels.
        overlap_fitted: the same with the offsets of the other half of the frames; NaN with few boxes.
    """

    boxes: int
    offsets_m: Offsets
    overlap: float
    overlap_fitted: float

    @property
    def helps(self) -> bool:
        """True if offsets of the other half of the frames improve boxes."""
        return self.overlap_fitted > self.overlap

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {
            "boxes": self.boxes,
            "offsets_m": list(self.offsets_m),
            "IoU": finite_or_none(self.overlap),
            "IoU_fitted": finite_or_none(self.overlap_fitted),
        }


class _Matches(NamedTuple):
    """(K, 7) detections, the labels that they match, and (K,) frames of both."""

    found: Float64Array
    truth: Float64Array
    frame: Rows

    def within(self, rows: Mask) -> _Matches:
        """Return some of the matches."""
        return _Matches(self.found[rows], self.truth[rows], self.frame[rows])


def fit_sizes(
    frames: Sequence[tuple[Detections, Boxes3D]], classes: Sequence[str], *, fixed: Sequence[str] = ()
) -> dict[str, SizeFit]:
    """Fit the offsets of each class with at least 10 detections that match a label.

    Args:
        frames: detections and labels, in order of time, so that halves of them are alike as little as
            possible.
        classes: classes to fit.
        fixed: classes with fixed length and width; only their height is fitted.
    """
    fits = {}
    for name in classes:
        matches = _matches(frames, name)
        if len(matches.found) < _LEAST:
            continue
        own = _offsets(matches, fixed=name in fixed)
        first = matches.frame < np.median(matches.frame)
        crossed = matches.found.copy()
        for half in (first, ~first):
            if half.any() and not half.all():
                offsets = _offsets(matches.within(~half), fixed=name in fixed)
                crossed[half] = grown(matches.found[half].astype(np.float32), offsets)
        enough = min(int(first.sum()), int((~first).sum())) >= _LEAST // 2
        fits[name] = SizeFit(
            len(matches.found),
            own,
            _overlap(matches.found, matches.truth),
            _overlap(crossed, matches.truth) if enough else math.nan,
        )
    return fits


def offsets_to(
    sizes_m: Mapping[str, Sequence[float]], frames: Sequence[tuple[Detections, Boxes3D]]
) -> dict[str, SizeFit]:
    """Return the offsets that give detections of a class known mean sizes; labels are not needed.

    Args:
        sizes_m: by class, mean length, width and height.
        frames: detections; labels are ignored.
    """
    fits = {}
    for name, wanted in sizes_m.items():
        rows = [found.boxes[_sure(found, name), 3:6] for found, _ in frames]
        sizes = np.concatenate(rows) if rows else np.zeros((0, 3))
        if len(sizes):
            length, width, height = (np.asarray(wanted) - np.median(sizes, axis=0)).tolist()
            fits[name] = SizeFit(len(sizes), (length, width, height), math.nan, math.nan)
    return fits


def grown(boxes: FloatArray, offsets_m: Sequence[float]) -> FloatArray:
    """Return (M, 7) boxes with the offsets, as a detector with ``nms.size_offsets_m`` reports them."""
    rules = ReportRules(torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, *offsets_m]], dtype=torch.float64))
    made: FloatArray = with_sizes(
        torch.from_numpy(np.ascontiguousarray(boxes)), torch.zeros(len(boxes), dtype=torch.long), rules
    ).numpy()
    return made


def _sure(found: Detections, name: str) -> Rows:
    return np.flatnonzero((np.array(found.labels) == name) & (found.scores >= _SCORE))


def _matches(frames: Sequence[tuple[Detections, Boxes3D]], name: str) -> _Matches:
    """Pair detections and labels of a class that overlap each other most."""
    rows = []
    for number, (found, truth) in enumerate(frames):
        own = found.boxes[_sure(found, name)]
        wanted = truth.boxes[np.array([label == name for label in truth.labels], np.bool_)]
        if not len(own) or not len(wanted):
            continue
        overlap = np.asarray(rotated_iou_bev(own, wanted))
        best = overlap.argmax(axis=1)
        mutual = (overlap.argmax(axis=0)[best] == np.arange(len(own))) & (overlap.max(axis=1) > _OVERLAP)
        rows += [(own[row], wanted[best[row]], number) for row in np.flatnonzero(mutual)]
    found_boxes, truth_boxes = (
        np.array([row[part] for row in rows], np.float64).reshape(-1, 7) for part in (0, 1)
    )
    return _Matches(found_boxes, truth_boxes, np.array([row[2] for row in rows], np.int64))


def _offsets(matches: _Matches, *, fixed: bool) -> Offsets:
    length, width, height = np.median(matches.truth[:, 3:6] - matches.found[:, 3:6], axis=0).tolist()
    return (0.0, 0.0, height) if fixed else (length, width, height)


def _overlap(found: Float64Array, truth: Float64Array) -> float:
    return float(np.asarray(rotated_iou_pairs(found, truth, metric="3d")).mean())
