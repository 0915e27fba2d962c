"""What a tracker expects of things by class, and of detectors."""

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
    """How things of a class move, are found and vanish.

    Scores are taken as log-odds, ``log(p / (1 - p))``: 0 is even odds. How far a track is believed in is one
    sum, in log-odds too: of its score now, the mean of its scores, the logarithm of how many boxes it had,
    and its range (a weak box nearby tells more against a thing than one far away), each with a weight.

    Attributes:
        gate_m: a box farther than this from where a track is expected is none of it.
        gate_growth_m_s: so much farther for each second without a box.
        turn_cost: what a heading off by a quarter turn costs, in gates; a half turn costs nothing.
        size_cost: what a size off by half costs, in gates.
        alone_cost: what it costs to leave a track without a box and the box to itself, in gates: a pair that
            costs more is not made. Of a track that was seen once, and where
            frames come slower than at 4 Hz, at least a gate: nobody knows the speed.
        high_score: boxes from this log-odds on are associated first, and may found a track.
        low_score: boxes below this are not looked at.
        score_weight, mean_weight, hits_weight, range_weight, bias: of the belief; the range in metres.
        tell_from: a track is told from this belief on.
        mend_from: with what came later at hand, a whole track is told from this belief on.
        coast_bias, coast_weight: belief that being unseen costs beside the score now, and each frame of it.
        coast_from: an unseen track is told from this belief on,
        coast_s: and so long,
        forget_s: and may be seen again so long, and for three frames where those take longer.
        join_s: with what came later at hand, gaps so long are filled, and fragments joined.
        reidentify_s: later than that it comes back by its vector, up to so long.
        reidentify_from: least product of the vectors.
        position_sigma_m: of the centre of a box.
        acceleration_sigma: of the thing, root of the spectral density, m/s^1.5.
        speed_sigma_m_s: of the speed of a thing that was seen once.
        yaw_sigma_rad: of the heading of a box.
        yaw_rate_sigma: of headings over time, rad/s^0.5.
        size_memory: how many boxes a size is averaged over, at most.
        moving_m_s: a thing is told to move from this speed on, where that is beyond doubt.

    Raises:
        ConfigError: a field is no finite number, or a negative size, time or deviation.
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
        for name in ("gate_m", "position_sigma_m", "yaw_sigma_rad", "size_memory"):
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
    """What a :class:`~perception.track.Tracker` expects.

    Attributes:
        classes: by class name.
        other: of classes that are not named.
        frame_s: time between frames that say none.

    Raises:
        ConfigError: a time that is not above 0.
    """

    classes: Mapping[str, ClassConfig] = field(default_factory=_classes)
    other: ClassConfig = field(default_factory=ClassConfig)
    frame_s: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.frame_s) and self.frame_s > 0):
            raise ConfigError(f"frame_s must be above 0, got {self.frame_s}")

    @classmethod
    def for_log_odds(cls) -> TrackerConfig:
        """For boxes whose scores are log-odds as a network gave them: fitted to PointRCNN's on KITTI."""
        raw = {
            name: replace(one, high_score=0.0, coast_bias=0.2, **_RAW[name])
            for name, one in _classes().items()
        }
        return cls(classes=raw, other=raw["Car"])

    @classmethod
    def for_nuscenes(cls) -> TrackerConfig:
        """For the classes of nuScenes' tracking task, at its two frames a second.

        All that is seen is told: its benchmark chooses among tracks by their scores.
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


#: Gates in metres are those of CenterPoint's tracker (Yin et al., CVPR 2021).
_NUSCENES: dict[str, dict[str, float]] = {
    "car": {"gate_m": 4.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "truck": {"gate_m": 4.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "bus": {"gate_m": 5.5, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "trailer": {"gate_m": 3.0, "position_sigma_m": 0.4, "acceleration_sigma": 2.0},
    "pedestrian": {"gate_m": 1.0, "acceleration_sigma": 1.5, "speed_sigma_m_s": 2.0, "yaw_sigma_rad": 0.5},
    "motorcycle": {"gate_m": 13.0},
    "bicycle": {"gate_m": 3.0, "acceleration_sigma": 2.5, "speed_sigma_m_s": 5.0},
}
#: Cars: a logistic regression on which boxes of tracks are true, on nine sequences of KITTI; others by hand.
_RAW = {
    "Car": {"bias": -10.8, "range_weight": 0.16},
    "Pedestrian": {"bias": -8.0, "range_weight": 0.16},
    "Cyclist": {"bias": -9.0, "range_weight": 0.16},
}


class Parameters:
    """The numbers of a config as columns, by the number that a class has in a tracker.

    Args:
        config: of the tracker.
        names: classes that have numbers already.
    """

    def __init__(self, config: TrackerConfig, names: Sequence[str] = ()) -> None:
        self.config = config
        self.names = list(names)
        self._number = {name: number for number, name in enumerate(self.names)}
        self._fill()

    def numbers_of(self, labels: Sequence[str]) -> Int64Array:
        """(M,) numbers of class names; new ones are added."""
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
        """(classes,) float64 of a field of :class:`ClassConfig`."""
        return self._columns[name]

    def _fill(self) -> None:
        chosen = [self.config.classes.get(name, self.config.other) for name in self.names]
        self._columns = {
            item.name: np.array([getattr(one, item.name) for one in chosen], np.float64)
            for item in fields(ClassConfig)
        }
        # Variances of a centre, a heading and a first speed; what a second adds to speed and heading.
        self.noise = self.column("position_sigma_m") ** 2
        self.yaw_noise = self.column("yaw_sigma_rad") ** 2
        self.speed_noise = self.column("speed_sigma_m_s") ** 2
        self.density = self.column("acceleration_sigma") ** 2
        self.turning = self.column("yaw_rate_sigma") ** 2
