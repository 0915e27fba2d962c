"""Random labels and detections as tables, and what nuscenes-devkit says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.result import CLASS_RANGES_M, DISTANCES_M, ERRORS

ATTRIBUTES = ("", "vehicle.moving", "vehicle.parked", "cycle.with_rider", "pedestrian.standing")
_NAMES = dict(zip(("trans_err", "scale_err", "orient_err", "vel_err", "attr_err"), ERRORS, strict=True))


def random_tables(
    seed: int, frames: int, *, boxes: int = 30, noise_m: float = 0.7
) -> tuple[BoxTable, BoxTable]:
    """Labels, and detections near most of them, with false, doubled and wrongly named ones among these."""
    random = np.random.default_rng(seed)
    names = np.array([*CLASS_RANGES_M][: random.integers(6, 11)])
    labels, found = [], []
    for _ in range(frames):
        count = int(random.integers(0, boxes))
        truth = np.column_stack(
            [
                random.uniform(-45, 45, (count, 2)),
                random.uniform(-2, 2, count),
                random.uniform(0.3, 6, (count, 3)),
                random.uniform(-4, 4, count),
            ]
        )
        label = random.choice(names, count)
        velocity = np.where(random.random((count, 1)) < 0.2, np.nan, random.normal(0, 3, (count, 2)))
        labels.append(
            BoxTable.of_frame(
                truth.round(3),
                label.tolist(),
                velocity=velocity.round(3),
                attribute=random.choice(ATTRIBUTES, count),
                points=random.integers(0, 6, count),
            )
        )
        seen = random.random(count) < 0.8
        rows = np.concatenate([np.flatnonzero(seen), random.integers(0, max(count, 1), count // 3)])
        near = truth[rows] + random.normal(0, 1, (len(rows), 7)) * [noise_m, noise_m, 0.2, 0.3, 0.2, 0.2, 0.5]
        near[:, 3:6] = np.maximum(near[:, 3:6], 0.1)
        guess = np.where(random.random(len(rows)) < 0.1, random.choice(names, len(rows)), label[rows])
        found.append(
            BoxTable.of_frame(
                near.round(3),
                guess.tolist(),
                score=random.random(len(rows)).round(4),
                velocity=(velocity[rows] + random.normal(0, 1, (len(rows), 2))).round(3),
                attribute=random.choice(ATTRIBUTES, len(rows)),
            )
        )
    return BoxTable.joined(labels), BoxTable.joined(found)


def devkit_numbers(labels: BoxTable, detections: BoxTable, frames: int) -> dict[str, Any]:
    """What nuscenes-devkit gives for tables whose origin is the vehicle; it must be installed."""
    from nuscenes.eval.common.config import config_factory
    from nuscenes.eval.detection.algo import accumulate, calc_ap, calc_tp
    from nuscenes.eval.detection.data_classes import DetectionMetrics

    config = config_factory("detection_cvpr_2019")
    truth, found = (_eval_boxes(table, frames, config.class_range) for table in (labels, detections))
    metrics = DetectionMetrics(config)
    for name in config.class_names:
        for distance in config.dist_ths:
            data = accumulate(truth, found, name, config.dist_fcn_callable, distance)
            metrics.add_label_ap(name, distance, calc_ap(data, config.min_recall, config.min_precision))
        data = accumulate(truth, found, name, config.dist_fcn_callable, config.dist_th_tp)
        for error in _NAMES:
            cone = name == "traffic_cone" and error in ("attr_err", "vel_err", "orient_err")
            barrier = name == "barrier" and error in ("attr_err", "vel_err")
            value = np.nan if cone or barrier else calc_tp(data, config.min_recall, error)
            metrics.add_label_tp(name, error, value)
    return {
        "mAP": metrics.mean_ap,
        "NDS": metrics.nd_score,
        "errors": {_NAMES[error]: value for error, value in metrics.tp_errors.items()},
        "AP": {
            name: [metrics.get_label_ap(name, distance) for distance in DISTANCES_M]
            for name in CLASS_RANGES_M
        },
        "class_errors": {
            name: {
                found: None if np.isnan(value) else value
                for error, found in _NAMES.items()
                if (value := float(metrics.get_label_tp(name, error))) is not None
            }
            for name in CLASS_RANGES_M
        },
    }


def _eval_boxes(table: BoxTable, frames: int, ranges_m: Mapping[str, float]) -> Any:
    """The boxes that count, as the devkit's own objects."""
    from nuscenes.eval.common.data_classes import EvalBoxes
    from nuscenes.eval.detection.data_classes import DetectionBox

    made = EvalBoxes()
    for frame in range(frames):
        boxes = []
        for row in np.flatnonzero(table.frame == frame):
            x, y, z, length, width, height, yaw = table.boxes[row].tolist()
            box = DetectionBox(
                sample_token=str(frame),
                translation=(x, y, z),
                size=(width, length, height),
                rotation=(float(np.cos(yaw / 2)), 0.0, 0.0, float(np.sin(yaw / 2))),
                velocity=tuple(table.velocity[row].tolist()),
                ego_translation=(x, y, z),
                num_pts=int(table.points[row]),
                detection_name=str(table.label[row]),
                detection_score=-1.0 if np.isnan(table.score[row]) else float(table.score[row]),
                attribute_name=str(table.attribute[row]),
            )
            if box.ego_dist < ranges_m[box.detection_name] and box.num_pts != 0:
                boxes.append(box)
        made.add_boxes(str(frame), boxes)
    return made
