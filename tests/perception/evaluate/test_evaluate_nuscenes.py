"""The nuScenes protocol: against nuscenes-devkit, against what it gave, and on cases worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_boxes import devkit_numbers, random_tables

from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.evaluation import evaluate_nuscenes
from perception.evaluate.nuscenes.result import DISTANCES_M, ERRORS, NuScenesResult

FIXTURE = Path(__file__).parent / "nuscenes_devkit.json"


def assert_equal(result: NuScenesResult, expected: dict[str, Any]) -> None:
    """Every number of the devkit's within 1e-6."""
    assert result.mean_ap == pytest.approx(expected["mAP"], abs=1e-6)
    assert result.nds == pytest.approx(expected["NDS"], abs=1e-6)
    for error in ERRORS:
        assert result.mean_error(error) == pytest.approx(expected["errors"][error], abs=1e-6), error
    for name, found in result.classes.items():
        at = [found.ap_at(distance) for distance in DISTANCES_M]
        assert at == pytest.approx(expected["AP"][name], abs=1e-6), name
        for error, value in expected["class_errors"][name].items():
            wanted = math.nan if value is None else value
            assert found.errors[error] == pytest.approx(wanted, abs=1e-6, nan_ok=True), (name, error)


@pytest.mark.parametrize("seed", range(8))
def test_the_devkit_says_the_same(seed: int) -> None:
    pytest.importorskip("nuscenes.eval.detection.algo", reason="nuscenes-devkit is not installed")
    labels, found = random_tables(seed, 6, noise_m=0.2 + 0.2 * seed)
    assert_equal(evaluate_nuscenes(labels, found), devkit_numbers(labels, found, 6))


def test_what_the_devkit_said() -> None:
    """Tables of ``random_tables(100 + n, 4)`` with the numbers of nuscenes-devkit 1.2.0."""
    cases = json.loads(FIXTURE.read_text())
    assert len(cases) == 3
    for case in cases:
        labels, found = (
            BoxTable(**{name: np.array(column) for name, column in case[side].items()})
            for side in ("labels", "detections")
        )
        result = evaluate_nuscenes(labels, found)
        assert_equal(result, case["expected"])
        assert 0.05 < result.mean_ap < 0.95


def frame(*entries: tuple[str, float, float], **columns: Any) -> BoxTable:
    """Boxes of 4 m by 2 m by 1.5 m: class, x and y each."""
    boxes = [[x, y, 0.0, 4.0, 2.0, 1.5, 0.0] for _, x, y in entries]
    return BoxTable.of_frame(boxes, [name for name, _, _ in entries], **columns)


def test_perfect_detections_and_classes_without_labels() -> None:
    labels = frame(("car", 5, 0), ("barrier", 9, 9), velocity=[[1, 0]] * 2, attribute=["vehicle.moving", ""])
    found = frame(
        ("car", 5, 0), ("barrier", 9, 9), velocity=[[1, 0]] * 2, attribute=["vehicle.moving", ""],
        score=[0.4, 0.9],
    )  # fmt: skip
    result = evaluate_nuscenes(labels, found)
    assert result.classes["car"].ap == result.classes["barrier"].ap == pytest.approx(1.0)
    assert result.mean_ap == pytest.approx(0.2)  # the eight classes without labels have an AP of 0
    assert set(result.classes["car"].errors.values()) == {0.0}
    assert math.isnan(result.classes["barrier"].errors["velocity"])
    assert result.to_dict()["classes"]["barrier"]["errors"]["AVE"] is None
    json.dumps(result.to_dict(), allow_nan=False)


def test_who_does_not_count_is_told() -> None:
    labels = frame(("car", 49, 0), ("car", 51, 0), ("bicycle", 3, 0), ("tram", 1, 1), ("bus", 9, 0),
                   points=[1, 1, 1, 1, 0])  # fmt: skip
    found = frame(("car", 49, 0.6), ("bicycle", 3.5, 0.2), ("bicycle", 20, 0), score=[0.5, 0.9, 0.8])
    racks = frame(("rack", 3, 0))
    result = evaluate_nuscenes(labels, found, racks=racks)
    assert result.labels_left_out == {
        "of another class": 1,
        "beyond the range of their class": 1,
        "in a bicycle rack": 1,
        "without points": 1,
    }
    assert result.detections_left_out == {"in a bicycle rack": 1}
    assert result.classes["bicycle"].detections == 1
    car = result.classes["car"]
    assert [car.ap_at(distance) for distance in DISTANCES_M] == pytest.approx([0, 1, 1, 1])


def test_half_a_turn_of_a_barrier_is_none() -> None:
    labels, found = (
        frame(("barrier", 5, 0), ("car", 9, 0), score=[0.5, 0.5]).boxes,
        frame(("barrier", 5, 0), ("car", 9, 0)).boxes.copy(),
    )
    found[:, 6] = math.pi - 0.1
    result = evaluate_nuscenes(
        BoxTable.of_frame(labels, ["barrier", "car"]),
        BoxTable.of_frame(found, ["barrier", "car"], score=[0.5, 0.5]),
    )
    assert result.classes["barrier"].errors["orientation"] == pytest.approx(0.1)
    assert result.classes["car"].errors["orientation"] == pytest.approx(math.pi - 0.1)


def test_nothing_at_all() -> None:
    result = evaluate_nuscenes(BoxTable.empty(), BoxTable.empty())
    assert result.mean_ap == result.nds == 0.0
    result = evaluate_nuscenes(frame(("car", 5, 0)), BoxTable.empty(), frame_count=3)
    assert (result.frames, result.nds) == (3, 0.0)


def test_what_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="no score"):
        evaluate_nuscenes(frame(("car", 5, 0)), frame(("car", 5, 0)))
    flat = BoxTable.of_frame([[1, 0, 0, 4, 0, 1, 0]], ["car"], score=[0.5])
    with pytest.raises(ValueError, match="a size"):
        evaluate_nuscenes(frame(("car", 5, 0)), flat)
    with pytest.raises(ValueError, match="not finite"):
        BoxTable.of_frame([[np.nan] * 7], ["car"])
    with pytest.raises(ValueError, match="sort"):
        BoxTable(frame=np.array([1, 0]), label=np.array(["car"] * 2), boxes=np.ones((2, 7)))
