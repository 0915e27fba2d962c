"""A configuration to train with: the configuration 'own' with the classes and the range of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from perception.config import TrainConfig, load_config, to_dict
from perception.data.own.labels import Array
from perception.io.transform import TRAINED_SENSOR_HEIGHT_M

_SHIPPED = Path(__file__).parents[1] / "configs" / "own.yaml"
#: Beyond the boxes, and where there are none.
_MARGIN_M = 4.0
_USUAL_REACH_M = 40.0
#: Optimiser steps a training frame, and their limits: to fine-tune on a CPU.
_STEPS_A_FRAME = 12
_STEPS = (150, 3000)


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
    """``train.yaml``: the configuration ``own`` with classes, range and steps for the data.

    Args:
        classes: of the data set.
        range_m: see :func:`suggested_range_m`.
        frames: to train on.
    """
    shipped, (low, high) = load_config(TrainConfig, _SHIPPED), _STEPS
    detector = shipped.detector.with_classes(list(classes)).with_range(list(range_m))
    steps = min(high, max(low, _STEPS_A_FRAME * frames))
    values = to_dict(replace(shipped, detector=detector, steps=steps))
    head = (
        "# The configuration 'own' with the classes and the range of this folder; perceive train reads it.\n"
        f"# z is as seen from {TRAINED_SENSOR_HEIGHT_M} m above the ground, wherever the sensor is.\n"
    )
    body: str = yaml.safe_dump(
        values, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return head + body
