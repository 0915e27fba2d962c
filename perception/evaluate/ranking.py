"""Ranked detections of a class, each right or wrong: the input of average precision and calibration."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from perception.evaluate.box_table import Float64Array, Mask, Rows


class Part(NamedTuple):
    """A range of distances or point counts.

    Attributes:
        name: in tables.
        low, high: lower limit (inclusive) and upper limit (exclusive).
    """

    name: str
    low: float
    high: float

    def holds(self, values: Float64Array | Rows) -> Mask:
        """Return a mask of the values inside."""
        return np.asarray((values >= self.low) & (values < self.high))


#: Ground distance of the centre from the sensor.
RANGES = (Part("0-20 m", 0, 20), Part("20-40 m", 20, 40), Part("40+ m", 40, math.inf))
#: Points inside the label.
POINT_COUNTS = (
    Part("0 points", 0, 1),
    Part("1-10 points", 1, 11),
    Part("11-50 points", 11, 51),
    Part("51-200 points", 51, 201),
    Part("201+ points", 201, math.inf),
)


class Ranking(NamedTuple):
    """Counting detections and labels of one class, over all frames.

    Attributes:
        score: (M,) float64, not increasing.
        frame: (M,) int64.
        right: (M,) bool, True if the detection found a label.
        label: (M,) int64 row of that label in the columns below, or -1.
        distance_m: (M,) float64 of that label, or else of the detection.
        label_frame: (N,) int64.
        label_distance_m: (N,) float64.
        label_points: (N,) int64; -1 if not counted.
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
        """(N,) bool, labels that a detection found."""
        found = np.zeros(len(self.label_frame), np.bool_)
        found[self.label[self.right]] = True
        return found

    def within(self, part: Part) -> Ranking:
        """Return labels at these distances, with their detections and the false positives there."""
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
    """Return the area under the precision envelope over all recalls, in [0, 1].

    The definition of PASCAL VOC since 2010 (Everingham et al., IJCV 2015, section 4.2). It works for any
    number of labels.

    Args:
        right: (M,) bool, best score first.
        labels: number of labels; 0 gives NaN.
    """
    if labels == 0:
        return math.nan
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(envelope[right].sum()) / labels
