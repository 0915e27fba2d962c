"""The configuration of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from perception.class_names import same_class, unknown_class
from perception.config.checks import check
from perception.config.detector import DetectorConfig
from perception.errors import ConfigError


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes of a training frame.

    Attributes:
        flip: mirror left and right with probability 1/2.
        rotation_rad: turn the scene by up to this much.
        scale: enlarge the scene by a factor in 1 +- scale.
        translation_m: shift the scene by a normal vector of this deviation.
        paste: objects of other frames pasted in until a frame holds this many, per class.
        object_noise_rad, object_noise_m: turn and shift each object on its own (deviation).
        paste_rest: the same for each class that ``paste`` does not name.
        paste_view_rad: half of the view around x that pasted objects are swung to; 0.7 is what KITTI's camera
            sees, pi all around.
        paste_extra_below: of classes with fewer objects than this in the main frames, those of the extra
            frames are pasted too; 0: only what the main frames hold.
        paste_shadows: points behind a pasted object, as seen from the origin, are removed; an object that
            loses all of its points is neither a find nor a false alarm.
        drop_points: at most this share of all points is dropped.
        thin_objects: probability to thin a pasted object to what a farther one would return.
        drop_beams: probability to keep only every second or fourth beam of the sensor.
        beam_gap_rad: angle between two beams, by which they are told apart; 0.4 degrees of 64 beams.
        sensor_height_m: the sensor is raised or lowered by up to this much.
        range_noise_m: points move along their rays (deviation).
        intensity_scale: intensities are multiplied by a factor in 1 +- scale, one a frame.
        drop_intensity: probability that a frame has no intensity: all zero.
    """

    flip: bool = True
    rotation_rad: float = 0.5
    scale: float = 0.05
    translation_m: float = 0.2
    paste: dict[str, int] = field(default_factory=lambda: {"Car": 15, "Pedestrian": 8, "Cyclist": 8})
    object_noise_rad: float = 0.15
    object_noise_m: float = 0.25
    paste_rest: int = 0
    paste_view_rad: float = 0.7
    paste_extra_below: int = 100
    paste_shadows: bool = False
    drop_points: float = 0.1
    thin_objects: float = 0.3
    drop_beams: float = 0.0
    beam_gap_rad: float = 0.007
    sensor_height_m: float = 0.0
    range_noise_m: float = 0.0
    intensity_scale: float = 0.0
    drop_intensity: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "rotation_rad", "translation_m", "object_noise_rad", "object_noise_m", "sensor_height_m",
            "range_noise_m",
        ):  # fmt: skip
            value = getattr(self, name)
            check(0 <= value < math.inf, f"augment.{name}", "not negative", value)
        for name in ("scale", "drop_points"):
            check(0 <= getattr(self, name) < 1, f"augment.{name}", "in [0, 1)", getattr(self, name))
        for name in ("paste_rest", "paste_extra_below"):
            check(getattr(self, name) >= 0, f"augment.{name}", "not negative", getattr(self, name))
        check(
            0 <= self.paste_view_rad <= math.pi, "augment.paste_view_rad", "in [0, pi]", self.paste_view_rad
        )
        for name in ("thin_objects", "drop_beams", "intensity_scale", "drop_intensity"):
            check(0 <= getattr(self, name) <= 1, f"augment.{name}", "in [0, 1]", getattr(self, name))
        check(0 < self.beam_gap_rad < 1, "augment.beam_gap_rad", "in (0, 1)", self.beam_gap_rad)
        check(min(self.paste.values(), default=0) >= 0, "augment.paste", "counts by class", self.paste)


@dataclass(frozen=True)
class TrainConfig:
    """How a detector is trained.

    Attributes:
        detector: what is trained.
        augment: random changes of the frames.
        steps: optimiser steps.
        batch_size: frames a step.
        learning_rate: peak of the one-cycle schedule.
        weight_decay: of AdamW.
        gradient_clip: largest gradient norm.
        precision: ``"float32"``, ``"bfloat16"`` or ``"float16"`` (loss-scaled) autocast.
        average_decay: decay of the moving average of the weights, which is what gets evaluated and saved.
        extra_share: share of the frames taken from the extra data sets, if any are given.
        extra_until: fraction of the steps after which only the main data set is used.
        workers: processes that prepare frames.
        memory_gb: of points that are kept in memory, which the processes share; frames beyond are read again
            whenever they are used.
        checkpoint_every: steps between checkpoints.
        seed: of everything random.
    """

    detector: DetectorConfig = field(default_factory=DetectorConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    steps: int = 6000
    batch_size: int = 8
    learning_rate: float = 3e-3
    weight_decay: float = 0.02
    gradient_clip: float = 10.0
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    average_decay: float = 0.999
    extra_share: float = 0.3
    extra_until: float = 0.8
    workers: int = 4
    memory_gb: float = 4.0
    checkpoint_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "checkpoint_every", "learning_rate", "gradient_clip"):
            check(getattr(self, name) > 0, name, "positive", getattr(self, name))
        for name in ("workers", "memory_gb", "weight_decay", "seed"):
            check(getattr(self, name) >= 0, name, "not negative", getattr(self, name))
        check(0 <= self.average_decay < 1, "average_decay", "in [0, 1)", self.average_decay)
        check(0 <= self.extra_until <= 1, "extra_until", "in [0, 1]", self.extra_until)
        check(
            self.precision in ("float32", "bfloat16", "float16"),
            "precision",
            "'float32', 'bfloat16' or 'float16'",
            self.precision,
        )
        check(0 <= self.extra_share < 1, "extra_share", "in [0, 1)", self.extra_share)
        classes = self.detector.head.classes
        for name in self.augment.paste if self.augment.paste != AugmentConfig().paste else ():
            # Other unknown classes are left alone: one table may serve several detectors.
            if name not in classes and same_class(name, classes) is not None:
                raise ConfigError(f"augment.paste: {unknown_class(name, classes)}")
