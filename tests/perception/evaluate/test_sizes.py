"""Size offsets: those of a known distortion, on halves of the frames, and where there is too little."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perception.evaluate.reports.sizes import sizes_table
from perception.evaluate.sizes import fit_sizes, grown, offsets_to
from perception.types import Boxes3D, Detections

OFFSETS = (0.3, 0.2, 0.1)
Frames = list[tuple[Detections, Boxes3D]]


def frames(count: int, *, label: str = "Car") -> Frames:
    """Three detections a frame, and labels that are larger by the offsets; a fourth detection is unsure."""
    random = np.random.default_rng(0)
    made = []
    for _ in range(count):
        boxes = np.zeros((4, 7), np.float32)
        boxes[:, 0] = [10, 20, 30, 40]
        boxes[:, 1] = random.uniform(-9, 9, 4)
        boxes[:, 3:6] = [3.9, 1.6, 1.5]
        boxes[:, 3:6] += random.normal(0, 0.1, (4, 3))
        boxes[:, 6] = random.uniform(-3, 3, 4)
        truth = grown(boxes, OFFSETS)
        truth[3, 3:6] *= 3
        scores = np.array([0.9, 0.8, 0.7, 0.2], np.float32)
        made.append((Detections(boxes, scores, [label] * 4), Boxes3D(truth, [label] * 4)))
    return made


def test_known_offsets_are_found() -> None:
    fit = fit_sizes(frames(8), ("Car", "Pedestrian"))
    assert set(fit) == {"Car"}
    assert fit["Car"].boxes == 24
    assert fit["Car"].offsets_m == pytest.approx(OFFSETS, abs=1e-4)
    assert fit["Car"].overlap < 0.8
    assert fit["Car"].overlap_fitted == pytest.approx(1.0, abs=1e-3)
    assert fit["Car"].helps
    assert fit["Car"].to_dict()["boxes"] == 24


def test_offsets_that_the_other_half_does_not_share_do_not_help() -> None:
    """Half of the labels are larger, the other half smaller: no offset fits both."""
    larger = frames(10)
    smaller = [
        (found, Boxes3D(grown(found.boxes, (-0.3, -0.2, -0.1)), truth.labels)) for found, truth in larger
    ]
    fit = fit_sizes(larger[:5] + smaller[5:], ("Car",))["Car"]
    assert not fit.helps
    assert fit.overlap_fitted < fit.overlap


def test_too_few_boxes_give_no_offsets() -> None:
    assert fit_sizes(frames(3), ("Car",)) == {}
    assert fit_sizes([], ("Car",)) == {}
    single = frames(4)
    joined = Detections(
        np.concatenate([found.boxes for found, _ in single]), np.full(16, 0.9, np.float32), ["Car"] * 16
    )
    labels = Boxes3D(np.concatenate([truth.boxes for _, truth in single]), ["Car"] * 16)
    fit = fit_sizes([(joined, labels)], ("Car",))["Car"]
    assert math.isnan(fit.overlap_fitted)
    assert not fit.helps
    assert "–" in str(sizes_table({"Car": fit}, saved=()))


def test_length_and_width_of_fixed_classes_stay() -> None:
    fit = fit_sizes(frames(8, label="Pedestrian"), ("Pedestrian",), fixed=("Pedestrian",))["Pedestrian"]
    assert fit.offsets_m == pytest.approx((0.0, 0.0, 0.1), abs=1e-4)


def test_given_sizes_need_no_labels() -> None:
    unlabelled = [(found, Boxes3D(np.zeros((0, 7), np.float32), [])) for found, _ in frames(30)]
    fits = offsets_to({"Car": (4.4, 1.9, 1.6), "Cyclist": (1.8, 0.6, 1.7)}, unlabelled)
    assert set(fits) == {"Car"}
    assert fits["Car"].offsets_m == pytest.approx((0.5, 0.3, 0.1), abs=0.03)
    assert offsets_to({"Car": (4.4, 1.9, 1.6)}, []) == {}
