"""Thresholds by class: against every threshold tried by hand, and what counts as found."""

from __future__ import annotations

import numpy as np
import pytest

from perception.evaluate.thresholds import ScoreChoice, choose_thresholds
from perception.types import Boxes3D, Detections

CAR = [0.0, 0.0, -0.9, 3.9, 1.6, 1.5, 0.0]


def at(*places: float) -> np.ndarray:
    """Equal boxes in a row, at these distances in metres."""
    boxes = np.array([CAR] * len(places), np.float32).reshape(-1, 7)
    boxes[:, 0] = places
    return boxes


def frame(found: dict[float, tuple[float, str]], truth: dict[float, str]) -> tuple[Detections, Boxes3D]:
    ranked = sorted(found.items(), key=lambda entry: -entry[1][0])
    scores = np.array([score for _, (score, _) in ranked], np.float32)
    labels = [label for _, (_, label) in ranked]
    detections = Detections(at(*(place for place, _ in ranked)), scores, labels)
    return detections, Boxes3D(at(*truth), list(truth.values()))


def test_the_greatest_measure_wins() -> None:
    # Falling scores: right, wrong, right, wrong, wrong; one more label is never found.
    given = [
        frame({0: (0.9, "Car"), 20: (0.71, "Car"), 40: (0.52, "Car")}, {0: "Car", 40: "Car", 60: "Car"}),
        frame({0: (0.33, "Car"), 20: (0.12, "Car")}, {}),
    ]
    # F1 from .75 on: 2 / (2 + 2) = .5; from .55: .4; from .35: 4 / 6; from .15: 4 / 7; below: .5.
    chosen = choose_thresholds(given, ("Car",), beta=1.0)
    assert chosen == {"Car": ScoreChoice(0.35, 2, 1, 1, pytest.approx(4 / 6))}
    # Precision alone, nearly: what is beyond doubt.
    assert choose_thresholds(given, ("Car",), beta=0.01)["Car"].threshold == 0.75
    # F2 = 5 found / (5 found + 4 missed + false).
    assert choose_thresholds(given, ("Car",))["Car"].f_measure == pytest.approx(10 / (10 + 4 + 1))


def test_a_label_is_found_once_and_neighbours_do_not_count() -> None:
    found = {0: (0.9, "Car"), 0.1: (0.8, "Car"), 20: (0.7, "Car"), 40: (0.95, "Pedestrian")}
    chosen = choose_thresholds(
        [frame(found, {0: "Car", 20: "Van", 40: "Car"})], ("Car", "Pedestrian", "Cyclist")
    )
    # The second box on the car is false, the one on the van is neither, the other class takes no part.
    assert chosen == {"Car": ScoreChoice(0.85, 1, 0, 1, pytest.approx(5 / 9))}


def test_nothing_to_choose_from() -> None:
    assert choose_thresholds([], ("Car",)) == {}
    assert choose_thresholds([frame({}, {0: "Car"})], ("Car",)) == {}
    assert choose_thresholds([frame({0: (0.9, "Car")}, {})], ("Car",)) == {}


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"step": 1.0}, {"min_overlap": 1.0}])
def test_wrong_options(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected beta > 0"):
        choose_thresholds([], ("Car",), **options)
