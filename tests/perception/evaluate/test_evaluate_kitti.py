"""Rules of the KITTI protocol on cases small enough to work out by hand, and bad input."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_kitti import write_frames

from perception.data import CameraObject
from perception.data.kitti import read_objects
from perception.errors import DataError
from perception.evaluate.kitti import KittiResult, evaluate_kitti

REPOSITORY = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SPARSIGHT_DATA", REPOSITORY / "../shared/data"))
METRICS = ("2d", "bev", "3d", "aos")

LABEL = CameraObject("Car", 0.0, 0, 0.3, (100, 100, 200, 180), 1.5, 1.6, 4.0, (1.0, 1.7, 20.0), 0.25)
# Far from LABEL in the image and in space.
FALSE = replace(LABEL, box_2d=(600, 100, 700, 180), location=(-15.0, 1.7, 40.0), score=0.99)
DONT_CARE = CameraObject(
    "DontCare", -1, -1, -10, (590, 90, 710, 190), -1, -1, -1, (-1000, -1000, -1000), -10
)  # fmt: skip


def one_label_a_frame(
    count: int, label: CameraObject = LABEL, score: float = 0.5
) -> tuple[list[list[CameraObject]], list[list[CameraObject]]]:
    """Perfect detections of ``count`` labels."""
    return [[label] for _ in range(count)], [[replace(label, score=score)] for _ in range(count)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("count", "ap40", "ap11"), [(41, 100, 100), (40, 97.5, 1000 / 11), (2, 2.5, 100 / 11), (1, 0, 100 / 11)]
)
def test_perfect_detections(metric: str, count: int, ap40: float, ap11: float) -> None:
    """Every label gives one sample of the curve, so 41 labels are needed for 100."""
    result = evaluate_kitti(*one_label_a_frame(count))
    for difficulty in ("easy", "moderate", "hard"):
        assert result.ap("Car", metric, difficulty) == pytest.approx(ap40)
        assert result.ap("Car", metric, difficulty, points=11) == pytest.approx(ap11)
        assert result.label_counts["Car", difficulty] == count


@pytest.mark.parametrize(
    ("added", "ap"),
    [(FALSE, 100 * 41 / 42), (replace(FALSE, score=0.1), 100), (replace(LABEL, score=0.5), 100 * 41 / 42)],
    ids=["best score", "worst score", "duplicate"],
)
def test_false_positives(added: CameraObject, ap: float) -> None:
    """Only those before the last right detection cost; duplicates do."""
    labels, results = one_label_a_frame(41)
    results[0].append(added)
    assert evaluate_kitti(labels, results).ap("Car", "3d", "hard") == pytest.approx(ap)


def test_half_of_the_labels_found() -> None:
    """82 labels, 41 found: samples 0 to 20 are 1, the rest 0."""
    labels, results = one_label_a_frame(82)
    result = evaluate_kitti(labels, [*results[:41], *[[]] * 41])
    curve = result.precision_recall("Car", "bev", "easy")
    np.testing.assert_array_equal(curve.precision, [1.0] * 21 + [0.0] * 20)
    np.testing.assert_allclose(curve.recall, np.linspace(0, 1, 41))
    assert result.ap("Car", "bev", "easy") == pytest.approx(50)
    assert result.ap("Car", "bev", "easy", points=11) == pytest.approx(600 / 11)


def test_dont_care_excuses_false_positives_in_the_image_only() -> None:
    labels, results = one_label_a_frame(41)
    labels[3].append(DONT_CARE)
    results[3].append(FALSE)
    result = evaluate_kitti(labels, results)
    assert result.ap("Car", "2d", "easy") == pytest.approx(100)
    assert result.ap("Car", "aos", "easy") == pytest.approx(100)
    for metric in ("bev", "3d"):
        assert result.ap("Car", metric, "easy") == pytest.approx(100 * 41 / 42)


@pytest.mark.parametrize(("height", "ap"), [(50.0, 0.0), (50.01, 100.0)])
def test_overlap_must_exceed_the_minimum(height: float, ap: float) -> None:
    label = replace(LABEL, type="Pedestrian", box_2d=(0, 0, 100, 100))
    labels, results = one_label_a_frame(41, label)
    results = [[replace(found[0], box_2d=(0, 0, 100, height))] for found in results]
    assert evaluate_kitti(labels, results).ap("Pedestrian", "2d", "easy") == pytest.approx(ap)


def test_heights_at_the_limit() -> None:
    """Labels must be higher than 40 px for easy, detections at least 40 px."""
    low = replace(LABEL, box_2d=(100, 100, 200, 140))
    result = evaluate_kitti(*one_label_a_frame(41, low))
    assert result.label_counts["Car", "easy"] == 0
    assert result.label_counts["Car", "moderate"] == 41
    labels, results = one_label_a_frame(41)
    results[0].append(replace(FALSE, box_2d=(600, 100, 700, 140)))
    results[1].append(replace(FALSE, box_2d=(600, 100, 700, 139.99)))
    result = evaluate_kitti(labels, results)
    assert result.ap("Car", "3d", "easy") == pytest.approx(100 * 41 / 42)
    assert result.ap("Car", "3d", "moderate") == pytest.approx(100 * 41 / 43)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"occluded": 1}, (0, 41, 41)),
        ({"occluded": 2}, (0, 0, 41)),
        ({"occluded": 3}, (0, 0, 0)),
        ({"truncated": 0.15}, (41, 41, 41)),
        ({"truncated": 0.30}, (0, 41, 41)),
        ({"truncated": 0.51}, (0, 0, 0)),
        ({"type": "cAR"}, (41, 41, 41)),
        ({"type": "Van"}, (0, 0, 0)),
    ],
)
def test_labels_that_count(change: dict[str, object], counts: tuple[int, int, int]) -> None:
    labels, _ = one_label_a_frame(41, replace(LABEL, **change))
    result = evaluate_kitti(labels, [[]] * 41)
    assert tuple(result.label_counts["Car", name] for name in ("easy", "moderate", "hard")) == counts


@pytest.mark.parametrize(("name", "neighbour"), [("Car", "Van"), ("Pedestrian", "Person_sitting")])
def test_detections_of_neighbours_do_not_count(name: str, neighbour: str) -> None:
    labels, results = one_label_a_frame(41, replace(LABEL, type=name))
    labels[0].append(replace(FALSE, type=neighbour, score=None))
    results[0].append(replace(FALSE, type=name))
    assert evaluate_kitti(labels, results).ap(name, "3d", "hard") == pytest.approx(100)
    labels[0][-1] = replace(labels[0][-1], type="Misc")
    assert evaluate_kitti(labels, results).ap(name, "3d", "hard") == pytest.approx(100 * 41 / 42)


def test_small_detection_of_another_class_takes_the_label() -> None:
    """At easy the lower box is ignored whatever its class; its higher score wins, so no threshold is left."""
    label = replace(LABEL, box_2d=(100, 100, 200, 141))
    labels, results = one_label_a_frame(41, label)
    for found in results:
        found.append(replace(found[0], type="Tram", box_2d=(100, 100, 200, 139), score=0.9))
    result = evaluate_kitti(labels, results)
    assert result.ap("Car", "2d", "easy") == 0
    assert result.ap("Car", "2d", "moderate") == pytest.approx(100)


@pytest.mark.parametrize(("turn", "similarity"), [(0.0, 1.0), (math.pi / 2, 0.5), (math.pi, 0.0)])
def test_orientation_similarity(turn: float, similarity: float) -> None:
    labels, results = one_label_a_frame(41)
    results = [[replace(found[0], alpha=LABEL.alpha + turn)] for found in results]
    result = evaluate_kitti(labels, results)
    assert result.ap("Car", "aos", "easy") == pytest.approx(100 * similarity, abs=1e-9)
    assert result.ap("Car", "2d", "easy") == pytest.approx(100)


def test_one_missing_alpha_makes_orientation_undefined() -> None:
    labels, results = one_label_a_frame(41)
    results[7].append(replace(FALSE, type="Tram", alpha=-10.0, score=0.0))
    result = evaluate_kitti(labels, results)
    assert math.isnan(result.ap("Car", "aos", "easy"))
    assert result.to_dict()["Car"]["aos"]["AP40"]["easy"] is None
    assert ("Car", "aos") in result.unreported
    assert result.ap("Car", "2d", "easy") == pytest.approx(100)


def test_boxes_in_the_image_only() -> None:
    """Unknown position: the official program prints nothing for BEV and 3D; here they are 0."""
    labels, results = one_label_a_frame(41)
    unknown = {"height_m": -1, "width_m": -1, "length_m": -1, "location": (-1000, -1000, -1000)}
    results = [[replace(found[0], **unknown)] for found in results]
    result = evaluate_kitti(labels, results)
    assert [result.ap("Car", metric, "easy") for metric in METRICS] == pytest.approx([100, 0, 0, 100])
    assert {metric for name, metric in result.unreported if name == "Car"} == {"bev", "3d"}


@pytest.mark.parametrize("size", [{"width_m": 0.0}, {"length_m": -4.0}, {"height_m": 0.0}])
def test_boxes_without_volume_match_nothing(size: dict[str, float]) -> None:
    labels, results = one_label_a_frame(41)
    results = [[replace(found[0], **size)] for found in results]
    assert evaluate_kitti(labels, results).ap("Car", "3d", "easy") == 0


def test_no_labels_or_no_detections_give_zero() -> None:
    labels, results = one_label_a_frame(3)
    assert evaluate_kitti(labels, [[], [], []]).ap("Car", "3d", "easy") == 0
    assert evaluate_kitti([[], [], []], results).ap("Car", "3d", "easy") == 0
    assert evaluate_kitti(labels, [[], [], []]).unreported >= {("Car", "3d"), ("Car", "2d")}


def test_other_classes_and_overlaps() -> None:
    labels, results = one_label_a_frame(41, replace(LABEL, type="Truck"))
    results = [[replace(found[0], height_m=0.9)] for found in results]
    result = evaluate_kitti(labels, results, classes=["Truck"])
    assert result.ap("truck", "3d", "easy") == pytest.approx(100)
    strict = evaluate_kitti(labels, results, classes=["Truck"], min_overlaps={"Truck": 0.7})
    assert strict.ap("Truck", "3d", "easy") == 0


def test_ways_into_a_result() -> None:
    result = evaluate_kitti(*one_label_a_frame(41))
    assert isinstance(result, KittiResult)
    assert result["Car", "3d", "moderate"] == result.ap("Car", "3d", "moderate") == pytest.approx(100)
    assert result["Car"] == result.to_dict()["Car"]
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
    with pytest.raises(KeyError, match="Tram"):
        result["Tram"]
    with pytest.raises(KeyError, match="metric must be one of"):
        result["Car", "4d", "easy"]
    for wrong in (("Car", "3d", "simple"), ("Car", "4d", "easy"), ("Tram", "3d", "easy")):
        with pytest.raises(ValueError, match="must be one of"):
            result.ap(*wrong)
    with pytest.raises(ValueError, match="11 or 40"):
        result.ap("Car", "3d", "easy", points=41)


def test_frames_are_chosen_by_id(tmp_path: Path) -> None:
    labels = {"a": [LABEL], "b": [LABEL], "c": [LABEL]}
    results = {"a": [replace(LABEL, score=1.0)], "z": [FALSE]}
    folders = write_frames(tmp_path / "labels", labels), write_frames(tmp_path / "results", results)
    for pair in ((labels, results), folders, (labels, folders[1]), (str(folders[0]), str(folders[1]))):
        with pytest.raises(DataError, match=r"no results for 2 of 3 frames \(b, c\)"):
            evaluate_kitti(*pair)
        assert evaluate_kitti(*pair, frame_ids=["a"]).frame_ids == ("a",)
        assert evaluate_kitti(*pair, missing_results="skip").label_counts["Car", "easy"] == 1
        assert evaluate_kitti(*pair, missing_results="empty").label_counts["Car", "easy"] == 3
        with pytest.raises(DataError, match=r"no results for any of the 1 frames"):
            evaluate_kitti(*pair, frame_ids=["b"], missing_results="empty")
        with pytest.raises(DataError, match=r"no labels for 1 of 1 frames \(z\)"):
            evaluate_kitti(*pair, frame_ids=["z"])


def test_bad_files_are_named(tmp_path: Path) -> None:
    labels = write_frames(tmp_path / "labels", {"0": [LABEL]})
    results = write_frames(tmp_path / "results", {"0": [replace(LABEL, score=0.5)]})
    text = (results / "0.txt").read_text()
    (results / "0.txt").write_text(text + "\n" + text.rsplit(" ", 1)[0])
    with pytest.raises(DataError, match=r"results.0\.txt: line 3: no score"):
        evaluate_kitti(labels, results)
    (results / "0.txt").write_text("Car 0 0\n")
    with pytest.raises(DataError, match=r"results.0\.txt: line 1: 3 fields"):
        evaluate_kitti(labels, results)
    with pytest.raises(DataError, match="no such folder"):
        evaluate_kitti(labels, tmp_path / "nowhere")
    (tmp_path / "outer" / "data").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no \.txt files.*did you mean"):
        evaluate_kitti(labels, tmp_path / "outer")


def test_bad_arguments() -> None:
    labels, results = one_label_a_frame(2)
    with pytest.raises(DataError, match=r"frame '1', object 0: no score"):
        evaluate_kitti(labels, [results[0], [LABEL]])
    with pytest.raises(DataError, match=r"frame '0', object 0: a value is not finite"):
        evaluate_kitti(labels, [[replace(LABEL, alpha=math.nan, score=1.0)], []])
    with pytest.raises(DataError, match="no frames to evaluate"):
        evaluate_kitti([], [])
    with pytest.raises(DataError, match=r"Cars.*car"):
        evaluate_kitti(labels, results, classes=["Cars"])
    for arguments, message in (
        ({"classes": []}, "classes must be"),
        ({"classes": "Car"}, "classes must be"),
        ({"classes": ["Car", "car"]}, "twice"),
        ({"frame_ids": ["0", "0"]}, "twice"),
        ({"missing_results": "ignore"}, "missing_results must be"),
        ({"min_overlaps": {"Tram": 0.5}}, "min_overlaps has tram"),
        ({"min_overlaps": {"Car": 1.0}}, "below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_kitti(labels, results, **arguments)


def test_real_labels_as_detections(tmp_path: Path) -> None:
    folder = DATA / "kitti" / "training" / "label_2"
    if not folder.is_dir():
        pytest.skip("no KITTI labels: set SPARSIGHT_DATA to the folder that holds kitti/")
    frames = {path.stem: read_objects(path) for path in sorted(folder.glob("*.txt"))}
    found = {
        name: [replace(item, score=1.0) for item in frame if item.type != "DontCare"]
        for name, frame in frames.items()
    }
    result = evaluate_kitti(folder, write_frames(tmp_path / "results", found))
    for name in ("Car", "Pedestrian", "Cyclist"):
        for difficulty in ("easy", "moderate", "hard"):
            samples = min(41, result.label_counts[name, difficulty])
            for metric in METRICS:
                assert result.ap(name, metric, difficulty) == pytest.approx(100 * max(0, samples - 1) / 40)
    assert result.ap("Car", "3d", "moderate") == pytest.approx(100)
