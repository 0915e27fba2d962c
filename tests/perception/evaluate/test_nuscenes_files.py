"""Result files of nuScenes: written, read again, and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_boxes import random_tables

from perception.boxes import wrap_angle
from perception.errors import DataError
from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.files import read_results, write_results, yaw_of

EGO = {"a": (0.0, 0.0), "b": (3.0, 4.0, 1.0), "c": (0.0, 0.0)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    _, found = random_tables(5, 3)
    write_results(tmp_path / "results.json", tuple(EGO), found)
    frames, again = read_results(tmp_path / "results.json", EGO)
    assert frames == ("a", "b", "c")
    np.testing.assert_array_equal(again.frame, found.frame)
    np.testing.assert_allclose(again.boxes[:, :6], found.boxes[:, :6])
    np.testing.assert_allclose(wrap_angle(again.boxes[:, 6] - found.boxes[:, 6]), 0, atol=1e-12)
    np.testing.assert_array_equal(again.attribute, found.attribute)
    np.testing.assert_array_equal(again.score, found.score)
    second = again.frame == 1
    np.testing.assert_allclose(
        again.distance_m[second], np.hypot(found.boxes[second, 0] - 3, found.boxes[second, 1] - 4)
    )


def test_missing_samples(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", ["b", "other"], BoxTable.empty())
    with pytest.raises(DataError, match=r"no results for 2 of 3 samples \(a, c"):
        read_results(tmp_path / "results.json", EGO)
    frames, table = read_results(tmp_path / "results.json", EGO, missing_results="empty")
    assert (frames, len(table)) == (("a", "b", "c"), 0)
    assert read_results(tmp_path / "results.json", EGO, missing_results="skip")[0] == ("b",)


def box(**changed: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "sample_token": "a", "translation": [1, 2, 3], "size": [1, 1, 1], "rotation": [1, 0, 0, 0],
        "velocity": [0, 0], "detection_name": "car", "detection_score": 0.5, "attribute_name": "",
    }  # fmt: skip
    return {name: value for name, value in (whole | changed).items() if value is not None}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([box(velocity=None)], "no field 'velocity'"),
        ([box(detection_name="tram")], "'tram' is unknown"),
        ([box(translation=[1, 2, float("nan")])], "not finite"),
        ([box(size=[1, 0, 1])], "a size is 0"),
        ([box(detection_score=float("nan"))], "detection_score is not finite"),
        ([box()] * 501, "at most 500"),
        ({}, "a list"),
        (["car"], "string indices"),
    ],
)
def test_a_damaged_sample_is_named(tmp_path: Path, entries: Any, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": {"a": entries}}))
    with pytest.raises(DataError, match="sample 'a'") as caught:
        read_results(path, {"a": (0, 0)})
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", '{"boxes": 1}', '{"results": []}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(DataError, match="result"):
        read_results(tmp_path / "results.json", EGO)
    with pytest.raises(DataError, match="cannot read"):
        read_results(tmp_path / "nowhere.json", EGO)


def test_tracks_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "tracks.json"
    boxes = np.tile([1.0, 2.0, 3.0, 4.0, 2.0, 1.5, 0.1], (3, 1))
    found = BoxTable(
        frame=np.array([0, 0, 2]), label=np.array(["car", "bus", "car"]), boxes=boxes,
        score=np.array([0.5, 0.6, 0.7]), velocity=np.ones((3, 2)), track_id=np.array([7, 9, 7]),
    )  # fmt: skip
    write_results(path, tuple(EGO), found, task="tracking")
    entry = json.loads(path.read_text())["results"]["a"][1]
    assert (entry["tracking_id"], entry["tracking_name"], entry["tracking_score"]) == ("9", "bus", 0.6)
    _, again = read_results(path, EGO, task="tracking")
    assert again.track_id.tolist() == [0, 1, 0]
    np.testing.assert_allclose(again.boxes, found.boxes)
    with pytest.raises(DataError, match="no field 'detection_name'"):
        read_results(path, EGO)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tracking_name": "barrier"}, "'barrier' is unknown"),
        ({"tracking_id": None}, "no field 'tracking_id'"),
        ({"tracking_score": float("inf")}, "tracking_score is not finite"),
        ({}, "tracking_id '7' occurs twice"),
    ],
)
def test_damaged_tracks_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "tracks.json"
    entry = box(**{"tracking_name": "car", "tracking_score": 0.5, "tracking_id": "7"} | change)
    path.write_text(json.dumps({"results": {"a": [entry] * (1 if change else 2)}}))
    with pytest.raises(DataError, match="sample 'a'") as caught:
        read_results(path, {"a": (0, 0)}, task="tracking")
    assert message in str(caught.value)


def test_yaw_of_any_rotation() -> None:
    angles = np.linspace(-3, 3, 7)
    turned = np.column_stack([np.cos(angles / 2), 0 * angles, 0 * angles, np.sin(angles / 2)])
    np.testing.assert_allclose(yaw_of(3 * turned), angles)
