"""nuScenes measures on any multiset of frames: matches are repeated, then measured as usual."""

from __future__ import annotations

import numpy as np

from perception.evaluate.box_table import BoxTable, Float64Array, Mask, Rows, mean_of_known
from perception.evaluate.nuscenes.evaluation import RECALL, ClassMatches, match_classes, mean_errors, sampled
from perception.evaluate.nuscenes.result import (
    ERROR_PLACE,
    ERRORS,
    SAMPLE_COUNT,
    average_precision,
    detection_score,
)
from perception.evaluate.ranking import POINT_COUNTS, RANGES, Part
from perception.evaluate.resampling import Measure, Sampler

_NUMBERS_AT_ONCE = 1 << 20


class NuScenesSampler(Sampler):
    """Sampler of mAP, NDS and AP by class in percent, with AP by range and recall within 2 m by points.

    Args:
        frame_ids: of the frames that both tables index.
        labels, detections, racks: as in :func:`~perception.evaluate.nuscenes.evaluation.evaluate_nuscenes`.
    """

    def __init__(
        self,
        frame_ids: tuple[str, ...],
        labels: BoxTable,
        detections: BoxTable,
        *,
        racks: BoxTable | None = None,
    ) -> None:
        self.frame_ids = frame_ids
        self._classes = match_classes(labels, detections, racks).classes
        self._present = [name for name, found in self._classes.items() if found.labels]
        self._ranges = [
            (name, part)
            for name in self._present
            for part in RANGES
            if part.holds(self._classes[name].label_distance_m).any()
        ]
        self._points = [
            (name, part)
            for name in self._present
            for part in POINT_COUNTS
            if part.holds(self._classes[name].label_points).any()
        ]
        self.measures = (
            Measure("all", "mAP"),
            Measure("all", "NDS"),
            *(Measure(name, "AP") for name in self._present),
            *(Measure(name, "AP", part.name) for name, part in self._ranges),
            *(Measure(name, "recall", part.name) for name, part in self._points),
        )

    def values(self, copies: Rows) -> Float64Array:
        """Measure samples in percent; see :meth:`Sampler.values`."""
        areas = {name: _ap(found, None, copies) for name, found in self._classes.items()}
        mean_ap = np.mean(np.stack([np.nan_to_num(area) for area in areas.values()]), axis=0)
        errors = [self._errors(sample) for sample in copies]
        columns = [
            mean_ap,
            np.array([detection_score(*row) for row in zip(mean_ap.tolist(), errors, strict=True)]),
            *(areas[name] for name in self._present),
            *(_ap(self._classes[name], part, copies) for name, part in self._ranges),
            *(_recall(self._classes[name], part, copies) for name, part in self._points),
        ]
        return 100.0 * np.stack(columns, axis=1)

    def _errors(self, copies: Rows) -> list[float]:
        """Return the five errors of a sample."""
        by_class = []
        for found in self._classes.values():
            drawn = found.repeated(copies) if len(found.score) else found
            _, confidence = sampled(drawn.score, drawn.right[ERROR_PLACE], drawn.labels)
            by_class.append(mean_errors(drawn, confidence))
        return [mean_of_known(errors[error] for errors in by_class) for error in ERRORS]


def _ap(found: ClassMatches, part: Part | None, copies: Rows) -> Float64Array:
    """Return the (S,) mean AP over the distances, optionally of labels and false positives in a range."""
    inside = np.ones(len(found.label_frame), np.bool_) if part is None else part.holds(found.label_distance_m)
    labels = copies[:, found.label_frame[inside]].sum(axis=1)
    areas = []
    for right, distance in zip(found.right, found.distance_m, strict=True):
        there = slice(None) if part is None else part.holds(distance)
        curves = sampled_precision(right[there], found.frame[there], labels, copies)
        areas.append(average_precision(curves))
    return np.where(labels > 0, np.mean(areas, axis=0), np.nan)


def sampled_precision(right: Mask, frame: Rows, labels: Rows, copies: Rows) -> Float64Array:
    """Return the precision of samples at recall 0, 0.01, ..., 1, as ``sampled`` computes it for one.

    Between two true positives the curve is a line that starts behind the false positives after the first.

    Args:
        right, frame: (M,) bool and int64 of detections, best first.
        labels: (S,) int64 number of labels in each sample.
        copies: (S, F) int64 of each frame.

    Returns:
        (S, 101) float64.
    """
    curves = np.zeros((len(copies), SAMPLE_COUNT))
    step = max(1, _NUMBERS_AT_ONCE // max(1, len(right)))
    for start in range(0, len(copies), step):
        chosen = slice(start, start + step)
        curves[chosen] = _precision(right, copies[chosen][:, frame], labels[chosen, None])
    return curves


def _precision(right: Mask, weight: Rows, labels: Rows) -> Float64Array:
    """Compute :func:`sampled_precision` of some samples: (S, M) copies of detections, (S, 1) labels to (S,
    101).
    """
    samples = len(weight)
    hits = np.flatnonzero(right)
    true = np.cumsum(weight[:, hits], axis=1)
    false = np.cumsum(weight * ~right, axis=1)
    total = true[:, -1:] if len(hits) else np.zeros((samples, 1), np.int64)
    known = np.maximum(labels, 1)
    # True positives needed for a recall; rounding decides ties as in a search among recalls.
    count = np.floor(RECALL * known).astype(np.int64)
    count += (count + 1) / known <= RECALL
    count -= count / known > RECALL
    beyond = (count > total) | ((count == total) & (count / known < RECALL))
    count = np.minimum(count, total)
    # False positives before the next true positive.
    shift = np.arange(samples)[:, None] * (int(total.max(initial=0)) + 1)
    place = np.searchsorted((true + shift).ravel(), (count + shift).ravel(), side="right").reshape(
        count.shape
    )
    place -= np.arange(samples)[:, None] * len(hits)
    end = false[:, -1:] if false.shape[1] else np.zeros((samples, 1), np.int64)
    wrong = np.take_along_axis(np.concatenate([false[:, hits], end], axis=1), place, axis=1)
    here = np.where(count + wrong > 0, count / np.maximum(count + wrong, 1), 1.0)
    following = (count + 1) / (count + 1 + wrong)
    slope = (following - here) / ((count + 1) / known - count / known)
    curve = np.where(count == total, here, slope * (RECALL - count / known) + here)
    return np.where(beyond | (total == 0) | (labels == 0), 0.0, curve)


def _recall(found: ClassMatches, part: Part, copies: Rows) -> Float64Array:
    """Return the (S,) recall of labels in a range of point counts."""
    inside = part.holds(found.label_points)
    labels = copies[:, found.label_frame[inside]].sum(axis=1)
    hits = copies[:, found.label_frame[inside & found.label_found]].sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(labels > 0, hits / labels, np.nan), np.float64)
