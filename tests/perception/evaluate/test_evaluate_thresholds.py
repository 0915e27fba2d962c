"""Thresholds by class: against every threshold tried by hand, and what counts as found."""

from __future__ import annotations

import numpy as np
import pytest

from perception.evaluate.box_table import BoxTable
from perception.evaluate.boxes.evaluation import judge_boxes
from perception.evaluate.ranking import Ranking
from perception.evaluate.thresholds import ScoreChoice, choose_thresholds

SIZES = {"Car": (3.9, 1.6, 1.5), "Van": (3.9, 1.6, 1.5), "Pedestrian": (0.8, 0.6, 1.7)}
Places = dict[float, tuple[float, str]]


def table(places: Places) -> BoxTable:
    """Boxes in a row, at these distances in metres, with scores and classes."""
    boxes = [[place, 0.0, -0.9, *SIZES[label], 0.0] for place, (_, label) in places.items()]
    scores = np.array([score for score, _ in places.values()])
    labels = [label for _, label in places.values()]
    return BoxTable.of_frame(np.array(boxes, np.float32).reshape(-1, 7), labels, score=scores)


def rankings(*frames: tuple[Places, dict[float, str]]) -> dict[str, Ranking]:
    found = BoxTable.joined([table(places) for places, _ in frames])
    truth = BoxTable.joined(
        [table({at: (0.0, label) for at, label in labels.items()}) for _, labels in frames]
    )
    judged = judge_boxes(
        truth, found, ("Car", "Pedestrian"), rules={}, neighbours={"Car": "Van"}, min_points=0
    )
    return {name: part.rankings["3d"] for name, part in judged.items()}


def test_the_greatest_measure_wins() -> None:
    # Falling scores: right, wrong, right, wrong, wrong; one more label is never found.
    given = rankings(
        ({0: (0.9, "Car"), 20: (0.71, "Car"), 40: (0.52, "Car")}, {0: "Car", 40: "Car", 60: "Car"}),
        ({0: (0.33, "Car"), 20: (0.12, "Car")}, {}),
    )
    # F1 from .75 on: 2 / (2 + 2) = .5; from .55: .4; from .35: 4 / 6; from .15: 4 / 7; below: .5.
    chosen = choose_thresholds(given, beta=1.0)
    assert chosen == {"Car": ScoreChoice(0.35, 2, 1, 1, pytest.approx(4 / 6))}
    # Precision alone, nearly: what is beyond doubt.
    assert choose_thresholds(given, beta=0.01)["Car"].threshold == 0.75
    # F2 = 5 found / (5 found + 4 missed + false).
    assert choose_thresholds(given)["Car"].f_measure == pytest.approx(10 / (10 + 4 + 1))


def test_a_label_is_found_once_and_neighbours_do_not_count() -> None:
    found = {0: (0.9, "Car"), 0.1: (0.8, "Car"), 20: (0.7, "Car"), 40: (0.95, "Pedestrian")}
    chosen = choose_thresholds(rankings((found, {0: "Car", 20: "Van", 40: "Car"})))
    # The second box on the car is false, the one on the van is neither, the other class takes no part.
    assert chosen == {"Car": ScoreChoice(0.85, 1, 0, 1, pytest.approx(5 / 9))}


def test_boxes_of_small_classes_need_less_overlap() -> None:
    """A person who is found 0.35 m off is found: an IoU of 0.39. A car as far off in length is found too."""
    found = {0.35: (0.4, "Pedestrian"), 20.35: (0.4, "Car")}
    chosen = choose_thresholds(rankings((found, {0: "Pedestrian", 20: "Car"})))
    assert {name: (choice.threshold, choice.found) for name, choice in chosen.items()} == {
        "Car": (0.05, 1),
        "Pedestrian": (0.05, 1),
    }
    far = choose_thresholds(rankings(({0.5: (0.4, "Pedestrian")}, {0: "Pedestrian"})))
    assert far == {}


def test_nothing_to_choose_from() -> None:
    assert choose_thresholds({}) == {}
    assert choose_thresholds(rankings(({}, {0: "Car"}))) == {}
    assert choose_thresholds(rankings(({0: (0.9, "Car")}, {}))) == {}


@pytest.mark.parametrize("options", [{"beta": 0.0}, {"step": 1.0}])
def test_wrong_options(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected beta > 0"):
        choose_thresholds({}, **options)
