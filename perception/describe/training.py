"""A configuration to train with: the shipped detector with the classes and the range of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from perception.config import TrainConfig, from_dict, load_config, to_dict
from perception.data.own.labels import Array
from perception.io.transform import TRAINED_SENSOR_HEIGHT_M

_SHIPPED = Path(__file__).parents[1] / "configs" / "pointpillars-kitti.yaml"
#: Beyond the boxes, and where there are none.
_MARGIN_M = 4.0
_USUAL_REACH_M = 40.0
#: Optimiser steps a training frame, and their limits: for fine-tuning on a CPU.
_STEPS_A_FRAME = 12
_STEPS = (150, 3000)
_PASTED = 8


def suggested_range_m(boxes: Array, reach_m: float, *, behind: bool) -> tuple[float, ...]:
    """A range that holds the labelled boxes, of whole cells of the shipped detector.

    Args:
        boxes: (M, 7) in metres in the LiDAR frame.
        reach_m: horizontal distance that 99 % of the points are within.
        behind: whether points lie all around; else the range begins at the sensor.

    Returns:
        Minimum x, y, z, then maximum x, y, z, in metres; z as seen from the height of the weights' data.
    """
    detector = load_config(TrainConfig, _SHIPPED).detector
    cell = detector.pillars.pillar_size_m * detector.backbone.stride
    # A cell of rounding: 1.28 m is no multiple of itself in binary.
    reach = min(reach_m, _USUAL_REACH_M)
    if len(boxes):
        reach = float(np.percentile(np.abs(boxes[:, :2]).max(axis=1), 99)) + _MARGIN_M
    cells = max(8, math.ceil(reach / cell - 1e-9))
    edge = round(cells * cell, 6)
    bottom, top = detector.pillars.heights_m
    return (-edge if behind else 0.0, -edge, bottom, edge, edge, top)


def training_text(classes: Sequence[str], range_m: Sequence[float], frames: int) -> str:
    """``train.yaml``: the shipped configuration with other classes and another range.

    Args:
        classes: of the data set.
        range_m: see :func:`suggested_range_m`.
        frames: to train on.
    """
    shipped = load_config(TrainConfig, _SHIPPED)
    values = to_dict(shipped)
    detector: dict[str, Any] = values["detector"]
    detector["name"] = "own"
    detector["head"]["classes"] = list(classes)
    detector["nms"]["report_thresholds"] = {}
    detector["pillars"]["range_m"] = [float(value) for value in range_m]
    values["augment"]["paste"] = dict.fromkeys(classes, _PASTED)
    low, high = _STEPS
    values |= {
        "steps": min(high, max(low, _STEPS_A_FRAME * frames)),
        "batch_size": 2,
        "learning_rate": 0.001,
        "precision": "float32",
        "average_decay": 0.99,
        "checkpoint_every": 100,
        "workers": 2,
    }
    from_dict(TrainConfig, values)
    head = (
        "# The shipped detector with the classes and the range of this folder; perceive train reads it.\n"
        f"# z is as seen from {TRAINED_SENSOR_HEIGHT_M} m above the ground, wherever the sensor is.\n"
    )
    body: str = yaml.safe_dump(
        values, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return head + body
