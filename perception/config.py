"""Configuration: one frozen dataclass per stage, saved beside results.

YAML files have the same nesting as :class:`DetectorConfig` and :class:`TrainConfig`; unknown fields and
values out of range are errors that name the field.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import yaml

from perception.class_names import check_known, same_class, unknown_class
from perception.errors import ConfigError
from perception.geometry import BirdsEyeGrid, OpenGrid
from perception.registry import class_of
from sparse_core.common.files import write_file
from sparse_core.kernels.op import Impl

ConfigT = TypeVar("ConfigT")


def _check(condition: bool, field_name: str, expected: str, value: object) -> None:
    if not condition:
        raise ConfigError(f"{field_name} must be {expected}, got {value!r}")


def _check_classes(field_name: str, names: Iterable[str], classes: Sequence[str]) -> None:
    try:
        check_known(names, classes)
    except ValueError as error:
        raise ConfigError(f"{field_name}: {error}") from None


def _numbers(field_name: str, value: tuple[float, ...]) -> tuple[float, float]:
    _check(len(value) == 2 and all(map(math.isfinite, value)), field_name, "two finite numbers", value)
    return value[0], value[1]


#: Of a detector without a range.
_Z_RANGE_M = (-3.0, 1.0)
#: Square metres that the limits of a frame are written for: the default range, KITTI's camera view.
_REFERENCE_AREA_M2 = 69.12 * 79.36
#: Most that limits grow with the area: buffers on a GPU are of their size.
_MOST_GROWTH = 16.0
#: Share by which floors of scores stay below what can just be reported, for rounding.
_FLOOR_SLACK = 1e-4


@dataclass(frozen=True)
class PillarConfig:
    """Pillars: columns of space that hold at least one point.

    Attributes:
        range_m: x, y, z minimum then x, y, z maximum; points outside are left out. None (``null`` in YAML):
            no range in x and y. Pillars are then found by 64-bit keys of their cells, and what a frame costs
            grows with the pillars that hold points, wherever they are.
        z_range_m: lowest z and the one above the highest, where there is no range; None: that of the
            default range.
        origin_m: x and y of a corner of pillars, where there is no range; None: 0, 0. With the minimum x, y
            of a range, pillars are that range's own.
        pillar_size_m: edge of a pillar in x and y.
        channels: width of a pillar's feature vector.
        max_pillars: capacity per frame; beyond it the pillars nearest to the sensor are kept and a
            warning says how many were left out.
    """

    range_m: tuple[float, float, float, float, float, float] | None = (0.0, -39.68, -3.0, 69.12, 39.68, 1.0)
    pillar_size_m: float = 0.16
    channels: int = 64
    max_pillars: int = 60_000
    z_range_m: tuple[float, float] | None = None
    origin_m: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check(self.pillar_size_m > 0, "pillars.pillar_size_m", "positive", self.pillar_size_m)
        if self.range_m is None:
            self._check_open()
        else:
            _check(len(self.range_m) == 6, "pillars.range_m", "six numbers or null", self.range_m)
            low, high = self.range_m[:3], self.range_m[3:]
            _check(
                all(-math.inf < a < b < math.inf for a, b in zip(low, high, strict=True)),
                "pillars.range_m",
                "minimum x, y, z below maximum x, y, z",
                self.range_m,
            )
            for name in ("z_range_m", "origin_m"):
                value = getattr(self, name)
                _check(value is None, f"pillars.{name}", "null where range_m is given, which has it", value)
        _check(
            self.channels > 0 and self.channels % 2 == 0,
            "pillars.channels",
            "positive and even",
            self.channels,
        )
        _check(self.max_pillars > 0, "pillars.max_pillars", "positive", self.max_pillars)

    def _check_open(self) -> None:
        low_m, high_m = _numbers("pillars.z_range_m", self.z_range_m or _Z_RANGE_M)
        _check(low_m < high_m, "pillars.z_range_m", "the lowest z, then a higher one", self.z_range_m)
        _numbers("pillars.origin_m", self.origin_m or (0.0, 0.0))

    @property
    def open(self) -> bool:
        """Whether there is no range in x and y."""
        return self.range_m is None

    @property
    def heights_m(self) -> tuple[float, float]:
        """Lowest z and the one above the highest."""
        if self.range_m is None:
            return self.z_range_m or _Z_RANGE_M
        return self.range_m[2], self.range_m[5]

    @property
    def growth(self) -> float:
        """Factor by which the limits of a frame grow with the area of the range, from 1 to 16.

        An unbounded range has the largest.
        """
        if self.range_m is None:
            return _MOST_GROWTH
        x_low, y_low, _, x_high, y_high, _ = self.range_m
        area_m2 = (x_high - x_low) * (y_high - y_low)
        return min(max(1.0, area_m2 / _REFERENCE_AREA_M2), _MOST_GROWTH)

    @property
    def grid(self) -> BirdsEyeGrid | OpenGrid:
        """The cells that pillars stand on."""
        if self.range_m is None:
            return OpenGrid(self.origin_m or (0.0, 0.0), self.heights_m, self.pillar_size_m)
        return BirdsEyeGrid(self.range_m, self.pillar_size_m)

    @property
    def closed_grid(self) -> BirdsEyeGrid:
        """The cells of the range.

        Raises:
            ConfigError: there is no range.
        """
        grid = self.grid
        if isinstance(grid, OpenGrid):
            raise ConfigError(
                "pillars.range_m is null: a detector without a range has no whole maps; give it a range"
            )
        return grid

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Rows (y) and columns (x) of the bird's-eye grid.

        Raises:
            ConfigError: there is no range, and so no shape.
        """
        return self.closed_grid.shape

    def with_range(self, range_m: Sequence[float] | None) -> PillarConfig:
        """The same pillars in another range, or in none.

        Args:
            range_m: six numbers; None: no range in x and y. Heights and pillars' corners stay then.
        """
        if range_m is not None:
            given = typing.cast(tuple[float, float, float, float, float, float], tuple(map(float, range_m)))
            return dataclasses.replace(self, range_m=given, z_range_m=None, origin_m=None)
        heights, origin = self.heights_m, self.grid.origin_m
        return dataclasses.replace(self, range_m=None, z_range_m=heights, origin_m=origin)


@dataclass(frozen=True)
class BackboneConfig:
    """Backbone: residual stages at 1, 1/2, 1/4 … of the pillar grid, then one stride into the neck.

    Attributes:
        kind: of detector, in :data:`~perception.registry.KINDS`. ``"sparse"`` computes at active pillars only;
            ``"dense"`` is the same network on the full grid.
        channels: width of each stage.
        blocks: residual blocks (two 3x3 convolutions each) of each stage.
        dilating: whether strided layers activate every cell whose window holds an input.
        impl: implementation of the sparse layers: ``"auto"``, ``"reference"``, ``"triton"`` or ``"vendor"``
            (spconv).
    """

    kind: str = "sparse"
    channels: tuple[int, ...] = (64, 64, 128)
    blocks: tuple[int, ...] = (2, 2, 2)
    dilating: bool = True
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        class_of(self.kind, "config")
        _check(
            len(self.channels) == len(self.blocks) >= 2,
            "backbone.channels and backbone.blocks",
            "of equal length, at least 2",
            (self.channels, self.blocks),
        )
        _check(min(self.channels) > 0, "backbone.channels", "positive", self.channels)
        _check(min(self.blocks) >= 0, "backbone.blocks", "not negative", self.blocks)

    @property
    def stride(self) -> int:
        """Pillars per cell of the map that the neck gets, along one axis."""
        return int(2 ** len(self.channels))


@dataclass(frozen=True)
class NeckConfig:
    """Dense neck: residual blocks at the backbone's stride, then up to half of it.

    Attributes:
        channels: width at the backbone's stride (1/8 by default).
        blocks: residual blocks there.
        out_channels: width of the map the head reads, at half the backbone's stride (1/4 by default).
    """

    channels: int = 128
    blocks: int = 2
    out_channels: int = 96

    def __post_init__(self) -> None:
        _check(self.channels > 0, "neck.channels", "positive", self.channels)
        _check(self.blocks >= 0, "neck.blocks", "not negative", self.blocks)
        _check(self.out_channels > 0, "neck.out_channels", "positive", self.out_channels)


@dataclass(frozen=True)
class HeadConfig:
    """Centre head: a heat map per class; boxes are read at its peaks only.

    Attributes:
        classes: names in the order of the labels.
        top_k: peaks of the heat map that boxes are read at, in a frame of the default range; larger ranges
            have more (:attr:`DetectorConfig.limits`).
        channels: width of the head's hidden layers.
        iou_weight: exponent of the predicted IoU in the score: score^(1 - w) * iou^w.
        sizes_m: by class, the length, width and height that its sizes are coded relative to, between an
            eighth and eight times of them. What is left out of KITTI's classes is theirs; of others
            ``perceive train`` fills in the means of the training boxes.
    """

    classes: tuple[str, ...] = ("Car", "Pedestrian", "Cyclist")
    top_k: int = 100
    channels: int = 96
    iou_weight: float = 0.5
    sizes_m: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_classes("head.sizes_m", self.sizes_m, self.classes)
        for name, sizes in self.sizes_m.items():
            good = len(sizes) == 3 and all(0 < value < math.inf for value in sizes)
            _check(good, f"head.sizes_m of {name}", "three positive lengths", sizes)
        _check(len(self.classes) > 0, "head.classes", "at least one name", self.classes)
        _check(len(set(self.classes)) == len(self.classes), "head.classes", "distinct names", self.classes)
        _check(self.top_k > 0, "head.top_k", "positive", self.top_k)
        _check(self.channels > 0, "head.channels", "positive", self.channels)
        _check(0 <= self.iou_weight <= 1, "head.iou_weight", "in [0, 1]", self.iou_weight)


@dataclass(frozen=True)
class NmsConfig:
    """Suppression of overlapping boxes.

    Attributes:
        proposal_iou: overlap (BEV) above which proposals of a class are duplicates, before refinement.
        iou: overlap (BEV) above which final boxes of a class are duplicates.
        score_threshold: final boxes below it are left out.
        max_boxes: final boxes of a frame of the default range; larger ranges have more
            (:attr:`DetectorConfig.limits`).
        report_thresholds: by class, the score from which boxes are reported; of other classes from
            ``score_threshold`` on. Evaluation looks at all of them.
        score_maps: by class, scale and bias of what is reported as the score of a final box:
            ``sigmoid(scale * logit(score) + bias)``. ``report_thresholds`` are compared with that,
            ``score_threshold`` with the score itself.
        footprints_m: by class, the length and width that every final box has, in place of those found: of
            things whose own no laser shows, such as people.
    """

    proposal_iou: float = 0.7
    iou: float = 0.1
    score_threshold: float = 0.1
    max_boxes: int = 64
    report_thresholds: dict[str, float] = field(default_factory=dict)
    score_maps: dict[str, tuple[float, float]] = field(default_factory=dict)
    footprints_m: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("proposal_iou", "iou", "score_threshold"):
            value = getattr(self, name)
            _check(0 <= value <= 1, f"nms.{name}", "in [0, 1]", value)
        for label, value in self.report_thresholds.items():
            _check(0 <= value <= 1, f"nms.report_thresholds of {label}", "in [0, 1]", value)
        for label, values in self.score_maps.items():
            scale, _ = _numbers(f"nms.score_maps of {label}", values)
            _check(scale > 0, f"nms.score_maps of {label}", "a positive scale and a bias", values)
        for label, values in self.footprints_m.items():
            sides = _numbers(f"nms.footprints_m of {label}", values)
            _check(min(sides) > 0, f"nms.footprints_m of {label}", "two positive lengths", values)
        _check(self.max_boxes > 0, "nms.max_boxes", "positive", self.max_boxes)

    @property
    def proposal_score(self) -> float:
        """Score that a proposal must exceed: less than the final one, which its refined box may raise."""
        return self.score_threshold * 0.25

    def unmapped(self, label: str, score: float) -> float:
        """Return the score of a final box that ``score_maps`` turn into this reported one."""
        scale, bias = self.score_maps.get(label, (1.0, 0.0))
        if not 0 < score < 1:
            return score
        return 1 / (1 + math.exp((bias - math.log(score / (1 - score))) / scale))


@dataclass(frozen=True)
class RefineConfig:
    """Second stage: points around each proposal refine its box and score.

    Attributes:
        enabled: run it.
        proposals: proposals refined in a frame of the default range, best first; larger ranges have more
            (:attr:`DetectorConfig.limits`).
        margin_m: the crop is the proposal enlarged by this much on every side.
        channels: widths of the per-point layers.
        iterations: cascade steps; each crops around the box of the step before, with weights of its own.
    """

    enabled: bool = True
    proposals: int = 64
    margin_m: float = 0.6
    channels: tuple[int, ...] = (64, 128, 256)
    iterations: int = 1

    def __post_init__(self) -> None:
        _check(self.proposals > 0, "refine.proposals", "positive", self.proposals)
        _check(0 <= self.margin_m < math.inf, "refine.margin_m", "not negative", self.margin_m)
        _check(
            len(self.channels) > 0 and min(self.channels) > 0,
            "refine.channels",
            "positive widths",
            self.channels,
        )
        _check(self.iterations > 0, "refine.iterations", "positive", self.iterations)


@dataclass(frozen=True)
class EmbeddingConfig:
    """A vector for each box, from the features of the last refinement step; two sights of an object are near.

    Attributes:
        enabled: whether there is one. Trained after everything else (``perceive train embedding``).
    """

    enabled: bool = False


class Limits(NamedTuple):
    """Most of a frame at each step: peaks read, proposals refined, boxes reported."""

    peaks: int
    proposals: int
    boxes: int


@dataclass(frozen=True)
class DetectorConfig:
    """Everything that decides what a detector computes; saved beside its weights."""

    name: str = "pointpillars"
    pillars: PillarConfig = field(default_factory=PillarConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    neck: NeckConfig = field(default_factory=NeckConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    nms: NmsConfig = field(default_factory=NmsConfig)
    refine: RefineConfig = field(default_factory=RefineConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)

    def __post_init__(self) -> None:
        _check(
            self.refine.enabled or not self.embedding.enabled,
            "embedding.enabled",
            "false without a refinement (refine.enabled), whose features it reads",
            self.embedding.enabled,
        )
        for name in ("report_thresholds", "footprints_m"):
            _check_classes(f"nms.{name}", getattr(self.nms, name), self.head.classes)
        if self.pillars.open:
            self._check_open()
            return
        self._check_range()

    def _check_range(self) -> None:
        """Refuse a range that does not end on a cell of the coarsest map; name the nearest ones that do."""
        stride, pillars = self.backbone.stride, self.pillars
        if pillars.range_m is None or not any(count % stride for count in pillars.grid_shape):
            return
        cell_m = pillars.pillar_size_m * stride
        advice = []
        for axis, count in zip((1, 0), pillars.grid_shape, strict=True):
            if count % stride:
                low, cells = pillars.range_m[axis], max(1, count // stride)
                ends = " or ".join(f"{low + many * cell_m:.10g}" for many in (cells, cells + 1))
                advice.append(f"{'xy'[axis]} from {low:g} to {ends}")
        raise ConfigError(
            f"pillars.range_m must be a whole number of {stride} pillars ({cell_m:g} m) long in x and y, got"
            f" {list(pillars.range_m)}; the nearest that fit: {'; '.join(reversed(advice))}"
        )

    @cached_property
    def limits(self) -> Limits:
        """Limits of a frame, grown with the area of its range (:attr:`PillarConfig.growth`).

        They bound the time of a frame; one that reaches a limit says so in ``Detections.warnings``. Converted
        detectors keep the numbers of their source.
        """
        configured = self.head.top_k, self.refine.proposals, self.nms.max_boxes
        growth = self.pillars.growth if self.backbone.kind in ("sparse", "dense") else 1.0
        return Limits(*(math.ceil(most * growth) for most in configured))

    @cached_property
    def proposal_scores(self) -> tuple[float, ...]:
        """By class, the score that a proposal must exceed to be refined.

        A final score is ``score^(1 - w) * fit^w`` with a fit of at most 1, so a proposal below
        ``threshold^(1 / (1 - w))`` can neither be reported nor suppress what is.
        """
        weight = self.head.iou_weight if self.refine.enabled else 0.0
        scores = []
        for label in self.head.classes:
            least = self.nms.unmapped(label, self.nms.report_thresholds.get(label, 0.0))
            least = max(least, self.nms.score_threshold)
            reachable = least ** (1 / (1 - weight)) * (1 - _FLOOR_SLACK) if weight < 1 else 0.0
            scores.append(max(self.nms.proposal_score, reachable))
        return tuple(scores)

    def _check_open(self) -> None:
        backbone = self.backbone
        _check(
            backbone.kind == "sparse" and backbone.dilating and backbone.impl == "auto",
            "pillars.range_m",
            "six numbers unless backbone.kind is 'sparse', dilating, of impl 'auto': others need whole maps",
            self.pillars.range_m,
        )
        _check(
            backbone.stride <= 64, "backbone.channels", "at most 6 where range_m is null", backbone.channels
        )

    def with_range(self, range_m: Sequence[float] | None) -> DetectorConfig:
        """The same detector in another range, or in none; see :meth:`PillarConfig.with_range`."""
        return dataclasses.replace(self, pillars=self.pillars.with_range(range_m))

    def with_classes(self, classes: Sequence[str]) -> DetectorConfig:
        """The same detector for other classes; what is set for classes that both know stays."""
        names = tuple(classes)
        sizes = {name: size for name, size in self.head.sizes_m.items() if name in names}
        thresholds = {name: score for name, score in self.nms.report_thresholds.items() if name in names}
        footprints = {name: sides for name, sides in self.nms.footprints_m.items() if name in names}
        return dataclasses.replace(
            self,
            head=dataclasses.replace(self.head, classes=names, sizes_m=sizes),
            nms=dataclasses.replace(self.nms, report_thresholds=thresholds, footprints_m=footprints),
        )


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
            _check(0 <= value < math.inf, f"augment.{name}", "not negative", value)
        for name in ("scale", "drop_points"):
            _check(0 <= getattr(self, name) < 1, f"augment.{name}", "in [0, 1)", getattr(self, name))
        for name in ("paste_rest", "paste_extra_below"):
            _check(getattr(self, name) >= 0, f"augment.{name}", "not negative", getattr(self, name))
        _check(
            0 <= self.paste_view_rad <= math.pi, "augment.paste_view_rad", "in [0, pi]", self.paste_view_rad
        )
        for name in ("thin_objects", "drop_beams", "intensity_scale", "drop_intensity"):
            _check(0 <= getattr(self, name) <= 1, f"augment.{name}", "in [0, 1]", getattr(self, name))
        _check(0 < self.beam_gap_rad < 1, "augment.beam_gap_rad", "in (0, 1)", self.beam_gap_rad)
        _check(min(self.paste.values(), default=0) >= 0, "augment.paste", "counts by class", self.paste)


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
            _check(getattr(self, name) > 0, name, "positive", getattr(self, name))
        for name in ("workers", "memory_gb", "weight_decay", "seed"):
            _check(getattr(self, name) >= 0, name, "not negative", getattr(self, name))
        _check(0 <= self.average_decay < 1, "average_decay", "in [0, 1)", self.average_decay)
        _check(0 <= self.extra_until <= 1, "extra_until", "in [0, 1]", self.extra_until)
        _check(
            self.precision in ("float32", "bfloat16", "float16"),
            "precision",
            "'float32', 'bfloat16' or 'float16'",
            self.precision,
        )
        _check(0 <= self.extra_share < 1, "extra_share", "in [0, 1)", self.extra_share)
        classes = self.detector.head.classes
        for name in self.augment.paste if self.augment.paste != AugmentConfig().paste else ():
            # Other unknown classes are left alone: one table may serve several detectors.
            if name not in classes and same_class(name, classes) is not None:
                raise ConfigError(f"augment.paste: {unknown_class(name, classes)}")


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain nested dicts and lists, ready for YAML or JSON."""
    result: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return result


def from_dict(kind: type[ConfigT], values: Mapping[str, Any], *, where: str = "") -> ConfigT:
    """Build a configuration from nested dicts; missing fields keep their defaults.

    Args:
        kind: the dataclass to build.
        values: fields by name.
        where: prefix of field names in messages.

    Raises:
        ConfigError: an unknown field, or a value of the wrong type or out of range.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'configuration'} must be a mapping of fields, got {values!r}")
    hints = typing.get_type_hints(kind)
    known = {entry.name for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown field {where}{name}; known: {', '.join(sorted(known))}")
    arguments = {name: _convert(hints[name], value, f"{where}{name}") for name, value in values.items()}
    return kind(**arguments)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if hint is BackboneConfig and isinstance(value, Mapping):
            hint = class_of(value.get("kind", BackboneConfig.kind), "config")
        return from_dict(typing.cast(type[Any], hint), value, where=f"{name}.")
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        # The only unions are of one type and None.
        given, *_ = (part for part in typing.get_args(hint) if part is not type(None))
        return None if value is None else _convert(given, value, name)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, entry, name) for entry in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} must be a mapping, got {value!r}")
        key_hint, entry_hint = typing.get_args(hint)
        return {
            _convert(key_hint, key, name): _convert(entry_hint, entry, name) for key, entry in value.items()
        }
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(f"{name} must be one of {', '.join(typing.get_args(hint))}; got {value!r}")
        return value
    if hint is bool or isinstance(value, bool):
        if hint is not bool or not isinstance(value, bool):
            raise ConfigError(
                f"{name} must be {'true or false' if hint is bool else hint.__name__}, got {value!r}"
            )
        return value
    if hint is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, hint):
        raise ConfigError(f"{name} must be {hint.__name__}, got {value!r}")
    return value


def load_config(kind: type[ConfigT], path: str | Path) -> ConfigT:
    """Read a YAML file into a configuration.

    Raises:
        ConfigError: the file is missing, is not YAML, or has a wrong field.
    """
    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, KeyError) as error:
        # The library's own errors do not cover nesting, numbers of thousands of digits, dates, ...
        raise ConfigError(f"{path}: not a YAML file: {str(error)[:500] or type(error).__name__}") from error
    try:
        return from_dict(kind, {} if values is None else values)
    except (ValueError, OverflowError, RecursionError) as error:
        # A whole number of thousands of digits is no float, and cannot be printed either.
        raise ConfigError(f"{path}: {str(error)[:500] or type(error).__name__}") from error


def save_config(config: Any, path: str | Path) -> None:
    """Write a configuration as YAML."""
    write_file(Path(path), yaml.safe_dump(to_dict(config), sort_keys=False, default_flow_style=None))
