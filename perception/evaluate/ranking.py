"""Detections of a class, best first, each right or wrong: what average precision and calibration are of."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from perception.evaluate.box_table import Float64Array, Mask, Rows


class Part(NamedTuple):
    """A slice of labels and detections by a number.

    Attributes:
        name: in tables.
        low, high: from ``low`` on, below ``high``.
    """

    name: str
    low: float
    high: float

    def holds(self, values: Float64Array | Rows) -> Mask:
        """Which values lie in it."""
        return np.asarray((values >= self.low) & (values < self.high))


#: By the distance of the centre from the sensor along the ground.
RANGES = (Part("0-20 m", 0, 20), Part("20-40 m", 20, 40), Part("40+ m", 40, math.inf))
#: By the points inside the label.
POINT_COUNTS = (
    Part("0 points", 0, 1),
    Part("1-10 points", 1, 11),
    Part("11-50 points", 11, 51),
    Part("51-200 points", 51, 201),
    Part("201+ points", 201, math.inf),
)


class Ranking(NamedTuple):
    """Detections and labels of one class that count, over all frames.

    Attributes:
        score: (M,) float64, not increasing.
        frame: (M,) int64.
        right: (M,) bool: it found a label.
        label: (M,) int64, the row below of that label, or -1.
        distance_m: (M,) float64 of that label, or of the detection.
        label_frame: (N,) int64.
        label_distance_m: (N,) float64.
        label_points: (N,) int64; -1 where nobody counted.
    """

    score: Float64Array
    frame: Rows
    right: Mask
    label: Rows
    distance_m: Float64Array
    label_frame: Rows
    label_distance_m: Float64Array
    label_points: Rows

    @property
    def found(self) -> Mask:
        """(N,) bool: labels that a detection found."""
        found = np.zeros(len(self.label_frame), np.bool_)
        found[self.label[self.right]] = True
        return found

    def within(self, part: Part) -> Ranking:
        """Labels at these distances; detections that found one of them, or that are wrong and lie there."""
        labels, rows = part.holds(self.label_distance_m), part.holds(self.distance_m)
        number = np.where(labels, np.cumsum(labels) - 1, -1)
        label = np.where(self.right, number[self.label], -1) if len(number) else self.label
        return Ranking(
            self.score[rows],
            self.frame[rows],
            self.right[rows],
            label[rows],
            self.distance_m[rows],
            self.label_frame[labels],
            self.label_distance_m[labels],
            self.label_points[labels],
        )


def all_point_ap(right: Mask, labels: int) -> float:
    """Area under precision, raised to the largest at any higher recall, over all recalls: in [0, 1].

    The definition of PASCAL VOC since 2010 (Everingham et al., IJCV 2015, section 4.2): there is no number of
    labels that it needs.

    Args:
        right: (M,) bool, best score first.
        labels: how many there are to find; NaN comes of none.
    """
    if labels == 0:
        return math.nan
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(envelope[right].sum()) / labels
