"""Configuration of a detector and of its stages after the backbone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from perception.config.backbone import BackboneConfig, CentreConfig
from perception.config.checks import check, check_classes, finite_pair
from perception.config.pillars import PillarConfig
from perception.errors import ConfigError

#: Relative margin of score floors, for rounding.
_FLOOR_SLACK = 1e-4


@dataclass(frozen=True)
class NeckConfig:
    """Dense neck: residual blocks at the backbone's stride, then up to half of it.

    Attributes:
        channels: width at the backbone's stride (1/8 by default).
        blocks: residual blocks at that stride.
        out_channels: width of the head's input map, at half the backbone's stride (1/4 by default).
    """

    channels: int = 128
    blocks: int = 2
    out_channels: int = 96

    def __post_init__(self) -> None:
        check(self.channels > 0, "neck.channels", "positive", self.channels)
        check(self.blocks >= 0, "neck.blocks", "not negative", self.blocks)
        check(self.out_channels > 0, "neck.out_channels", "positive", self.out_channels)


@dataclass(frozen=True)
class HeadConfig:
    """Centre head: one heat map per class; boxes are read at its peaks only.

    Attributes:
        classes: class names in the order of the labels.
        top_k: peaks per frame of the default range; larger ranges have more
            (:attr:`DetectorConfig.limits`).
        channels: width of the hidden layers.
        iou_weight: exponent w of the predicted IoU in the score: score^(1 - w) * iou^w.
        sizes_m: by class, reference length, width and height. Box sizes are 1/8 to 8 times these. KITTI's
            classes have defaults; for others ``perceive train`` sets the mean of the training boxes.
        headings: False if the labels have no headings: training does not learn any, and all boxes lie along
            the axes, with yaw 0.
        velocity: estimate the velocity of each box over the ground; needs a refinement or ``backbone.kind:
            centres``. Training needs labels with velocities, see
            :attr:`Frame.velocities <perception.data.Frame.velocities>`.
    """

    classes: tuple[str, ...] = ("Car", "Pedestrian", "Cyclist")
    top_k: int = 100
    channels: int = 96
    iou_weight: float = 0.5
    sizes_m: dict[str, tuple[float, ...]] = field(default_factory=dict)
    headings: bool = True
    velocity: bool = False

    def __post_init__(self) -> None:
        check_classes("head.sizes_m", self.sizes_m, self.classes)
        for name, sizes in self.sizes_m.items():
            good = len(sizes) == 3 and all(0 < value < math.inf for value in sizes)
            check(good, f"head.sizes_m of {name}", "three positive lengths", sizes)
        check(len(self.classes) > 0, "head.classes", "at least one name", self.classes)
        check(len(set(self.classes)) == len(self.classes), "head.classes", "distinct names", self.classes)
        check(self.top_k > 0, "head.top_k", "positive", self.top_k)
        check(self.channels > 0, "head.channels", "positive", self.channels)
        check(0 <= self.iou_weight <= 1, "head.iou_weight", "in [0, 1]", self.iou_weight)


@dataclass(frozen=True)
class NmsConfig:
    """Suppression of overlapping boxes.

    Attributes:
        proposal_iou: BEV IoU above which proposals of a class are duplicates, before refinement.
        iou: BEV IoU above which final boxes of a class are duplicates.
        score_threshold: lowest score of final boxes.
        max_boxes: final boxes per frame of the default range; larger ranges have more
            (:attr:`DetectorConfig.limits`).
        report_thresholds: by class, lowest reported score; other classes use ``score_threshold``. Evaluation
            ignores these thresholds.
        score_maps: by class, scale and bias of the reported score ``sigmoid(scale * logit(score) + bias)``.
            ``report_thresholds`` apply to the mapped score, ``score_threshold`` to the unmapped one.
        footprints_m: by class, fixed length and width of final boxes, for objects whose extent a LiDAR does
            not show, such as pedestrians.
        size_offsets_m: by class, metres added to length, width and height of final boxes, for a market with
            other cars than the training data. Boxes grow in length away from the sensor, in width to both
            sides, and upward. Length and width of ``footprints_m`` stay. ``perceive calibrate`` fits them.
    """

    proposal_iou: float = 0.7
    iou: float = 0.1
    score_threshold: float = 0.1
    max_boxes: int = 64
    report_thresholds: dict[str, float] = field(default_factory=dict)
    score_maps: dict[str, tuple[float, float]] = field(default_factory=dict)
    footprints_m: dict[str, tuple[float, float]] = field(default_factory=dict)
    size_offsets_m: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("proposal_iou", "iou", "score_threshold"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"nms.{name}", "in [0, 1]", value)
        for label, value in self.report_thresholds.items():
            check(0 <= value <= 1, f"nms.report_thresholds of {label}", "in [0, 1]", value)
        for label, values in self.score_maps.items():
            scale, _ = finite_pair(f"nms.score_maps of {label}", values)
            check(scale > 0, f"nms.score_maps of {label}", "a positive scale and a bias", values)
        for label, values in self.footprints_m.items():
            sides = finite_pair(f"nms.footprints_m of {label}", values)
            check(min(sides) > 0, f"nms.footprints_m of {label}", "two positive lengths", values)
        for label, offsets in self.size_offsets_m.items():
            good = len(offsets) == 3 and all(-math.inf < value < math.inf for value in offsets)
            check(good, f"nms.size_offsets_m of {label}", "three finite numbers", offsets)
        check(self.max_boxes > 0, "nms.max_boxes", "positive", self.max_boxes)

    @property
    def proposal_score(self) -> float:
        """Score that a proposal must exceed; lower than the final one, because refinement can raise it."""
        return self.score_threshold * 0.25

    def unmapped(self, label: str, score: float) -> float:
        """Return the score that ``score_maps`` map to ``score``."""
        scale, bias = self.score_maps.get(label, (1.0, 0.0))
        if not 0 < score < 1:
            return score
        return 1 / (1 + math.exp((bias - math.log(score / (1 - score))) / scale))


@dataclass(frozen=True)
class RefineConfig:
    """Second stage: points around each proposal refine its box and score.

    Attributes:
        enabled: run the second stage.
        proposals: refined proposals per frame of the default range, best first; larger ranges have more
            (:attr:`DetectorConfig.limits`).
        margin_m: margin around the proposal on every side; points inside are read.
        channels: widths of the per-point layers.
        iterations: cascade steps with separate weights; each crops around the previous box.
    """

    enabled: bool = True
    proposals: int = 64
    margin_m: float = 0.6
    channels: tuple[int, ...] = (64, 128, 256)
    iterations: int = 1

    def __post_init__(self) -> None:
        check(self.proposals > 0, "refine.proposals", "positive", self.proposals)
        check(0 <= self.margin_m < math.inf, "refine.margin_m", "not negative", self.margin_m)
        check(
            len(self.channels) > 0 and min(self.channels) > 0,
            "refine.channels",
            "positive widths",
            self.channels,
        )
        check(self.iterations > 0, "refine.iterations", "positive", self.iterations)


@dataclass(frozen=True)
class EmbeddingConfig:
    """Embedding of each box, from the features of the last refinement step.

    Attributes:
        enabled: compute embeddings. ``perceive train embedding`` trains the head last.
    """

    enabled: bool = False


class Limits(NamedTuple):
    """Limits per frame: peaks read, proposals refined, boxes reported."""

    peaks: int
    proposals: int
    boxes: int


@dataclass(frozen=True)
class DetectorConfig:
    """Complete configuration of a detector, stored in its weights file."""

    name: str = "pointpillars"
    pillars: PillarConfig = field(default_factory=PillarConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    neck: NeckConfig = field(default_factory=NeckConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    nms: NmsConfig = field(default_factory=NmsConfig)
    refine: RefineConfig = field(default_factory=RefineConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)

    def __post_init__(self) -> None:
        check(
            self.refine.enabled or not self.embedding.enabled,
            "embedding.enabled",
            "false without a refinement (refine.enabled), whose features it reads",
            self.embedding.enabled,
        )
        check(
            self.refine.enabled or self.backbone.kind == "centres" or not self.head.velocity,
            "head.velocity",
            "false without a refinement (refine.enabled), whose features it reads",
            self.head.velocity,
        )
        if isinstance(self.backbone, CentreConfig):
            count = 6 if self.head.velocity else 5
            check(
                len(self.backbone.layers) == count,
                "backbone.layers",
                f"{count} counts with head.velocity {self.head.velocity}",
                self.backbone.layers,
            )
        for name in ("report_thresholds", "footprints_m", "size_offsets_m"):
            check_classes(f"nms.{name}", getattr(self.nms, name), self.head.classes)
        if self.pillars.open:
            self._check_open()
            return
        self._check_range()

    def _check_range(self) -> None:
        """Raise unless the range is a multiple of the coarsest cell; suggest the nearest valid ranges."""
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
            f"pillars.range_m must be a multiple of {stride} pillars ({cell_m:g} m) long in x and y, got"
            f" {list(pillars.range_m)}. Nearest valid ranges: {'; '.join(reversed(advice))}."
        )

    @cached_property
    def limits(self) -> Limits:
        """Limits per frame, scaled with the area of the range (:attr:`PillarConfig.growth`).

        They bound the time of a frame; ``Detections.warnings`` names a limit that a frame reached. Converted
        detectors keep the unscaled limits of their source.
        """
        configured = self.head.top_k, self.refine.proposals, self.nms.max_boxes
        growth = self.pillars.growth if self.backbone.kind in ("sparse", "dense") else 1.0
        return Limits(*(math.ceil(most * growth) for most in configured))

    @cached_property
    def proposal_scores(self) -> tuple[float, ...]:
        """By class, the score that a proposal must exceed to be refined.

        A final score is ``score^(1 - w) * fit^w`` with a fit of at most 1. A proposal below
        ``threshold^(1 / (1 - w))`` can therefore never be reported or suppress a reported box.
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
        check(
            backbone.kind == "sparse" and backbone.dilating and backbone.impl == "auto",
            "pillars.range_m",
            "six numbers, or backbone.kind 'sparse' with dilating: true and impl: auto for null",
            self.pillars.range_m,
        )
        check(
            backbone.stride <= 64, "backbone.channels", "at most 6 where range_m is null", backbone.channels
        )

    def with_range(self, range_m: Sequence[float] | None) -> DetectorConfig:
        """Return the configuration for another range; see :meth:`PillarConfig.with_range`."""
        return dataclasses.replace(self, pillars=self.pillars.with_range(range_m))

    def with_classes(self, classes: Sequence[str]) -> DetectorConfig:
        """Return the configuration for other classes; settings of shared classes stay."""
        names = tuple(classes)
        sizes = {name: size for name, size in self.head.sizes_m.items() if name in names}
        thresholds = {name: score for name, score in self.nms.report_thresholds.items() if name in names}
        footprints = {name: sides for name, sides in self.nms.footprints_m.items() if name in names}
        offsets = {name: values for name, values in self.nms.size_offsets_m.items() if name in names}
        return dataclasses.replace(
            self,
            head=dataclasses.replace(self.head, classes=names, sizes_m=sizes),
            nms=dataclasses.replace(
                self.nms,
                report_thresholds=thresholds,
                footprints_m=footprints,
                size_offsets_m=offsets,
            ),
        )
