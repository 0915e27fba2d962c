"""What the protocol of boxes gives back, and when a box matches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perception.boxes import Metric
from perception.evaluate.box_table import Mask
from perception.evaluate.options import MatchRule

METRICS: tuple[Metric, ...] = ("3d", "bev")


class PartOfClass(NamedTuple):
    """A class by range or by points.

    Attributes:
        name: of the part.
        labels: in it.
        found: of these.
        false: wrong detections in it; None where these have no place in the parts.
        ap: 3-D average precision in percent; NaN without labels, or where parts have none.
    """

    name: str
    labels: int
    found: int
    false: int | None
    ap: float

    @property
    def recall(self) -> float:
        """Labels found, in percent; NaN without labels."""
        return 100.0 * self.found / self.labels if self.labels else math.nan


@dataclass(frozen=True, eq=False)
class BoxesClass:
    """One class; percent where nothing else is said, NaN where there is nothing to measure.

    Attributes:
        rule: when a box matches.
        labels: that count.
        detections: that count.
        ap: metric to average precision over all recalls.
        recall: metric to labels found.
        right: metric to (M,) bool, the detections best first.
        position_m: mean distance of centres of 3-D matches, metres.
        size_error: mean of 1 - IoU of these as if they lay in the same place and direction.
        yaw_rad: mean difference of their directions, radians in [0, pi].
        turned: share of these that point backwards (more than a quarter turn off), in [0, 1].
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
        """Detections that found nothing (3-D)."""
        return int((~self.right["3d"]).sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where there is nothing to measure."""
        return {
            "match": str(self.rule),
            "labels": self.labels,
            "detections": self.detections,
            "false": self.false,
            "AP": {metric: _plain(value) for metric, value in self.ap.items()},
            "recall": {metric: _plain(value) for metric, value in self.recall.items()},
            "position_m": _plain(self.position_m),
            "size_error": _plain(self.size_error),
            "yaw_rad": _plain(self.yaw_rad),
            "turned": _plain(self.turned),
            "by_range": {
                part.name: {
                    "labels": part.labels,
                    "found": part.found,
                    "false": part.false,
                    "AP": _plain(part.ap),
                }
                for part in self.by_range
            },
            "by_points": {part.name: {"labels": part.labels, "found": part.found} for part in self.by_points},
            "ignored_labels": dict(self.ignored_labels),
            "ignored_detections": dict(self.ignored_detections),
        }


@dataclass(frozen=True, eq=False)
class BoxesResult:
    """All classes.

    Attributes:
        classes: by name, most labels first; those that are only detected have NaN for AP and recall.
        frames: number of frames.
        points_counted: the points in labels are known, so that ``by_points`` says something.
        left_out: boxes that were not judged at all, by reason.
    """

    classes: Mapping[str, BoxesClass]
    frames: int
    points_counted: bool
    left_out: Mapping[str, int]

    @property
    def mean_ap(self) -> float:
        """Mean 3-D AP of the classes with labels, percent; NaN without any."""
        values = [found.ap["3d"] for found in self.classes.values() if found.labels]
        return float(np.mean(values)) if values else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where there is nothing to measure."""
        return {
            "protocol": "boxes",
            "frames": self.frames,
            "mAP": _plain(self.mean_ap),
            "classes": {name: found.to_dict() for name, found in self.classes.items()},
            "left_out": dict(self.left_out),
        }


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
