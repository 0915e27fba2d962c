"""Settings of the tracker: motion, noise and reporting thresholds per class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from perception.errors import ConfigError
from perception.track.state import Float64Array, Int64Array


@dataclass(frozen=True)
class ClassConfig:
    """Motion, noise and reporting settings of one class.

    Scores are log-odds, ``log(p / (1 - p))``, so 0 means even odds. The belief in a track is a weighted sum,
    also in log-odds. Its terms are the current score, the mean score, the logarithm of the number of boxes,
    and the range. The range counts because a weak box nearby is stronger evidence against an object than a
    distant one.

    Attributes:
        gate_m: greatest distance of a box from the predicted position.
        gate_growth_m_s: growth of the gate per second without a box.
        turn_cost: cost of a heading that differs by a quarter turn, in gates; a half turn is free.
        size_cost: cost of a size that differs by half, in gates.
        alone_cost: cost of leaving a track and a box unpaired, in gates; dearer pairs are not made. It is at
            least one gate for tracks with a single box and for frames slower than 4 Hz, whose speed is
            unknown.
        high_score: boxes above these log-odds are associated first and can start a track.
        low_score: boxes below these log-odds are ignored.
        score_weight, mean_weight, hits_weight, range_weight, bias: weights of the belief; range in metres.
        tell_from: least belief at which a track is reported.
        mend_from: least belief in a whole track, in delayed and global modes.
        coast_bias, coast_weight: change of belief in an unseen track: once, and per missed frame.
        coast_from: least belief at which an unseen track is reported.
        coast_s: longest time an unseen track is reported.
        forget_s: longest time an unseen track can still be matched; at least three frames.
        join_s: longest gap that delayed and global modes fill, and over which fragments are joined.
        reidentify_s: longest time after which a lost track can return by its embedding.
        reidentify_from: least dot product of the two embeddings.
        position_sigma_m: standard deviation of a box centre.
        acceleration_sigma: root of the spectral density of the acceleration, m/s^1.5.
        speed_sigma_m_s: standard deviation of the speed of an object seen once.
        velocity_sigma_m_s: standard deviation of a velocity that the detector estimates.
        yaw_sigma_rad: standard deviation of a box heading.
        yaw_rate_sigma: heading noise over time, rad/s^0.5.
        size_memory: most boxes that a size is averaged over.
        moving_m_s: least speed of a track reported as moving.

    Raises:
        ConfigError: a field is not a finite number, or a size, time or deviation is negative.
    """

    gate_m: float = 3.0
    gate_growth_m_s: float = 2.0
    turn_cost: float = 0.2
    size_cost: float = 0.2
    alone_cost: float = 0.7
    high_score: float = -2.0
    low_score: float = -5.0
    score_weight: float = 0.65
    mean_weight: float = 0.65
    hits_weight: float = 0.7
    range_weight: float = 0.0
    bias: float = 0.0
    tell_from: float = -1.0
    mend_from: float = 1.0
    coast_bias: float = -1.5
    coast_weight: float = 0.35
    coast_from: float = 0.0
    coast_s: float = 0.5
    forget_s: float = 1.0
    join_s: float = 1.0
    reidentify_s: float = 60.0
    reidentify_from: float = 0.8
    position_sigma_m: float = 0.2
    acceleration_sigma: float = 4.0
    speed_sigma_m_s: float = 10.0
    velocity_sigma_m_s: float = 1.0
    yaw_sigma_rad: float = 0.2
    yaw_rate_sigma: float = 0.5
    size_memory: float = 8.0
    moving_m_s: float = 1.0

    def __post_init__(self) -> None:
        signed = {"high_score", "low_score", "bias", "tell_from", "mend_from", "coast_bias", "coast_from"}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigError(f"{item.name} must be a finite number, got {value!r}")
            if value < 0 and item.name not in signed:
                raise ConfigError(f"{item.name} must not be negative, got {value}")
        for name in ("gate_m", "position_sigma_m", "velocity_sigma_m_s", "yaw_sigma_rad", "size_memory"):
            if getattr(self, name) == 0:
                raise ConfigError(f"{name} must be above 0")


def _classes() -> dict[str, ClassConfig]:
    return {
        "Car": ClassConfig(),
        "Pedestrian": ClassConfig(gate_m=1.5, acceleration_sigma=1.5, speed_sigma_m_s=2.0, yaw_sigma_rad=0.5),
        "Cyclist": ClassConfig(gate_m=2.5, acceleration_sigma=2.5, speed_sigma_m_s=5.0),
    }


@dataclass(frozen=True)
class TrackerConfig:
    """Settings of a :class:`~perception.track.Tracker`.

    Attributes:
        classes: settings by class name.
        other: settings of all other classes.
        frame_s: time between frames without time stamps.

    Raises:
        ConfigError: ``frame_s`` is not above 0.
    """

    classes: Mapping[str, ClassConfig] = field(default_factory=_classes)
    other: ClassConfig = field(default_factory=ClassConfig)
    frame_s: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.frame_s) and self.frame_s > 0):
            raise ConfigError(f"frame_s must be above 0, got {self.frame_s}")

    @classmethod
    def for_log_odds(cls) -> TrackerConfig:
        """Return settings for scores that are raw log-odds, fitted to PointRCNN's boxes on KITTI."""
        raw = {
            name: replace(one, high_score=0.0, coast_bias=0.2, **_RAW[name])
            for name, one in _classes().items()
        }
        return cls(classes=raw, other=raw["Car"])

    @classmethod
    def for_nuscenes(cls) -> TrackerConfig:
        """Return settings for nuScenes' tracking task: its classes at two frames per second.

        Every observed track is reported, because the benchmark selects tracks by score.
        """
        shared: dict[str, Any] = {
            "alone_cost": 1.25,
            "high_score": -2.5,
            "tell_from": -20.0,
            "mend_from": -20.0,
            "coast_s": 0.0,
            "forget_s": 1.6,
            "join_s": 1.6,
        }
        return cls(
            classes={name: ClassConfig(**shared | own) for name, own in _NUSCENES.items()},
            other=ClassConfig(**shared),
            frame_s=0.5,
        )


#: The gates are those of CenterPoint's tracker (Yin et al., CVPR 2021).
_NUSCENES: dict[str, dict[str, float]] = {
    "car": {"gate_m": 4.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "truck": {"gate_m": 4.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "bus": {"gate_m": 5.5, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "trailer": {"gate_m": 3.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "pedestrian": {"gate_m": 1.0, "acceleration_sigma": 1.5, "speed_sigma_m_s": 2.0, "yaw_sigma_rad": 0.5},
    "motorcycle": {"gate_m": 13.0},
    "bicycle": {"gate_m": 3.0, "acceleration_sigma": 2.5, "speed_sigma_m_s": 5.0},
}
#: Cars: logistic regression of true track boxes on nine KITTI sequences. Other classes: set by hand.
_RAW = {
    "Car": {"bias": -10.8, "range_weight": 0.16},
    "Pedestrian": {"bias": -8.0, "range_weight": 0.16},
    "Cyclist": {"bias": -9.0, "range_weight": 0.16},
}


class Parameters:
    """Columns of a config's fields, indexed by the tracker's class numbers."""

    def __init__(self, config: TrackerConfig, names: Sequence[str] = ()) -> None:
        self.config = config
        self.names = list(names)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._fill()

    def numbers_of(self, labels: Sequence[str]) -> Int64Array:
        """Return (M,) class numbers of labels; new labels get new numbers."""
        found = [self._number.get(label, -1) for label in labels]
        if -1 in found:
            for label in labels:
                if label not in self._number:
                    self._number[label] = len(self.names)
                    self.names.append(label)
            self._fill()
            found = [self._number[label] for label in labels]
        return np.array(found, np.int64)

    def column(self, name: str) -> Float64Array:
        """Return the (classes,) float64 values of a :class:`ClassConfig` field."""
        return self._columns[name]

    def _fill(self) -> None:
        chosen = [self.config.classes.get(name, self.config.other) for name in self.names]
        self._columns = {
            item.name: np.array([getattr(one, item.name) for one in chosen], np.float64)
            for item in fields(ClassConfig)
        }
        # Variances of centre, heading, initial and estimated speed, then growth of speed and heading variance
        # per second.
        self.noise = self.column("position_sigma_m") ** 2
        self.yaw_noise = self.column("yaw_sigma_rad") ** 2
        self.speed_noise = self.column("speed_sigma_m_s") ** 2
        self.velocity_noise = self.column("velocity_sigma_m_s") ** 2
        self.density = self.column("acceleration_sigma") ** 2
        self.turning = self.column("yaw_rate_sigma") ** 2
