"""Configuration of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from perception.class_names import same_class, unknown_class
from perception.config.checks import check, check_classes
from perception.config.detector import DetectorConfig
from perception.errors import ConfigError


@dataclass(frozen=True)
class AugmentConfig:
    """Random changes of a training frame.

    Attributes:
        flip: mirror left and right with probability 1/2.
        rotation_rad: largest rotation of the scene.
        quarter_turns: rotate the scene and pasted objects by multiples of 90 degrees instead, and turn no
            object alone. Boxes keep their yaw and swap length and width, as for labels without headings.
        scale: scale the scene by a factor in 1 +- scale.
        translation_m: standard deviation of the shift of the scene.
        shift_m: largest further shift of the scene and of pasted objects in x and y, for thinned scans
            (``pillars.cube_m``), which look alike at all distances.
        paste: by class, number of objects to fill a frame up to, pasted from other frames.
        object_noise_rad, object_noise_m: standard deviation of rotation and shift of each object.
        paste_rest: the same number for classes that ``paste`` does not name.
        paste_view_rad: half opening angle of the view around x that pasted objects are rotated into; 0.7 is
            KITTI's camera view, pi a full turn.
        paste_extra_below: also paste objects of the extra frames for classes with fewer objects than this in
            the main frames; 0: never.
        paste_same_sensor: paste only objects of a frame's own sensor for classes with at least so many of
            them, because other sensors have denser or sparser points; 0: of all sensors.
        paste_shadows: remove points behind a pasted object, as seen from the origin. The loss ignores objects
            that lose all points.
        drop_points: largest share of points to drop.
        thin_objects: probability to thin a pasted object as if it were farther away.
        drop_beams: probability to keep only every second or fourth beam of the sensor, at least 16. The loss
            ignores objects that lose all points.
        beam_gap_rad: angle between two of 64 beams; other sensors' gaps follow from their number of beams.
        sensor_height_m: largest change of the sensor's height.
        tilt_rad: largest tilt of the sensor, as roll and pitch of the whole scene.
        range_noise_m: standard deviation of points along their rays.
        intensity_scale: multiply the intensities of a frame by a factor in 1 +- scale.
        intensity_factor: multiply the intensities of a frame by a factor between its inverse and itself, even
            on a logarithmic scale; sensors differ by factors of ten.
        drop_intensity: probability to set all intensities of a frame to zero.
    """

    flip: bool = True
    rotation_rad: float = 0.5
    quarter_turns: bool = False
    scale: float = 0.05
    translation_m: float = 0.2
    shift_m: float = 0.0
    paste: dict[str, int] = field(default_factory=lambda: {"Car": 15, "Pedestrian": 8, "Cyclist": 8})
    object_noise_rad: float = 0.15
    object_noise_m: float = 0.25
    paste_rest: int = 0
    paste_view_rad: float = 0.7
    paste_extra_below: int = 100
    paste_same_sensor: int = 0
    paste_shadows: bool = False
    drop_points: float = 0.1
    thin_objects: float = 0.3
    drop_beams: float = 0.0
    beam_gap_rad: float = 0.007
    sensor_height_m: float = 0.0
    tilt_rad: float = 0.0
    range_noise_m: float = 0.0
    intensity_scale: float = 0.0
    intensity_factor: float = 1.0
    drop_intensity: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "rotation_rad", "translation_m", "shift_m", "object_noise_rad", "object_noise_m",
            "sensor_height_m", "range_noise_m",
        ):  # fmt: skip
            value = getattr(self, name)
            check(0 <= value < math.inf, f"augment.{name}", "not negative", value)
        for name in ("scale", "drop_points"):
            check(0 <= getattr(self, name) < 1, f"augment.{name}", "in [0, 1)", getattr(self, name))
        check(
            1 <= self.intensity_factor < math.inf,
            "augment.intensity_factor",
            "1 or more",
            self.intensity_factor,
        )
        check(0 <= self.tilt_rad < 0.5, "augment.tilt_rad", "in [0, 0.5)", self.tilt_rad)
        for name in ("paste_rest", "paste_extra_below", "paste_same_sensor"):
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
    """Training of a detector.

    Attributes:
        detector: configuration of the detector.
        augment: random changes of the frames.
        steps: optimiser steps.
        batch_size: frames per step.
        learning_rate: peak of the one-cycle schedule.
        weight_decay: weight decay of AdamW.
        gradient_clip: largest gradient norm.
        precision: ``"float32"``, ``"bfloat16"`` or ``"float16"`` (loss-scaled) autocast.
        average_decay: decay of the moving average of the weights, which are evaluated and saved.
        extra_share: share of frames from the extra data sets, if there are any.
        extra_until: fraction of the steps after which only the main data set is used.
        workers: processes that prepare frames.
        memory_gb: memory for points, shared by the processes; further frames are read again for each use.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between evaluations on the split ``val``; the best weights are kept. 0: evaluate
            at the end only, and keep the last weights.
        seed: seed of all random numbers.
        names: class of the detector by name in labels, "" for objects to ignore. With such a table,
            classes that the labels of a data set cannot have are ignored in its frames: their absence teaches
            nothing.
            Names of classes stand for themselves. Empty: labels have the names of the classes, and all others
            are background, except similar ones (:attr:`DataSet.neighbours
            <perception.data.DataSet.neighbours>`).
        teacher: finished weights whose maps the detector also learns to reproduce: a shipped name or a file.
            Empty: none. They must have the same pillars, classes and map as the detector.
        teacher_classes: classes that the teacher teaches; empty: all. Its map is not followed near objects of
            other classes.
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
    validate_every: int = 0
    seed: int = 0
    names: dict[str, str] = field(default_factory=dict)
    teacher: str = ""
    teacher_classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "checkpoint_every", "learning_rate", "gradient_clip"):
            check(getattr(self, name) > 0, name, "positive", getattr(self, name))
        for name in ("workers", "memory_gb", "weight_decay", "validate_every", "seed"):
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
        check_classes("teacher_classes", self.teacher_classes, classes)
        check_classes("names", filter(None, self.names.values()), classes)
        for name in self.augment.paste if self.augment.paste != AugmentConfig().paste else ():
            # Ignore other unknown classes: one table may serve several detectors.
            if name not in classes and same_class(name, classes) is not None:
                raise ConfigError(f"augment.paste: {unknown_class(name, classes)}")
