"""Results of the boxes protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perception.boxes import Metric
from perception.evaluate.box_table import Mask, finite_or_none
from perception.evaluate.options import MatchRule

METRICS: tuple[Metric, ...] = ("3d", "bev")


class PartOfClass(NamedTuple):
    """A class within a range of distances or of point counts.

    Attributes:
        name: of the part.
        labels: number of labels.
        found: labels that were found.
        false: false positives; None if these have no place in the parts.
        ap: 3D average precision in percent; NaN without labels, or if undefined for these parts.
    """

    name: str
    labels: int
    found: int
    false: int | None
    ap: float

    @property
    def recall(self) -> float:
        """Share of labels found, in percent; NaN without labels."""
        return 100.0 * self.found / self.labels if self.labels else math.nan


@dataclass(frozen=True, eq=False)
class BoxesClass:
    """Results of one class; percent unless stated otherwise, NaN if undefined.

    Attributes:
        rule: condition of a match.
        labels, detections: how many count.
        ap: metric to average precision over all recalls.
        recall: metric to recall.
        right: metric to (M,) bool, detections that match, best first.
        position_m: mean centre distance of 3D matches, metres.
        size_error: mean of 1 - IoU of 3D matches, aligned in centre and heading.
        yaw_rad: mean heading difference of 3D matches, radians in [0, pi].
        turned: share of 3D matches with a heading off by more than a quarter turn, in [0, 1].
        by_range: by the distance of labels.
        by_points: by the points in labels.
        ignored_labels, ignored_detections: how many do not count, by reason.
    """

    rule: MatchRule
    labels: int
    detections: int
    ap: Mapping[Metric, float]
    recall: Mapping[Metric, float]
    right: Mapping[Metric, Mask]
    position_m: float
    size_error: float
    yaw_rad: float
    turned: float
    by_range: tuple[PartOfClass, ...]
    by_points: tuple[PartOfClass, ...]
    ignored_labels: Mapping[str, int]
    ignored_detections: Mapping[str, int]

    @property
    def false(self) -> int:
        """Number of detections without a 3D match."""
        return int((~self.right["3d"]).sum())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None if undefined."""
        return {
            "match": str(self.rule),
            "labels": self.labels,
            "detections": self.detections,
            "false": self.false,
            "AP": {metric: finite_or_none(value) for metric, value in self.ap.items()},
            "recall": {metric: finite_or_none(value) for metric, value in self.recall.items()},
            "position_m": finite_or_none(self.position_m),
            "size_error": finite_or_none(self.size_error),
            "yaw_rad": finite_or_none(self.yaw_rad),
            "turned": finite_or_none(self.turned),
            "by_range": {
                part.name: {
                    "labels": part.labels,
                    "found": part.found,
                    "false": part.false,
                    "AP": finite_or_none(part.ap),
                }
                for part in self.by_range
            },
            "by_points": {part.name: {"labels": part.labels, "found": part.found} for part in self.by_points},
            "ignored_labels": dict(self.ignored_labels),
            "ignored_detections": dict(self.ignored_detections),
        }


@dataclass(frozen=True, eq=False)
class BoxesResult:
    """Results of all classes.

    Attributes:
        classes: by name, most labels first. Classes without labels have NaN for AP and recall.
        frames: number of frames.
        points_counted: True if point counts of labels are known, so that ``by_points`` is meaningful.
        left_out: excluded boxes, by reason.
    """

    classes: Mapping[str, BoxesClass]
    frames: int
    points_counted: bool
    left_out: Mapping[str, int]

    @property
    def mean_ap(self) -> float:
        """Mean 3D AP of the classes with labels, percent; NaN without any."""
        values = [found.ap["3d"] for found in self.classes.values() if found.labels]
        return float(np.mean(values)) if values else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None if undefined."""
        return {
            "protocol": "boxes",
            "frames": self.frames,
            "mAP": finite_or_none(self.mean_ap),
            "classes": {name: found.to_dict() for name, found in self.classes.items()},
            "left_out": dict(self.left_out),
        }
