"""Results of the nuScenes protocol, and its constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perception.evaluate.box_table import Float64Array, finite_or_none, mean_of_known

#: Class to its greatest distance from the vehicle, metres.
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
#: Class to its greatest distance in the tracking task, metres.
TRACKING_RANGES_M = {
    "bicycle": 40.0,
    "bus": 50.0,
    "car": 50.0,
    "motorcycle": 40.0,
    "pedestrian": 40.0,
    "trailer": 50.0,
    "truck": 50.0,
}
#: Match distances, metres; AP is the mean over all four.
DISTANCES_M = (0.5, 1.0, 2.0, 4.0)
#: Index of the distance at which errors are measured: 2 m.
ERROR_PLACE = DISTANCES_M.index(2.0)
#: Errors and their short names: metres, 1 - IoU of aligned boxes, radians, m/s, share of wrong attributes.
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
#: Samples of a curve (recall 0, 0.01, ..., 1), and the first one that counts (recall above 0.1).
SAMPLE_COUNT, FIRST_SAMPLE = 101, 11
_MIN_PRECISION = 0.1
_AP_WEIGHT = 5


def average_precision(precision: Float64Array) -> Float64Array:
    """Return the AP in [0, 1]: mean precision above 0.1 over recalls above 0.1; (..., 101) to (...)."""
    above = np.maximum(precision[..., FIRST_SAMPLE:] - _MIN_PRECISION, 0.0)
    found: Float64Array = above.mean(axis=-1) / (1.0 - _MIN_PRECISION)
    return found


def detection_score(mean_ap: float, mean_errors: Sequence[float]) -> float:
    """Return the NDS: half mAP, half the five errors, each clipped at 1."""
    # As in the devkit, max(0, NaN) is 0: an error that no class has counts as the worst.
    scores = [max(0.0, 1.0 - error) for error in mean_errors]
    return (_AP_WEIGHT * mean_ap + sum(scores)) / (_AP_WEIGHT + len(scores))


@dataclass(frozen=True, eq=False)
class NuScenesClass:
    """Results of one class.

    Attributes:
        labels, detections: how many count.
        precision: limit in metres to (101,) float64 precision at recall 0, 0.01, ..., 1.
        errors: name to mean error of true positives; 1 without any, NaN if undefined.
    """

    labels: int
    detections: int
    precision: dict[float, Float64Array]
    errors: dict[str, float]

    def ap_at(self, distance_m: float) -> float:
        """Return the average precision in [0, 1] for matches within this distance."""
        return float(average_precision(self.precision[distance_m]))

    @property
    def ap(self) -> float:
        """Mean AP over the distances, in [0, 1]."""
        return float(np.mean([self.ap_at(distance) for distance in self.precision]))


@dataclass(frozen=True, eq=False)
class NuScenesResult:
    """mAP, NDS and errors, in [0, 1] as nuScenes prints them.

    Attributes:
        classes: by name. Classes without labels have an AP of 0, as in nuScenes.
        frames: number of frames.
        labels_left_out, detections_left_out: excluded boxes, by reason.
    """

    classes: Mapping[str, NuScenesClass]
    frames: int
    labels_left_out: Mapping[str, int]
    detections_left_out: Mapping[str, int]

    @property
    def mean_ap(self) -> float:
        """mAP over all classes, including those without labels."""
        return float(np.mean([found.ap for found in self.classes.values()]))

    def mean_error(self, error: str) -> float:
        """Return the mean of an error over the classes that have it.

        Raises:
            KeyError: the error is unknown.
        """
        return mean_of_known(found.errors[error] for found in self.classes.values())

    @property
    def nds(self) -> float:
        """nuScenes detection score, see :func:`detection_score`."""
        return detection_score(self.mean_ap, [self.mean_error(error) for error in ERRORS])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; None if undefined."""
        return {
            "protocol": "nuscenes",
            "frames": self.frames,
            "mAP": self.mean_ap,
            "NDS": self.nds,
            "errors": {f"m{short}": finite_or_none(self.mean_error(name)) for name, short in ERRORS.items()},
            "classes": {
                name: {
                    "labels": found.labels,
                    "detections": found.detections,
                    "AP": found.ap,
                    "AP_at_m": {str(distance): found.ap_at(distance) for distance in found.precision},
                    "errors": {short: finite_or_none(found.errors[error]) for error, short in ERRORS.items()},
                }
                for name, found in self.classes.items()
            },
            "labels_left_out": dict(self.labels_left_out),
            "detections_left_out": dict(self.detections_left_out),
        }
