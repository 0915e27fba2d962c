"""The nuScenes detection benchmark: mAP, NDS and the five errors of true positives.

It reproduces ``nuscenes.eval.detection`` of nuscenes-devkit with its configuration ``detection_cvpr_2019``
(Caesar et al., "nuScenes: A multimodal dataset for autonomous driving", CVPR 2020).
docs/decisions/0034-evaluation.md has every rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from perception.boxes import wrap_angle
from perception.evaluate.box_table import BoxTable, Float64Array, Mask, Rows, aligned_iou
from perception.evaluate.greedy import MatchCandidates, frame_pairs, ranked, take_labels
from perception.evaluate.nuscenes.result import (
    CLASS_RANGES_M,
    DISTANCES_M,
    ERROR_PLACE,
    ERRORS,
    FIRST_SAMPLE,
    SAMPLE_COUNT,
    UNDEFINED_ERRORS,
    NuScenesClass,
    NuScenesResult,
)

#: Recall positions of the curves.
RECALL = np.linspace(0, 1, SAMPLE_COUNT)


def evaluate_nuscenes(
    labels: BoxTable,
    detections: BoxTable,
    *,
    racks: BoxTable | None = None,
    frame_count: int | None = None,
) -> NuScenesResult:
    """Evaluate detections by centre distance on the ground.

    Args:
        labels: boxes with velocity, attribute, point counts and ego distances. Other classes are ignored.
        detections: boxes with scores, of the same frames in the same axes.
        racks: bicycle racks; bicycles and motorcycles inside them are ignored.
        frame_count: number of evaluated frames; None: up to the last frame with a box.

    Raises:
        ValueError: a detection without score, or a box without volume.
    """
    judged = match_classes(labels, detections, racks)
    last = max([*labels.frame[-1:], *detections.frame[-1:], -1])
    return NuScenesResult(
        classes={name: class_result(matches) for name, matches in judged.classes.items()},
        frames=int(last) + 1 if frame_count is None else frame_count,
        labels_left_out=judged.labels_left_out,
        detections_left_out=judged.detections_left_out,
    )


class ClassMatches(NamedTuple):
    """Counting detections of a class, best first, with their matches.

    Attributes:
        name: of the class.
        score, frame: (M,) float64 and int64.
        right: (4, M) bool, True if a label matched at each of the distances.
        errors: name to (M,) float64 error of the match within 2 m; NaN if the label lacks the value.
        distance_m: (4, M) float64 from the vehicle, of the matched label or else the detection.
        labels: number of labels.
        label_frame: (N,) int64 of the original labels, also after :meth:`repeated`.
        label_distance_m: (N,) float64.
        label_points: (N,) int64.
        label_found: (N,) bool, matched within 2 m.
    """

    name: str
    score: Float64Array
    frame: Rows
    right: Mask
    errors: dict[str, Float64Array]
    distance_m: Float64Array
    labels: int
    label_frame: Rows
    label_distance_m: Float64Array
    label_points: Rows
    label_found: Mask

    def repeated(self, copies: Rows) -> ClassMatches:
        """Return the matches with (F,) copies of each frame."""
        rows = np.repeat(np.arange(len(self.frame)), copies[self.frame])
        return self._replace(
            score=self.score[rows],
            frame=self.frame[rows],
            right=self.right[:, rows],
            errors={error: values[rows] for error, values in self.errors.items()},
            labels=int(copies[self.label_frame].sum()),
        )


class Matches(NamedTuple):
    """Matches of all classes, and excluded boxes by reason."""

    classes: dict[str, ClassMatches]
    labels_left_out: dict[str, int]
    detections_left_out: dict[str, int]


def match_classes(labels: BoxTable, detections: BoxTable, racks: BoxTable | None) -> Matches:
    """Match all classes; arguments as in :func:`evaluate_nuscenes`."""
    if np.isnan(detections.score).any():
        row = int(np.isnan(detections.score).argmax())
        raise ValueError(f"detection {row}, frame {detections.frame[row]}: no score; add one to each box")
    kept_labels, labels_left = left_out(labels, racks, CLASS_RANGES_M)
    kept_detections, detections_left = left_out(detections, racks, CLASS_RANGES_M)
    labels, detections = labels.rows(kept_labels), detections.rows(kept_detections)
    for table, name in ((labels, "label"), (detections, "detection")):
        if (table.boxes[:, 3:6] <= 0).any():
            row = int((table.boxes[:, 3:6] <= 0).any(axis=1).argmax())
            raise ValueError(f"frame {table.frame[row]}: a {name} has a size of 0 or less; remove it")
    order = ranked(detections.score, later_first=True)
    taken = match_centres(labels, detections, order, tuple(CLASS_RANGES_M))
    classes = {name: _of_class(name, labels, detections, order, taken) for name in CLASS_RANGES_M}
    return Matches(classes, labels_left, detections_left)


def left_out(
    table: BoxTable, racks: BoxTable | None, ranges_m: Mapping[str, float]
) -> tuple[Mask, dict[str, int]]:
    """Return an (M,) mask of boxes that count, and the number of excluded boxes by reason."""
    known = np.isin(table.label, list(ranges_m))
    reach = np.array([ranges_m.get(name, 0.0) for name in table.label.tolist()], np.float64)
    near, seen = table.distance_m < reach, table.points != 0
    parked = _in_racks(table, racks) if racks is not None else np.zeros(len(table), np.bool_)
    counts = {
        "of another class": int((~known).sum()),
        "beyond the range of their class": int((known & ~near).sum()),
        "without points": int((known & near & ~seen).sum()),
        "in a bicycle rack": int((known & near & seen & parked).sum()),
    }
    return known & near & seen & ~parked, {reason: count for reason, count in counts.items() if count}


def _in_racks(table: BoxTable, racks: BoxTable) -> Mask:
    """Mark bicycles and motorcycles whose centre lies in a rack of their frame."""
    inside = np.zeros(len(table), np.bool_)
    two_wheels = np.isin(table.label, ["bicycle", "motorcycle"])
    for rack, detection in frame_pairs(racks.frame, table.frame):
        box = racks.boxes[rack]
        offset = table.boxes[detection, :3] - box[:, :3]
        cosine, sine = np.cos(box[:, 6]), np.sin(box[:, 6])
        along = cosine * offset[:, 0] + sine * offset[:, 1]
        across = cosine * offset[:, 1] - sine * offset[:, 0]
        own = np.abs(np.stack([along, across, offset[:, 2]], axis=1))
        inside[detection[(own <= box[:, 3:6] / 2).all(axis=1)]] = True
    return inside & two_wheels


def match_centres(labels: BoxTable, detections: BoxTable, order: Rows, classes: tuple[str, ...]) -> Rows:
    """Return the label of each detection at each distance: (4, M) int64, or -1.

    A detection takes the nearest free label of its class within the limit.
    """
    number = {name: index for index, name in enumerate(classes)}
    label_class = np.array([number[name] for name in labels.label.tolist()], np.int64)
    detection_class = np.array([number[name] for name in detections.label.tolist()], np.int64)
    parts = []
    for label, detection in frame_pairs(labels.frame, detections.frame):
        same = label_class[label] == detection_class[detection]
        label, detection = label[same], detection[same]
        offset = detections.boxes[detection, :2] - labels.boxes[label, :2]
        distance = np.sqrt((offset**2).sum(axis=1))
        near = distance < max(DISTANCES_M)
        parts.append((label[near], detection[near], distance[near]))
    label, detection, distance = (np.concatenate(part) for part in zip(*parts, strict=True))
    allowed = distance < np.array(DISTANCES_M)[:, None]
    group = detections.frame * len(classes) + detection_class
    return take_labels(MatchCandidates(label, detection, distance, allowed), group, order, len(labels))


def _of_class(name: str, labels: BoxTable, detections: BoxTable, order: Rows, taken: Rows) -> ClassMatches:
    own = order[detections.label[order] == name]
    mine = labels.label == name
    found = taken[:, own]
    right = found >= 0
    distance = np.where(right, labels.distance_m[found] if len(labels) else 0.0, detections.distance_m[own])
    label, hits = found[ERROR_PLACE], right[ERROR_PLACE]
    errors = {error: np.full(len(own), np.nan) for error in ERRORS}
    for error, values in _errors(name, labels, label[hits], detections, own[hits]).items():
        errors[error][hits] = values
    was_found = np.zeros(len(labels), np.bool_)
    was_found[label[hits]] = True
    return ClassMatches(
        name,
        detections.score[own],
        detections.frame[own],
        right,
        errors,
        distance,
        int(mine.sum()),
        labels.frame[mine],
        labels.distance_m[mine],
        labels.points[mine],
        was_found[mine],
    )


def class_result(matches: ClassMatches) -> NuScenesClass:
    """Return the AP and errors of a class."""
    curves = [sampled(matches.score, right, matches.labels) for right in matches.right]
    precision = {distance: curve for distance, (curve, _) in zip(DISTANCES_M, curves, strict=True)}
    errors = mean_errors(matches, curves[ERROR_PLACE][1])
    return NuScenesClass(matches.labels, len(matches.score), precision, errors)


def mean_errors(matches: ClassMatches, confidence: Float64Array) -> dict[str, float]:
    """Return the errors of a class; ``confidence`` is the score at each recall with matches within 2 m."""
    errors = dict.fromkeys(ERRORS, 1.0)
    hits = matches.right[ERROR_PLACE]
    if hits.any() and matches.labels:
        scores = matches.score[hits]
        errors = {
            error: _mean_error(values[hits], scores, confidence) for error, values in matches.errors.items()
        }
    return errors | dict.fromkeys(UNDEFINED_ERRORS.get(matches.name, ()), float("nan"))


def sampled(score: Float64Array, right: Mask, label_count: int) -> tuple[Float64Array, Float64Array]:
    """Return precision and score at recall 0, 0.01, ..., 1, (101,) each; 0 beyond the last recall."""
    if label_count == 0 or not right.any():
        return np.zeros(SAMPLE_COUNT), np.zeros(SAMPLE_COUNT)
    true = np.cumsum(right).astype(np.float64)
    recall, precision = true / label_count, true / np.arange(1, len(right) + 1)
    return np.interp(RECALL, recall, precision, right=0), np.interp(RECALL, recall, score, right=0)


def _mean_error(values: Float64Array, scores: Float64Array, confidence: Float64Array) -> float:
    """Average the cumulative mean error over all reached recalls."""
    known = ~np.isnan(values)
    count = np.cumsum(known)
    total = np.nancumsum(values)
    means = np.divide(total, count, out=np.zeros_like(total), where=count != 0)
    if not known.any():
        means = np.ones(len(values))
    at_recall = np.interp(confidence[::-1], scores[::-1], means[::-1])[::-1]
    reached = np.flatnonzero(confidence)
    last = int(reached[-1]) if len(reached) else 0
    return 1.0 if last < FIRST_SAMPLE else float(np.mean(at_recall[FIRST_SAMPLE : last + 1]))


def _errors(
    name: str, labels: BoxTable, label: Rows, detections: BoxTable, detection: Rows
) -> dict[str, Float64Array]:
    """Return the five errors of P pairs, (P,) each; NaN if the label lacks the value."""
    truth, found = labels.boxes[label], detections.boxes[detection]
    turn = truth[:, 6] - found[:, 6]
    # A barrier has no front, so a half turn is no error.
    yaw = np.abs(wrap_angle(2 * turn) / 2) if name == "barrier" else np.abs(wrap_angle(turn))
    wanted, given = labels.attribute[label], detections.attribute[detection]
    return {
        "translation": np.sqrt(((found[:, :2] - truth[:, :2]) ** 2).sum(axis=1)),
        "scale": 1 - aligned_iou(truth[:, 3:6], found[:, 3:6]),
        "orientation": yaw,
        "velocity": np.sqrt(((detections.velocity[detection] - labels.velocity[label]) ** 2).sum(axis=1)),
        "attribute": np.where(wanted == "", np.nan, (wanted != given).astype(np.float64)),
    }
