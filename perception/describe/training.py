"""A configuration to train with: the configuration 'own' with the classes and the range of the data."""

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
#: Beyond the boxes, and where there are none.
_MARGIN_M = 4.0
_USUAL_REACH_M = 40.0
#: Larger boxes are in another unit, which the doctor says.
_LARGEST_BOX_M = 100.0
#: Optimiser steps a training frame, and their limits: to fine-tune on a CPU.
_STEPS_A_FRAME = 12
_STEPS = (150, 3000)


def suggested_range_m(
    boxes: Array, reach_m: float, *, behind: bool, raised_m: float = 0.0
) -> tuple[float, ...]:
    """Return a range that holds the labelled boxes, of whole cells of the shipped detector.

    Heights are at least those of the shipped detector, and more where boxes rise above or sink below them.

    Args:
        boxes: (M, 7) in metres in the LiDAR frame.
        reach_m: horizontal distance that 99 % of the points are within; of boxes beyond
            twice of it, and of sizes that are none, nothing is held.
        behind: whether points lie all around; else the range begins at the sensor.
        raised_m: what the detector adds to z, see :func:`~perception.scans.tensors.raised_m`.

    Returns:
        Minimum x, y, z, then maximum x, y, z, in metres; z as seen from the height of the weights' data.
    """
    detector = load_config(TrainConfig, _SHIPPED).detector
    cell = detector.pillars.pillar_size_m * detector.backbone.stride
    bottom, top = detector.pillars.heights_m
    ahead = aside = min(reach_m, _USUAL_REACH_M)
    near = np.abs(boxes[:, :2]).max(axis=1) <= max(2 * reach_m, _USUAL_REACH_M)
    boxes = boxes[near & ((boxes[:, 3:6] > 0) & (boxes[:, 3:6] < _LARGEST_BOX_M)).all(axis=1)]
    if len(boxes):
        corners = box_corners_3d(boxes)
        # A few boxes at odd places must not decide.
        reach = np.percentile(np.abs(corners[..., :2]).max(axis=1), 99, axis=0, method="higher") + _MARGIN_M
        ahead, aside = float(reach[0]), float(reach[1])
        z = corners[..., 2] + raised_m
        low = np.percentile(z.min(axis=1), 1, method="lower")
        high = np.percentile(z.max(axis=1), 99, method="higher")
        bottom, top = min(bottom, math.floor(low)), max(top, math.ceil(high))
    if behind:
        # Training turns such scenes all around.
        ahead = aside = max(ahead, aside)
    x, y = (_whole_cells(edge, cell) for edge in (ahead, aside))
    return (-x if behind else 0.0, -y, float(bottom), x, y, float(top))


def _whole_cells(edge_m: float, cell_m: float) -> float:
    """Return the length of the whole cells that an edge takes."""
    # Without the small number, 1.28 m would take two cells: it is no multiple of 0.16 in binary.
    return round(max(8, math.ceil(edge_m / cell_m - 1e-9)) * cell_m, 6)


def training_text(classes: Sequence[str], range_m: Sequence[float], frames: int) -> str:
    """``train.yaml``: the configuration ``own`` with classes, range and steps for the data.

    Args:
        classes: of the data set.
        range_m: see :func:`suggested_range_m`.
        frames: to train on.
    """
    shipped, (low, high) = load_config(TrainConfig, _SHIPPED), _STEPS
    detector = shipped.detector.with_classes(list(classes)).with_range(list(range_m))
    steps = min(high, max(low, _STEPS_A_FRAME * frames))
    augment = shipped.augment
    if range_m[0] >= 0:
        # A scene that looks ahead must not be turned out of its range.
        ahead = AugmentConfig()
        augment = replace(augment, rotation_rad=ahead.rotation_rad, paste_view_rad=ahead.paste_view_rad)
    values = to_dict(replace(shipped, detector=detector, augment=augment, steps=steps))
    head = (
        "# The configuration 'own' with the classes and the range of this folder; perceive train reads it.\n"
        f"# z is as seen from {TRAINED_SENSOR_HEIGHT_M} m above the ground, wherever the sensor is.\n"
    )
    body: str = yaml.safe_dump(
        values, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return head + body
