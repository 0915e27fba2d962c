"""The protocol of boxes: against a slow one, against KITTI's where that goes wrong, and by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from random_boxes import random_tables

from perception.boxes import rotated_iou_3d, rotated_iou_bev
from perception.data import CameraCalibration
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable
from perception.evaluate.boxes.evaluation import evaluate_boxes
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.judge import detections_to_objects
from perception.evaluate.options import MatchRule
from perception.evaluate.ranking import all_point_ap
from perception.types import Detections


def pallets(*places: tuple[float, float], length: float = 1.2, **columns: Any) -> BoxTable:
    """Boxes of 1.2 m by 0.8 m by 0.9 m."""
    boxes = [[x, y, 0.0, length, 0.8, 0.9, 0.0] for x, y in places]
    return BoxTable.of_frame(boxes, ["pallet"] * len(places), **columns)


def naive(labels: BoxTable, found: BoxTable, name: str, limit: float, iou: Any) -> tuple[float, int]:
    """AP and number found, one detection after the other."""
    rows = [row for row in range(len(found)) if found.label[row] == name]
    taken: set[int] = set()
    right = []
    for row in sorted(rows, key=lambda row: (-found.score[row], row)):
        best, place = limit, -1
        for label in range(len(labels)):
            if labels.label[label] != name or labels.frame[label] != found.frame[row] or label in taken:
                continue
            overlap = float(iou(labels.boxes[label : label + 1], found.boxes[row : row + 1])[0, 0])
            if overlap > best:
                best, place = overlap, label
        taken.add(place)
        right.append(place >= 0)
    count = int((labels.label == name).sum())
    precision = [sum(right[: end + 1]) / (end + 1) for end in range(len(right))]
    area = sum(max(precision[row:]) for row in range(len(right)) if right[row])
    return 100 * area / count, sum(right)


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_one_says_the_same(seed: int) -> None:
    labels, found = random_tables(seed, 4, noise_m=0.2)
    result = evaluate_boxes(labels, found, rules={"car": MatchRule("overlap", 0.2)})
    for name, judged in result.classes.items():
        if judged.labels:
            for metric, iou in (("3d", rotated_iou_3d), ("bev", rotated_iou_bev)):
                ap, count = naive(labels, found, name, judged.rule.limit, iou)
                assert judged.ap[metric] == pytest.approx(ap)  # type: ignore[index]
                assert judged.recall[metric] == pytest.approx(100 * count / judged.labels)  # type: ignore[index]
    assert result.classes["car"].rule.limit == 0.2


def test_who_finds_27_of_28_is_not_told_5() -> None:
    """KITTI's protocol with an invented camera sees only what is in front, and few labels cap it."""
    angles = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    boxes = np.zeros((28, 7), np.float32)
    boxes[:, 0], boxes[:, 1] = 9 * np.cos(angles), 9 * np.sin(angles)
    boxes[:, 2:6] = -1.0, 1.2, 0.8, 0.9
    scores = np.linspace(0.9, 0.5, 27, dtype=np.float32)
    camera = CameraCalibration.default()
    truth = detections_to_objects(Detections(boxes, np.ones(28, np.float32), ["pallet"] * 28), camera)
    seen = detections_to_objects(Detections(boxes[:27], scores, ["pallet"] * 27), camera)
    assert evaluate_kitti([truth], [seen], classes=["pallet"]).ap("pallet", "3d", "hard") < 20
    names = ["pallet"] * 28
    result = evaluate_boxes(
        BoxTable.of_frame(boxes, names), BoxTable.of_frame(boxes[:27], names[:27], score=scores)
    )
    found = result.classes["pallet"]
    assert found.ap["3d"] == found.ap["bev"] == found.recall["3d"] == pytest.approx(100 * 27 / 28)
    assert (found.labels, found.detections, found.false) == (28, 27, 0)
    assert result.left_out == {}


def test_errors_and_parts() -> None:
    labels = pallets((10, 0), (30, 0), (50, 0), (12, 9), points=[0, 5, 30, 400])
    boxes = labels.boxes[:3].copy()
    boxes[0, 0] += 0.1
    boxes[1, 6] = math.pi
    boxes[2, 3] *= 1.25
    wrong = [[33.0, 0, 0, 1.2, 0.8, 0.9, 0]]
    found = BoxTable.of_frame([*boxes, *wrong], ["pallet"] * 4, score=[0.9, 0.8, 0.7, 0.95])
    judged = evaluate_boxes(labels, found).classes["pallet"]
    assert judged.position_m == pytest.approx(0.1 / 3)
    assert judged.size_error == pytest.approx(0.2 / 3)
    assert judged.yaw_rad == pytest.approx(math.pi / 3)
    assert judged.turned == pytest.approx(1 / 3)
    assert [(part.labels, part.found, part.false) for part in judged.by_range] == [
        (2, 1, 0),
        (1, 1, 1),
        (1, 1, 0),
    ]
    assert [part.ap for part in judged.by_range] == pytest.approx([50, 50, 100])
    assert [(part.labels, part.found) for part in judged.by_points] == [
        (1, 1), (1, 1), (1, 1), (0, 0), (1, 0),
    ]  # fmt: skip
    # wrong, right, right, right of 4 labels: 1/2, 2/3, 3/4, all raised to 3/4.
    assert judged.ap["3d"] == pytest.approx(100 * 3 * 0.75 / 4)


def test_rules() -> None:
    assert evaluate_boxes(pallets((3, 0)), BoxTable.empty()).classes["pallet"].rule.limit == 0.3
    long = pallets((3, 0), length=2.5)
    assert evaluate_boxes(long, BoxTable.empty()).classes["pallet"].rule.limit == 0.5
    away = pallets((3.0, 1.5), score=[0.5])
    near = {"pallet": MatchRule.parse("2m")}
    assert evaluate_boxes(pallets((3, 0)), away, rules=near).classes["pallet"].ap["3d"] == 100
    assert evaluate_boxes(pallets((3, 0)), away).classes["pallet"].ap["3d"] == 0
    assert str(MatchRule.parse("0.25")) == "IoU > 0.25"
    for text in ("1.5", "m", "-1m", "nan", "half"):
        with pytest.raises(ValueError, match="expected an overlap"):
            MatchRule.parse(text)
    with pytest.raises(ValueError, match="not evaluated"):
        evaluate_boxes(pallets((3, 0)), away, rules={"forklift": MatchRule("overlap", 0.5)})


def test_who_does_not_count_is_told() -> None:
    labels = BoxTable.of_frame(
        [[5, 0, 0, 4, 2, 2, 0], [9, 5, 0, 4, 2, 2, 0], [20, 0, 0, 4, 2, 2, 0]],
        ["Car", "Van", "Car"],
        points=[50, 50, 1],
    )
    found = BoxTable.of_frame(labels.boxes, ["Car"] * 3, score=[0.9, 0.8, 0.7])
    result = evaluate_boxes(labels, found, classes=["Car"], neighbours={"Car": "Van"}, min_points=5)
    car = result.classes["Car"]
    assert (car.labels, car.detections, car.false, car.ap["3d"]) == (1, 1, 0, 100)
    assert car.ignored_labels == {"fewer than 5 points": 1}
    assert car.ignored_detections == {
        "match a label of the similar class Van": 1,
        "match a label with fewer than 5 points": 1,
    }
    assert result.left_out == {"labels of Van": 1}


def test_one_class_under_two_names_is_refused() -> None:
    """An AP of 0 would be a wrong answer."""
    box = [[5.0, 0.0, 0.0, 0.8, 0.8, 1.7, 0.0]]
    labels, found = BoxTable.of_frame(box, ["person"]), BoxTable.of_frame(box, ["Pedestrian"], score=[0.9])
    with pytest.raises(DataError, match=r"'Pedestrian'.*'person'.*--rename"):
        evaluate_boxes(labels, found)
    with pytest.raises(DataError, match=r"unknown class 'Persons'\. Did you mean 'person'"):
        evaluate_boxes(labels, pallets(score=[]), classes=["Persons"])
    assert math.isnan(evaluate_boxes(labels, pallets(score=[]), classes=["Car"]).classes["Car"].ap["3d"])


def test_classes_without_labels_are_shown() -> None:
    result = evaluate_boxes(pallets((3, 0)), BoxTable.of_frame([[1, 0, 0, 4, 2, 2, 0]], ["Car"], score=[0.5]))
    assert list(result.classes) == ["pallet", "Car"]
    assert math.isnan(result.classes["Car"].ap["3d"])
    assert result.classes["Car"].false == 1
    assert result.mean_ap == 0
    json.dumps(result.to_dict(), allow_nan=False)


def test_nothing_at_all() -> None:
    result = evaluate_boxes(BoxTable.empty(), BoxTable.empty(), frame_count=2)
    assert (dict(result.classes), result.frames) == ({}, 2)
    assert math.isnan(result.mean_ap)
    assert math.isnan(all_point_ap(np.zeros(0, np.bool_), 0))
    assert all_point_ap(np.zeros(0, np.bool_), 3) == 0
    with pytest.raises(ValueError, match="no score"):
        evaluate_boxes(pallets((3, 0)), pallets((3, 0)))
