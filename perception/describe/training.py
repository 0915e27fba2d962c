"""A training configuration: the shipped 'own' with the classes and the range of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from perception.boxes import box_corners_3d
from perception.config import AugmentConfig, TrainConfig, load_config, to_dict
from perception.data.own.labels import Array
from perception.io.transform import TRAINED_SENSOR_HEIGHT_M

_SHIPPED = Path(__file__).parents[1] / "configs" / "own.yaml"
#: Margin around boxes, and range without boxes.
_MARGIN_M = 4.0
_USUAL_REACH_M = 40.0
#: Larger boxes are in another unit, which the doctor reports.
_LARGEST_BOX_M = 100.0
#: Width of a car. If all classes are at least twice as wide, the scene is shrunk, because the detector's
#: pillars, margins and limits are made for cars.
_CAR_WIDTH_M, _LEAST_SHRINK = 1.6, 2.0
#: Shift of thinned scenes in training, which look alike at all distances.
_SHIFT_M = 5.0
#: Augmentation of intensity without a known full scale.
_INTENSITY_SCALE, _DROP_INTENSITY = 0.5, 0.3
#: Optimiser steps per training frame, and their limits, for fine-tuning on a CPU.
_STEPS_A_FRAME = 12
_STEPS = (150, 3000)
#: Evaluations during training. With little data, more steps can make a detector worse on other places.
_EVALUATIONS = 8


def suggested_shrink(boxes: Array, names: Sequence[str]) -> float:
    """Return the factor by which a detector should see the scene smaller; 1 unless all classes are large.

    Args:
        boxes: (M, 7) in metres.
        names: M class names.
    """
    narrow, classes = boxes[:, 3:5].min(axis=1), np.array(names, dtype=object)
    narrowest = min((float(np.median(narrow[classes == name])) for name in set(names)), default=0.0)
    shrink = math.floor(narrowest / _CAR_WIDTH_M)
    return float(shrink) if shrink >= _LEAST_SHRINK and narrowest < _LARGEST_BOX_M else 1.0


def suggested_range_m(
    boxes: Array, reach_m: float, *, behind: bool, raised_m: float = 0.0, shrink: float = 1.0
) -> tuple[float, ...]:
    """Return a range that contains the labelled boxes, in whole cells of the shipped detector.

    Heights are those of the shipped detector, extended if boxes exceed them. A shrunk scene has larger cells
    and heights.

    Args:
        boxes: (M, 7) in metres in the LiDAR frame.
        reach_m: horizontal distance of 99 % of the points; boxes beyond twice this are ignored.
        behind: True if points lie all around; otherwise the range starts at the sensor.
        raised_m: offset of z in the detector, see :func:`~perception.scans.tensors.raised_m`.
        shrink: see :class:`~perception.config.PillarConfig`.

    Returns:
        Minimum x, y, z, then maximum x, y, z, in metres; z relative to the sensor height of training data.
    """
    detector = load_config(TrainConfig, _SHIPPED).detector
    cell = detector.pillars.pillar_size_m * detector.backbone.stride * shrink
    bottom, top = (edge * shrink for edge in detector.pillars.heights_m)
    usual_m = _USUAL_REACH_M * shrink
    ahead = aside = min(reach_m, usual_m)
    near = np.abs(boxes[:, :2]).max(axis=1) <= max(2 * reach_m, usual_m)
    boxes = boxes[near & ((boxes[:, 3:6] > 0) & (boxes[:, 3:6] < _LARGEST_BOX_M)).all(axis=1)]
    if len(boxes):
        corners = box_corners_3d(boxes)
        # Ignore outliers.
        reach = np.percentile(np.abs(corners[..., :2]).max(axis=1), 99, axis=0, method="higher") + _MARGIN_M
        ahead, aside = float(reach[0]), float(reach[1])
        z = corners[..., 2] + raised_m
        low = np.percentile(z.min(axis=1), 1, method="lower")
        high = np.percentile(z.max(axis=1), 99, method="higher")
        bottom, top = min(bottom, math.floor(low)), max(top, math.ceil(high))
    if behind:
        # Training rotates such scenes by any angle.
        ahead = aside = max(ahead, aside)
    x, y = (_whole_cells(edge, cell) for edge in (ahead, aside))
    return (-x if behind else 0.0, -y, float(bottom), x, y, float(top))


def _whole_cells(edge_m: float, cell_m: float) -> float:
    """Round an edge up to whole cells."""
    # The small number compensates binary rounding: 1.28 / 0.16 exceeds 8.
    return round(max(8, math.ceil(edge_m / cell_m - 1e-9)) * cell_m, 6)


def training_text(
    classes: Sequence[str],
    range_m: Sequence[float],
    frames: int,
    *,
    shrink: float = 1.0,
    headings: bool = True,
    intensity: bool = True,
) -> str:
    """Return the text of ``train.yaml``: the configuration ``own`` with classes, range and steps.

    Args:
        classes: to learn.
        range_m: see :func:`suggested_range_m`.
        frames: number of training frames.
        shrink: see :class:`~perception.config.PillarConfig`; shrunk scenes are also thinned.
        headings: False if the labels have none.
        intensity: False if its full scale is unknown; training then varies it and often leaves it out.
    """
    shipped, (low, high) = load_config(TrainConfig, _SHIPPED), _STEPS
    detector = shipped.detector.with_classes(list(classes))
    if shrink != 1:
        cube_m = detector.pillars.pillar_size_m
        detector = replace(detector, pillars=replace(detector.pillars, shrink=shrink, cube_m=cube_m))
    detector = replace(detector, head=replace(detector.head, headings=headings)).with_range(range_m)
    steps = min(high, max(low, _STEPS_A_FRAME * frames))
    augment = shipped.augment
    if range_m[0] >= 0:
        # Scans that look ahead must not be rotated out of the range.
        ahead = AugmentConfig()
        augment = replace(augment, rotation_rad=ahead.rotation_rad, paste_view_rad=ahead.paste_view_rad)
    if shrink != 1:
        augment = replace(augment, shift_m=_SHIFT_M)
    if not headings:
        # Boxes must stay along the axes.
        augment = replace(augment, rotation_rad=0.0, object_noise_rad=0.0)
        augment = replace(augment, quarter_turns=True) if range_m[0] < 0 else replace(augment, paste_rest=0)
    if not intensity:
        augment = replace(augment, intensity_scale=_INTENSITY_SCALE, drop_intensity=_DROP_INTENSITY)
    values = to_dict(
        replace(
            shipped, detector=detector, augment=augment, steps=steps, validate_every=steps // _EVALUATIONS
        )
    )
    head = (
        "# The configuration 'own' with the classes and the range of this folder; perceive train reads it.\n"
        f"# z is relative to a sensor {TRAINED_SENSOR_HEIGHT_M} m above the ground.\n"
    )
    if shrink != 1:
        pillar_m = detector.pillars.pillar_size_m * shrink
        head += (
            f"# The objects are large, so the network sees the scene {shrink:g} times smaller (shrink).\n"
            f"# Lengths below hold there. In the scans, pillars measure {pillar_m:g} m, and the range is\n"
            f"# {', '.join(f'{edge:g}' for edge in range_m)} m.\n"
        )
    body: str = yaml.safe_dump(
        values, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return head + body
