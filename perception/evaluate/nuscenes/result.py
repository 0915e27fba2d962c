"""What the nuScenes protocol gives back, and the numbers that it is defined by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.evaluate.box_table import Float64Array

#: Class names, and how far from the vehicle each is looked for, in metres.
CLASS_RANGES_M = {
    "car": 50.0,
    "truck": 50.0,
    "bus": 50.0,
    "trailer": 50.0,
    "construction_vehicle": 50.0,
    "pedestrian": 40.0,
    "motorcycle": 40.0,
    "bicycle": 40.0,
    "traffic_cone": 30.0,
    "barrier": 30.0,
}
#: The same for the tracking task.
TRACKING_RANGES_M = {
    "bicycle": 40.0,
    "bus": 50.0,
    "car": 50.0,
    "motorcycle": 40.0,
    "pedestrian": 40.0,
    "trailer": 50.0,
    "truck": 50.0,
}
#: Centres nearer than this match; AP is the mean over all four.
DISTANCES_M = (0.5, 1.0, 2.0, 4.0)
#: The distance whose matches errors are measured on: 2 m.
ERROR_PLACE = DISTANCES_M.index(2.0)
#: The errors and their names: metres, 1 - IoU of aligned boxes, radians, metres a second, share of wrong.
ERRORS: dict[str, str] = {
    "translation": "ATE",
    "scale": "ASE",
    "orientation": "AOE",
    "velocity": "AVE",
    "attribute": "AAE",
}
#: Errors that a class does not have.
UNDEFINED_ERRORS = {
    "traffic_cone": ("orientation", "velocity", "attribute"),
    "barrier": ("velocity", "attribute"),
}
#: Samples of a curve: recall 0, 0.01, ..., 1; and the first one that counts, beyond a recall of 0.1.
SAMPLE_COUNT, FIRST_SAMPLE = 101, 11
_MIN_PRECISION = 0.1
_AP_WEIGHT = 5


def average_precision(precision: Float64Array) -> Float64Array:
    """Mean of what exceeds a precision of 0.1 beyond a recall of 0.1, in [0, 1]: (..., 101) to (...)."""
    above = np.maximum(precision[..., FIRST_SAMPLE:] - _MIN_PRECISION, 0.0)
    found: Float64Array = above.mean(axis=-1) / (1.0 - _MIN_PRECISION)
    return found


def detection_score(mean_ap: float, mean_errors: Sequence[float]) -> float:
    """NDS: half of it is mAP, half the five errors, each cut off at 1."""
    # As the devkit: max(0, NaN) is 0, so an error that no class has counts as the worst.
    scores = [max(0.0, 1.0 - error) for error in mean_errors]
    return (_AP_WEIGHT * mean_ap + sum(scores)) / (_AP_WEIGHT + len(scores))


def mean_of_known(values: Iterable[float]) -> float:
    """Mean of those that are not NaN; NaN without any."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True, eq=False)
class NuScenesClass:
    """One class.

    Attributes:
        labels: labels that count.
        detections: detections that count.
        precision: limit in metres to (101,) float64 precision at recall 0, 0.01, ..., 1.
        errors: name to mean error of true positives; 1 where there are none, NaN where it is not defined.
    """

    labels: int
    detections: int
    precision: dict[float, Float64Array]
    errors: dict[str, float]

    def ap_at(self, distance_m: float) -> float:
        """Average precision in [0, 1] with matches nearer than this."""
        return float(average_precision(self.precision[distance_m]))

    @property
    def ap(self) -> float:
        """Mean over the distances, in [0, 1]."""
        return float(np.mean([self.ap_at(distance) for distance in self.precision]))


@dataclass(frozen=True, eq=False)
class NuScenesResult:
    """mAP, NDS and errors; shares in [0, 1] as nuScenes prints them.

    Attributes:
        classes: by name; classes without labels are among them, with an AP of 0, as nuScenes counts them.
        frames: number of frames.
        labels_left_out: how many labels do not count, by reason.
        detections_left_out: how many detections do not count, by reason.
    """

    classes: Mapping[str, NuScenesClass]
    frames: int
    labels_left_out: Mapping[str, int]
    detections_left_out: Mapping[str, int]

    @property
    def mean_ap(self) -> float:
        """mAP over all classes, those without labels included."""
        return float(np.mean([found.ap for found in self.classes.values()]))

    def mean_error(self, error: str) -> float:
        """Mean of an error over the classes that have it.

        Raises:
            KeyError: no such error.
        """
        return mean_of_known(found.errors[error] for found in self.classes.values())

    @property
    def nds(self) -> float:
        """nuScenes detection score, see :func:`detection_score`."""
        return detection_score(self.mean_ap, [self.mean_error(error) for error in ERRORS])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; None where undefined."""
        return {
            "protocol": "nuscenes",
            "frames": self.frames,
            "mAP": self.mean_ap,
            "NDS": self.nds,
            "errors": {f"m{short}": _plain(self.mean_error(name)) for name, short in ERRORS.items()},
            "classes": {
                name: {
                    "labels": found.labels,
                    "detections": found.detections,
                    "AP": found.ap,
                    "AP_at_m": {str(distance): found.ap_at(distance) for distance in found.precision},
                    "errors": {short: _plain(found.errors[error]) for error, short in ERRORS.items()},
                }
                for name, found in self.classes.items()
            },
            "labels_left_out": dict(self.labels_left_out),
            "detections_left_out": dict(self.detections_left_out),
        }


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
