"""What can be done with detections."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from perception import Detection, Detections, PointCloud
from perception.boxes import BOX_FIELDS
from perception.types import EMBEDDING_DIM

LABELS = ["Car", "Pedestrian", "Car", "Cyclist"]


@pytest.fixture
def found() -> Detections:
    boxes = np.arange(28, dtype=np.float32).reshape(4, 7)
    scores = np.array([0.9, 0.7, 0.5, 0.2], np.float32)
    return Detections(boxes, scores, list(LABELS), timestamp_ns=5, source="a.bin", warnings=("w",))


def vectors(count: int) -> np.ndarray:
    return np.eye(EMBEDDING_DIM, dtype=np.float32)[:count]


def rows(part: Detections) -> list[int]:
    assert len(part.boxes) == len(part.scores) == len(part.labels)
    assert (part.timestamp_ns, part.source, part.warnings) == (5, "a.bin", ("w",))
    assert [LABELS[row] for row in (part.boxes[:, 0] // 7).astype(int)] == part.labels
    return (part.boxes[:, 0] // 7).astype(int).tolist()


def test_one_by_its_number(found: Detections) -> None:
    first, last = found[0], found[-1]
    assert isinstance(first, Detection)
    np.testing.assert_array_equal(first.box, np.arange(7))
    assert (first.score, first.label) == (pytest.approx(0.9), "Car")
    assert last.label == found[np.int64(3)].label == "Cyclist"
    with pytest.raises(IndexError):
        found[4]


def test_some_by_slice_numbers_and_mask(found: Detections) -> None:
    assert rows(found[:2]) == [0, 1]
    assert rows(found[::-1]) == [3, 2, 1, 0]
    assert rows(found[[2, 0]]) == [2, 0]
    assert rows(found[np.array([1, 3])]) == [1, 3]
    assert rows(found[found.scores > 0.6]) == [0, 1]
    assert rows(found[[True, False, False, True]]) == [0, 3]
    assert rows(found[[]]) == rows(found[np.zeros(4, bool)]) == rows(found[9:]) == []
    with pytest.raises(IndexError):
        found[np.array([True, False])]


def test_iteration(found: Detections) -> None:
    assert [label for _, _, label in found] == LABELS
    assert [score for _, score, _ in found] == found.scores.tolist()
    assert list(Detections.empty()) == []


@pytest.mark.parametrize("name", ["car", "cars", "automobile", "vehicle.car"])
def test_a_class_of_another_name_is_refused_with_the_nearest(name: str, found: Detections) -> None:
    """Nothing found would be a wrong answer: the scan is full of cars."""
    for asked in ({"labels": [name]}, {"min_score": {name: 0.5}}):
        with pytest.raises(ValueError, match=rf"unknown class '{name}'\. Did you mean 'Car'\?"):
            found.filter(**asked)
    none = replace(Detections.empty(), classes=("Car", "Pedestrian"))
    with pytest.raises(ValueError, match="Known classes: Car, Pedestrian"):
        none.filter(labels=[name])
    assert len(none.filter(labels=["Pedestrian"])) == 0
    # Without classes nobody knows what else the detector may find.
    assert len(found.filter(labels=["boat"])) == 0
    with pytest.raises(ValueError, match=r"unknown class 'boat'\. Known"):
        replace(found, classes=("Car",)).filter(labels=iter(["boat"]))


def test_filter(found: Detections) -> None:
    assert rows(found.filter()) == [0, 1, 2, 3]
    assert rows(found.filter(min_score=0.5)) == [0, 1, 2]
    assert rows(found.filter(min_score={"Car": 0.8})) == [0, 1, 3]
    assert rows(found.filter(labels=["Car", "Cyclist"])) == [0, 2, 3]
    assert rows(found.filter(region_m=(0, 0, 14, 15))) == [0, 1, 2]
    assert rows(found.filter(region_m=(7, 0, 20, 10))) == [1]
    assert rows(found.filter(min_score=0.6, labels=("Car",), region_m=(0, 0, 99, 99))) == [0]
    assert len(Detections.empty().filter(min_score=0.5, labels=["Car"], region_m=(0, 0, 1, 1))) == 0
    with pytest.raises(TypeError, match=r"labels must be a list of names, such as \['Car'\]"):
        found.filter(labels="Car")
    with pytest.raises(ValueError, match="region_m must be x_min, y_min, x_max, y_max"):
        found.filter(region_m=(5, 0, 1, 10))


def test_embeddings_go_with_their_boxes(found: Detections) -> None:
    assert found.embeddings is found[1:].embeddings is None
    told = replace(found, embeddings=vectors(4))
    for part, expected in [
        (told[2:], [2, 3]),
        (told[[3, 0]], [3, 0]),
        (told[told.scores < 0.6], [2, 3]),
        (told.filter(labels=["Car"]), [0, 2]),
        (told[[]], []),
    ]:
        assert part.embeddings is not None
        assert part.embeddings.shape == (len(expected), EMBEDDING_DIM)
        assert part.embeddings.argmax(axis=1).tolist() == expected


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (vectors(3), r"must be \(4, 128\) float32, one vector per box; got \(3, 128\)"),
        (vectors(4)[:, :64], r"got \(4, 64\)"),
        (vectors(4).astype(np.float64), "got .* float64"),
        (vectors(4) * np.array([[1], [1], [2], [1]], np.float32), "row 2 has length 2.0"),
        (vectors(4) * np.array([[1], [np.nan], [1], [1]], np.float32), "row 1 has length nan"),
        (vectors(4) * np.array([[0], [1], [1], [1]], np.float32), "row 0 has length 0.0. Divide"),
    ],
)
def test_embeddings_are_checked(found: Detections, embeddings: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(found, embeddings=embeddings)


def test_pandas(found: Detections) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is optional")
    table = found.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == ["label", "score", *BOX_FIELDS]
    assert table["label"].tolist() == LABELS
    np.testing.assert_array_equal(table[list(BOX_FIELDS)].to_numpy(), found.boxes)
    assert len(Detections.empty().to_pandas()) == 0


def test_without_pandas(found: Detections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_pandas needs pandas: pip install pandas"):
        found.to_pandas()


def test_plot(found: Detections, tmp_path: Path) -> None:
    alone = found.plot(tmp_path / "alone.png")
    cloud = PointCloud(np.random.default_rng(0).uniform(-5, 25, (500, 4)).astype(np.float32))
    both = found.plot(tmp_path / "both.png", cloud, title="here")
    assert min(imread(alone).shape[:2]) > 200
    assert imread(both).shape != imread(alone).shape or not np.array_equal(imread(both), imread(alone))


def test_plot_without_a_path_is_shown_inline_by_notebooks(found: Detections) -> None:
    picture = found.plot(title="here")
    assert picture._repr_png_() == picture.png
    assert min(imread(BytesIO(picture.png)).shape[:2]) > 200


def test_repr_is_one_readable_line(found: Detections) -> None:
    assert repr(found) == (
        "Detections(2 Car, 1 Pedestrian, 1 Cyclist; scores 0.20 to 0.90; source='a.bin'; 1 warning)"
    )
    assert repr(Detections.empty()) == "Detections(no objects)"


@pytest.mark.parametrize(("column", "name"), [([3.0, 60.0], "ring"), ([0.0, 0.05], "time")])
def test_a_fifth_column_is_named_and_dropped(column: list[float], name: str) -> None:
    points = np.array([[1, 2, 3, 0.5, column[0]], [4, 5, 6, 0.25, column[1]]])
    cloud = PointCloud(points, warnings=("w",))
    np.testing.assert_array_equal(cloud.points, points[:, :4].astype(np.float32))
    assert cloud.points.dtype == np.float32
    assert cloud.points.flags.c_contiguous
    before, dropped = cloud.warnings
    assert before == "w"
    assert name in dropped
    with pytest.raises(ValueError, match="four columns"):
        PointCloud(np.zeros((2, 6), np.float32))


def test_transposed_points_are_named() -> None:
    with pytest.raises(ValueError, match=r"got \(4, 90\). Pass the transposed array, points.T"):
        PointCloud(np.zeros((4, 90), np.float32))
    with pytest.raises(ValueError, match="Select four columns"):
        PointCloud(np.zeros((90, 6), np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_without_intensity_have_a_zero(dtype: type) -> None:
    points = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    assert PointCloud(points).points.tolist() == [[1, 2, 3, 0], [4, 5, 6, 0]]


def test_records_come_back(found: Detections) -> None:
    again = Detections.from_dict(found.to_dict() | {"other": 1})
    assert again.to_dict() == found.to_dict()
    assert (again.timestamp_ns, again.source, again.warnings) == (5, "a.bin", ("w",))
    nothing = Detections.from_dict(Detections.empty().to_dict())
    assert nothing.boxes.shape == Detections.empty().boxes.shape == (0, 7)
    with pytest.raises(ValueError, match="scores must be a list, got None"):
        Detections.from_dict({"boxes": [], "labels": []})
