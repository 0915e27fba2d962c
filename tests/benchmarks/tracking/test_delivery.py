"""Streaming evaluation: labels between frames, and which result is read when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from benchmarks.tracking.delivery import Drive, _at_delivery, _delivered, _figures, _streaming
from benchmarks.tracking.interpolated import InterpolatedLabels
from perception import Detections
from perception.data import CameraCalibration, objects_from_boxes

STEP_NS = 10**8
SPEED_M_S = 10.0
CAMERA = CameraCalibration.default()


@dataclass
class LabelledFrame:
    """What the evaluation reads of a frame."""

    boxes: np.ndarray
    objects: list[Any]
    track_ids: np.ndarray
    pose: np.ndarray
    time_ns: int
    calibration: CameraCalibration
    image_size: tuple[int, int] = (1242, 375)


def _drive(count: int, seconds: float) -> Drive:
    """A sensor at rest; a car that drives away and a parked one that only even frames label."""
    frames = []
    for number in range(count):
        boxes = np.array(
            [[15 + SPEED_M_S * number / 10, 0, 0, 4.2, 1.8, 1.5, 0], [20, 5, 0, 4.2, 1.8, 1.5, 0]]
        )
        boxes = boxes[: 2 if number % 2 == 0 else 1]
        labels = ["Car"] * len(boxes)
        objects = objects_from_boxes(boxes, labels, None, CAMERA)
        frames.append(
            LabelledFrame(boxes, objects, np.arange(len(boxes)), np.eye(4), number * STEP_NS, CAMERA)
        )
    found = [
        Detections(one.boxes[:1].astype(np.float32), np.full(1, 0.9, np.float32), ["Car"]) for one in frames
    ]
    given: Any = frames
    return Drive("drive", given, InterpolatedLabels(given), found, [seconds] * count)


def test_labels_are_interpolated_and_those_of_one_frame_do_not_count() -> None:
    labels = _drive(4, 0.0).labels
    truth = labels.at(STEP_NS // 4)
    assert truth is not None
    assert truth.boxes == pytest.approx(np.array([[15.25, 0, 0, 4.2, 1.8, 1.5, 0]]))
    assert [item.occluded for item in truth.objects] == [3, 0]
    assert labels.at(3 * STEP_NS) is None


def test_a_slow_computer_takes_the_newest_scan() -> None:
    drive = _drive(10, 0.25)
    delivered = _delivered(drive, drive.seconds)
    assert [one.predictor.time_ns // STEP_NS for one in delivered] == [0, 2, 5, 7, 9]
    assert [one.time_ns for one in delivered] == [250_000_000 * number for number in range(1, 6)]


def test_prediction_recovers_what_latency_costs() -> None:
    drive = _drive(30, 0.0)
    delivered = _delivered(drive, [0.08] * 30)
    held, predicted = (
        _figures([_at_delivery(drive, delivered, side)[10:]]) for side in ("held", "predicted")
    )
    assert held["error_m"]["median"] == pytest.approx(0.8, abs=0.05)
    assert predicted["error_m"]["median"] < 0.1
    assert held["ap"]["Car"] < predicted["ap"]["Car"]
    assert held["coverage"] < 0.5 < predicted["coverage"]


def test_a_reader_gets_the_result_delivered_last() -> None:
    drive = _drive(6, 0.0)
    delivered = _delivered(drive, [0.08] * 6)
    readings = _streaming(drive, delivered, "held")
    # Readings start with the first delivery, at 80 ms, and follow every 50 ms.
    assert [reading.tracks.timestamp_ns for reading in readings[:4]] == [0, 0, STEP_NS, STEP_NS]
