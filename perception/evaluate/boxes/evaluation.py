"""Evaluation of 3D boxes without a camera: average precision, recall and box errors.

Every labelled box counts, and no image boxes are invented. docs/evaluation.md lists what is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from perception.boxes import Metric, circles_meet, circumscribed_radius, rotated_iou_pairs, wrap_angle
from perception.class_names import same_class, unknown_class
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable, Float64Array, Mask, Rows, aligned_iou
from perception.evaluate.boxes.result import METRICS, BoxesClass, BoxesResult, PartOfClass
from perception.evaluate.greedy import MatchCandidates, frame_pairs, ranked, take_labels
from perception.evaluate.options import MatchRule
from perception.evaluate.ranking import POINT_COUNTS, RANGES, Part, Ranking, all_point_ap

#: Classes with labels of at least this length match at IoU 0.5, smaller ones at 0.3.
_LARGE_M = 2.0


class ClassMatching(NamedTuple):
    """Matches of one class.

    Attributes:
        rule: condition of a match.
        rankings: by metric.
        own: (M,) int64 detections of the class, best first.
        taken: metric to (M,) int64 label row of each detection, or -1.
        counted: (N,) bool, labels that count.
        ignored_labels, ignored_detections: how many do not count, by reason.
    """

    rule: MatchRule
    rankings: dict[Metric, Ranking]
    own: Rows
    taken: dict[Metric, Rows]
    counted: Mask
    ignored_labels: dict[str, int]
    ignored_detections: dict[str, int]


def evaluate_boxes(
    labels: BoxTable,
    detections: BoxTable,
    *,
    classes: Iterable[str] | None = None,
    rules: Mapping[str, MatchRule] | None = None,
    neighbours: Mapping[str, str] | None = None,
    min_points: int = 0,
    frame_count: int | None = None,
    left_out: Mapping[str, int] | None = None,
) -> BoxesResult:
    """Evaluate 3D boxes class by class.

    Args:
        labels: boxes, with point counts if known.
        detections: boxes with scores, of the same frames in the same axes.
        classes: classes to evaluate; None: every class of the labels or detections.
        rules: match rules by class; the default is :meth:`MatchRule.of_size`.
        neighbours: class to its similar class. Detections of a similar object count neither as right nor
            wrong.
        min_points: labels with fewer points, and detections that match them, do not count.
        frame_count: number of evaluated frames; None: up to the last frame with a box.
        left_out: detections excluded before, by reason; copied to the result.

    Raises:
        ValueError: a detection has no score, or a rule names a class that is not evaluated.
    """
    names = judged_classes(labels, detections, classes)
    judged = judge_boxes(
        labels, detections, names, rules=rules or {}, neighbours=neighbours or {}, min_points=min_points
    )
    last = max([*labels.frame[-1:], *detections.frame[-1:], -1])
    others = {
        f"labels of {name}": int((labels.label == name).sum())
        for name in sorted(set(labels.label.tolist()) - set(names))
    }
    return BoxesResult(
        classes={name: _of_class(found, labels, detections) for name, found in judged.items()},
        frames=int(last) + 1 if frame_count is None else frame_count,
        points_counted=bool((labels.points >= 0).any()),
        left_out={**(left_out or {}), **others},
    )


def judged_classes(labels: BoxTable, detections: BoxTable, classes: Iterable[str] | None) -> tuple[str, ...]:
    """Return the given classes, or all that occur, most labels first.

    Raises:
        DataError: two names refer to the same class.
    """
    labelled, detected = set(labels.label.tolist()), set(detections.label.tolist())
    if classes is not None:
        wanted = tuple(dict.fromkeys(classes))
        known = sorted((labelled | detected) - set(wanted))
        for name in sorted(set(wanted) - labelled - detected):
            if same_class(name, known) is not None:
                raise DataError(unknown_class(name, sorted(labelled | detected)))
        return wanted
    for name in sorted(detected - labelled):
        same = same_class(name, sorted(labelled - detected))
        if same is not None:
            raise DataError(
                f"detections name the class {name!r}, labels name it {same!r}; use one name"
                f" (perceive eval --rename {name}={same})"
            )
    names, counts = np.unique(labels.label, return_counts=True)
    order = sorted(zip((-counts).tolist(), names.tolist(), strict=True))
    return tuple(name for _, name in order) + tuple(
        sorted(set(detections.label.tolist()) - set(names.tolist()))
    )


def judge_boxes(
    labels: BoxTable,
    detections: BoxTable,
    classes: Iterable[str],
    *,
    rules: Mapping[str, MatchRule],
    neighbours: Mapping[str, str],
    min_points: int,
) -> dict[str, ClassMatching]:
    """Match the detections of each class to labels; arguments as in :func:`evaluate_boxes`."""
    names = tuple(classes)
    if unknown := sorted(set(rules) - set(names)):
        message = unknown_class(unknown[0], names)
        raise ValueError(f"rules names {unknown[0]!r}, which is not evaluated: {message}")
    if np.isnan(detections.score).any():
        row = int(np.isnan(detections.score).argmax())
        raise ValueError(f"detection {row}, frame {detections.frame[row]}: no score; add one to each box")
    judged = {}
    for name in names:
        rule = rules.get(name) or MatchRule.of_size(labels.boxes[labels.label == name, 3:5], large_m=_LARGE_M)
        judged[name] = _judge_class(
            labels, detections, name, rule, neighbour=neighbours.get(name), min_points=min_points
        )
    return judged


def _judge_class(
    labels: BoxTable,
    detections: BoxTable,
    name: str,
    rule: MatchRule,
    *,
    neighbour: str | None,
    min_points: int,
) -> ClassMatching:
    own_label = labels.label == name
    few = own_label & (labels.points >= 0) & (labels.points < min_points)
    counted = own_label & ~few
    similar = labels.label == neighbour
    # Ignored labels are matched last and never counted.
    takable = np.flatnonzero(own_label | similar)
    own = np.flatnonzero(detections.label == name)
    own = own[ranked(detections.score[own])]
    taken: dict[Metric, Rows] = {}
    rankings: dict[Metric, Ranking] = {}
    for metric in METRICS:
        taken[metric] = _take(labels, takable, ~counted, detections, own, rule, metric)
        rankings[metric] = _ranking(labels, counted, detections, own, taken[metric])
    excused = taken["3d"][taken["3d"] >= 0]
    excused = excused[~counted[excused]]
    reasons = {
        f"match a label of the similar class {neighbour}": int(similar[excused].sum()),
        f"match a label with fewer than {min_points} points": int(few[excused].sum()),
    }
    return ClassMatching(
        rule,
        rankings,
        own,
        taken,
        counted,
        {f"fewer than {min_points} points": int(few.sum())} if few.any() else {},
        {reason: count for reason, count in reasons.items() if count},
    )


def _take(
    labels: BoxTable,
    takable: Rows,
    ignored: Mask,
    detections: BoxTable,
    own: Rows,
    rule: MatchRule,
    metric: Metric,
) -> Rows:
    """Return the label row of each of ``own``, (len(own),), or -1."""
    rows = np.sort(own)
    pair_label, pair_detection, closeness = [], [], []
    for label, detection in frame_pairs(labels.frame[takable], detections.frame[rows]):
        near, value = _closeness(
            labels.boxes[takable[label]], detections.boxes[rows[detection]], rule, metric
        )
        pair_label.append(takable[label[near]])
        pair_detection.append(rows[detection[near]])
        closeness.append(value)
    label, detection = np.concatenate(pair_label), np.concatenate(pair_detection)
    order = np.where(ignored[label], 1e9, 0.0) - np.concatenate(closeness)
    allowed = np.ones((1, len(label)), np.bool_)
    candidates = MatchCandidates(label, detection, order, allowed)
    taken: Rows = take_labels(candidates, detections.frame, _whole(own, len(detections)), len(labels))[0, own]
    return taken


def _whole(first: Rows, count: int) -> Rows:
    """Return all row numbers, starting with ``first``."""
    rest = np.ones(count, np.bool_)
    rest[first] = False
    return np.concatenate([first, np.flatnonzero(rest)])


def _closeness(
    label: Float64Array, detection: Float64Array, rule: MatchRule, metric: Metric
) -> tuple[Rows, Float64Array]:
    """Return the matching pairs of (P, 7) boxes and how well they match: overlap, or minus the distance."""
    if rule.by == "distance":
        axes = 2 if metric == "bev" else 3
        distance = np.linalg.norm(label[:, :axes] - detection[:, :axes], axis=1)
        near = np.flatnonzero(distance < rule.limit)
        return near, -distance[near]
    first, second = torch.from_numpy(label), torch.from_numpy(detection)
    reach = circumscribed_radius(first) + circumscribed_radius(second)
    meet = circles_meet(first[:, 0] - second[:, 0], first[:, 1] - second[:, 1], reach).numpy()
    near = np.flatnonzero(meet)
    overlap = np.asarray(rotated_iou_pairs(label[near], detection[near], metric=metric), np.float64)
    enough = overlap > rule.limit
    return near[enough], overlap[enough]


def _ranking(labels: BoxTable, counted: Mask, detections: BoxTable, own: Rows, taken: Rows) -> Ranking:
    number = np.where(counted, np.cumsum(counted) - 1, -1)
    matched = taken >= 0
    right = matched & counted[taken] if len(counted) else matched
    kept = right | ~matched
    rows, label = own[kept], taken[kept]
    hit = right[kept]
    distance = detections.distance_m[rows].copy()
    distance[hit] = labels.distance_m[label[hit]]
    place = np.full(len(rows), -1)
    place[hit] = number[label[hit]]
    return Ranking(
        detections.score[rows],
        detections.frame[rows],
        hit,
        place,
        distance,
        labels.frame[counted],
        labels.distance_m[counted],
        labels.points[counted],
    )


def _of_class(judged: ClassMatching, labels: BoxTable, detections: BoxTable) -> BoxesClass:
    ranking = judged.rankings["3d"]
    count = len(ranking.label_frame)
    hit = judged.taken["3d"] >= 0
    hit[hit] = judged.counted[judged.taken["3d"][hit]]
    truth, found = labels.boxes[judged.taken["3d"][hit]], detections.boxes[judged.own[hit]]
    turn = np.abs(wrap_angle(found[:, 6] - truth[:, 6]))
    return BoxesClass(
        rule=judged.rule,
        labels=count,
        detections=len(ranking.score),
        ap={metric: 100 * all_point_ap(part.right, count) for metric, part in judged.rankings.items()},
        recall={metric: _percent(int(part.right.sum()), count) for metric, part in judged.rankings.items()},
        right={metric: part.right for metric, part in judged.rankings.items()},
        position_m=_mean(np.linalg.norm(found[:, :3] - truth[:, :3], axis=1)),
        size_error=_mean(1 - aligned_iou(truth[:, 3:6], found[:, 3:6])),
        yaw_rad=_mean(turn),
        turned=_mean((turn > np.pi / 2).astype(np.float64)),
        by_range=tuple(_by_range(ranking, part) for part in RANGES),
        by_points=tuple(_by_points(ranking, part) for part in POINT_COUNTS),
        ignored_labels=judged.ignored_labels,
        ignored_detections=judged.ignored_detections,
    )


def _by_range(ranking: Ranking, part: Part) -> PartOfClass:
    within = ranking.within(part)
    labels, right = len(within.label_frame), int(within.right.sum())
    ap = 100 * all_point_ap(within.right, labels)
    return PartOfClass(part.name, labels, right, len(within.right) - right, ap)


def _by_points(ranking: Ranking, part: Part) -> PartOfClass:
    inside = part.holds(ranking.label_points)
    return PartOfClass(part.name, int(inside.sum()), int(ranking.found[inside].sum()), None, float("nan"))


def _percent(share: int, whole: int) -> float:
    return 100.0 * share / whole if whole else float("nan")


def _mean(values: Float64Array) -> float:
    return float(values.mean()) if len(values) else float("nan")
