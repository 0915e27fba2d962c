"""A folder of one's own data: labels of every tool, units and axes, classes, splits, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from own_scene import BOXES, NAMES, WRITERS, points_on

from perception import PointCloud
from perception.boxes import box_corners_3d
from perception.data import frame_beside, open_data_set
from perception.data.own import FORMATS, OwnDataSet
from perception.data.own.formats import recognised_format
from perception.data.own.labels import EMPTY_CLASS, vertical_axis
from perception.doctor import examine_data_set
from perception.errors import DataError
from perception.evaluate.data_set import judge_of
from perception.evaluate.options import JudgeOptions
from perception.io import load_point_cloud, save_point_cloud
from perception.io.transform import ScanTransform
from perception.train.data.frames import load_frames
from perception.types import Detections

Describe = Callable[..., Path]


@pytest.mark.parametrize("label_format", WRITERS)
def test_labels_of_every_tool_are_read(label_format: str, describe: Describe) -> None:
    angles = {"angles": "degrees"} if label_format == "labelcloud" else {}
    folder = describe(label_format, labels=angles)
    found = recognised_format(folder / "labels")
    assert found is FORMATS[label_format]
    data_set = open_data_set(folder)
    assert isinstance(data_set, OwnDataSet)
    assert (data_set.frame_ids, data_set.classes) == (["a1", "a2"], ("pallet", "forklift"))
    for seed, frame in enumerate(data_set):
        assert frame.labels == NAMES
        expected = BOXES + np.array([seed, 0, 0, 0, 0, 0, 0])
        np.testing.assert_allclose(frame.boxes[:, :6], expected[:, :6], atol=1e-6)
        turn = frame.boxes[:, 6] - expected[:, 6]
        np.testing.assert_allclose(np.cos(turn), 1, atol=1e-6)
    identified = {"sustechpoints", "datumaro"}
    first = data_set[0].track_ids
    assert (first is not None and first.tolist() == [0, 1, 2]) == (label_format in identified)


def test_one_file_for_all_scans(describe: Describe) -> None:
    folder = describe()
    frames = {path.stem: json.loads(path.read_text()) for path in (folder / "labels").glob("*.json")}
    (folder / "all.json").write_text(json.dumps(frames))
    lines = [",".join([name, "a2", *map(str, box)]) for name, box in zip(NAMES, BOXES, strict=True)]
    header = "class,frame,x,y,z,length,width,height,yaw"
    (folder / "all.csv").write_text("\n".join([header, *lines]) + "\n")
    for name, expected in (("all.json", ["a1", "a2"]), ("all.csv", ["a2"])):
        kind = recognised_format(folder / name)
        assert kind is not None
        description = yaml.safe_load((folder / "dataset.yaml").read_text())
        description["labels"] = {"path": name, "format": kind.name}
        (folder / "dataset.yaml").write_text(yaml.safe_dump(description))
        assert open_data_set(folder, having="labels").frame_ids == expected
        assert open_data_set(folder)[1].labels == NAMES


@pytest.mark.parametrize(
    ("axes", "scale"), [("y,-x,z", 1.0), ("z,-x,-y", 0.001), ("-z,y,x", 1.0), ("x,-y,z", 0.3048)]
)
def test_labels_go_with_the_scans(axes: str, scale: float, tmp_path: Path, describe: Describe) -> None:
    """Boxes written in the scan's own axes and unit hold the same points after both were changed."""
    folder = describe(scans={"path": "scans", "axes": axes, "scale": scale})
    transform = ScanTransform(scale, axes)
    matrix, vertical = np.linalg.inv(transform.matrix), vertical_axis(transform)
    points = points_on(BOXES)
    own = np.column_stack([points[:, :3] @ matrix.T, points[:, 3]]).astype(np.float32)
    save_point_cloud(folder / "scans/a1.bin", PointCloud(own))
    rows = BOXES.copy()
    rows[:, :3] = BOXES[:, :3] @ matrix.T
    rows[:, 3:6] /= scale
    ahead = np.column_stack([np.cos(BOXES[:, 6]), np.sin(BOXES[:, 6]), np.zeros(3)]) @ matrix.T
    rows[:, 6] = {
        0: np.arctan2(ahead[:, 2], ahead[:, 1]),
        1: np.arctan2(-ahead[:, 2], ahead[:, 0]),
        2: np.arctan2(ahead[:, 1], ahead[:, 0]),
    }[vertical]
    WRITERS["json"](folder / "labels", "a1", rows, NAMES)
    frame = open_data_set(folder)[0]
    np.testing.assert_allclose(frame.points[:, :3], points[:, :3], atol=1e-5)
    np.testing.assert_allclose(frame.boxes, BOXES, atol=1e-5)


def test_conventions_of_numbers(describe: Describe) -> None:
    rows = BOXES.copy()
    rows[:, 2] -= rows[:, 5] / 2
    rows[:, 6] = np.degrees(rows[:, 6] - np.pi / 2)
    folder = describe(labels={"angles": "degrees", "turn_deg": 90.0, "z": "bottom"})
    WRITERS["json"](folder / "labels", "a1", rows, NAMES)
    np.testing.assert_allclose(open_data_set(folder)[0].boxes, BOXES, atol=1e-6)


def test_classes_are_renamed_and_left_out(describe: Describe) -> None:
    folder = describe("sustechpoints", classes={"pallet": "cargo", "forklift": None})
    frame = open_data_set(folder)[0]
    assert (frame.labels, open_data_set(folder).classes) == (["cargo", "cargo"], ("cargo",))
    assert frame.track_ids is not None
    assert frame.track_ids.tolist() == [0, 2]
    assert [len(each.boxes) for each in load_frames(open_data_set(folder, "train"), ["cargo"])] == [2]


def test_training_looks_from_the_height_of_the_weights(describe: Describe) -> None:
    folder = describe(scans={"path": "scans", "sensor_height_m": 2.23})
    frame, own = open_data_set(folder)[0], load_frames(open_data_set(folder), ["forklift"])[0]
    np.testing.assert_array_equal(own.points[:, 2], frame.points[:, 2] + np.float32(0.5))
    np.testing.assert_array_equal(own.boxes[:, 2], frame.boxes[[1], 2] + np.float32(0.5))
    assert frame.points.min() < -1.65


def test_tracklets_of_cvat_and_kitti(tmp_path: Path) -> None:
    def tracklet(name: str, sizes: str, z: float) -> str:
        pose = "<item><tx>5</tx><ty>1</ty><tz>{}</tz><rx>0</rx><ry>0</ry><rz>.3</rz>"
        pose += "<truncation>{}</truncation></item>"
        poses = pose.format(z, 0) + pose.format(z, 2)
        return (
            f"<item><objectType>{name}</objectType>{sizes}<first_frame>1</first_frame>"
            f"<poses><count>2</count>{poses}</poses></item>"
        )

    def xml(item: str) -> str:
        return f"<boost_serialization><tracklets><count>1</count>{item}</tracklets></boost_serialization>"

    path = tmp_path / "tracklet_labels.xml"
    path.write_text(xml(tracklet("Car", "<h>1.5</h><w>1.7</w><l>4</l>", -1.7)))
    kind = recognised_format(path)
    assert kind is FORMATS["kitti-tracklets"]
    labels = kind(path)
    assert list(labels.frame_ids()) == ["0000000001", "0000000002"]
    np.testing.assert_allclose(labels.read("0000000002").boxes, [[5, 1, -0.95, 4, 1.7, 1.5, 0.3]])
    # CVAT names the extents along x, y, z w, h, l, and marks frames without the object.
    path.write_text(xml(tracklet("pallet", "<h>.8</h><w>1.2</w><l>.6</l>", -1.4)))
    (tmp_path / "frame_list.txt").write_text("0 one\n1 two\n2 data/three.pcd\n")
    kind = recognised_format(path)
    assert kind is FORMATS["cvat-tracklets"]
    labels = kind(path)
    assert list(labels.frame_ids()) == ["one", "two", "three"]
    np.testing.assert_allclose(labels.read("two").boxes, [[5, 1, -1.4, 1.2, 0.8, 0.6, 0.3]])
    assert [len(labels.read(name).boxes) for name in ("one", "three")] == [0, 0]


def test_a_scan_knows_the_folder_it_lies_in(describe: Describe) -> None:
    folder = describe(scans={"path": "scans", "scale": 2.0})
    scan = folder / "scans/a2.bin"
    beside = frame_beside(scan)
    assert beside is not None
    assert beside.labels == NAMES
    np.testing.assert_array_equal(beside.points[:, 0], 2 * load_point_cloud(scan).points[:, 0])
    assert frame_beside(folder / "labels/a2.bin") is None


def test_splits(describe: Describe) -> None:
    folder = describe()
    assert open_data_set(folder, "train").frame_ids == ["a1"]
    with pytest.raises(DataError, match="'train', 'val'"):
        open_data_set(folder, "test")
    assert open_data_set(folder).check_files() == []
    (folder / "splits/val.txt").write_text("a1\nb7\n")
    (folder / "labels/c.json").write_text("[]")
    checks = [(item.check, item.frames) for item in open_data_set(folder).check_files()]
    assert checks == [("files", ("b7",)), ("splits", ("a1",)), ("files", ("c",))]


@pytest.mark.parametrize(
    ("label_format", "text", "message"),
    [
        ("json", '{"objects": [{"class": "a", "box": [1, 2, 3, 1, 1, 1, NaN]}]}', "object 0: field box must"),
        ("json", '{"objects": [{"box": [1, 2, 3, 1, 1, 1, 0]}]}', "object 0: field class is missing"),
        ("json", "[1, 2]", "objects must be a list of objects"),
        ("json", "[", "line 1: not"),
        ("csv", "class,x,y\n", "line 1: no column z, length"),
        ("csv", "class,x,y,z,length,width,height,yaw\na,1,2,3,1,1,nan,0\n", "line 2: field height is 'nan'"),
        ("csv", "class,x,y,z,length,width,height,yaw\na,1\n", "line 2: 2 values"),
        ("openpcdet", "1 2 3 4 5 6 7\n", "line 1: 7 fields"),
        ("openpcdet", "1 2 3 4 5 6 left pallet\n", "line 1: field heading is 'left'"),
        ("sustechpoints", '[{"psr": {}}]', "psr: field position is missing"),
        ("labelcloud", '{"objects": [{"name": "a", "vertices": []}]}', "as centroid_rel"),
        ("supervisely", '{"objects": []}', "field figures is missing"),
        ("datumaro", '{"items": [], "categories": {}}', "categories.label.labels must be a list"),
    ],
)
def test_damaged_labels_are_named(label_format: str, text: str, message: str, describe: Describe) -> None:
    folder = describe(label_format)
    path = next(path for path in sorted((folder / "labels").iterdir()) if path.name.startswith("a1"))
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        _ = open_data_set(folder)[0].truth
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scans": {"axes": "x,y"}}, "axes must name"),
        ({"scans": {"scale": 0.0}}, "scale must be a positive"),
        ({"scans": {"columns": ["x", "y"]}}, "columns must"),
        ({"scans": {"path": "nothing"}}, "nothing: no such folder"),
        ({"labels": {"format": "coco"}}, "labels.format must be one of json, csv"),
        ({"labels": {"path": "nothing"}}, "nothing: no such folder or file"),
        ({"label": {}}, "unknown field label"),
        ({"splits": "nothing"}, "nothing: no such folder"),
    ],
)
def test_descriptions_are_checked(fields: dict[str, object], message: str, describe: Describe) -> None:
    folder = describe(**fields)
    with pytest.raises(DataError, match=message):
        _ = open_data_set(folder, "train")[0].truth


def test_no_label_and_no_scan(describe: Describe) -> None:
    folder = describe(labels=None)
    (folder / "dataset.yaml").write_text("scans: {path: scans}\n")
    data_set = open_data_set(folder)
    assert [frame.labelled for frame in data_set] == [False, False]
    assert data_set[0].boxes.shape == (0, 7)
    with pytest.raises(DataError, match="no labels"):
        open_data_set(folder, having="labels")
    for path in (folder / "scans").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="no frames"):
        open_data_set(folder)


def test_boxes_without_headings_lie_along_the_axes(describe: Describe) -> None:
    """The smallest box along the axes encloses the written one."""
    told = open_data_set(describe())[0].boxes
    data_set = open_data_set(describe(labels={"headings": False}))
    assert data_set.headings is False
    boxes = data_set[0].boxes
    assert (boxes[:, 6] == 0).all()
    np.testing.assert_allclose(boxes[:, :3], told[:, :3])
    corners = box_corners_3d(told)
    np.testing.assert_allclose(boxes[:, 3:6], np.ptp(corners, axis=1), rtol=1e-4)


def test_detections_are_compared_along_the_axes(describe: Describe, tmp_path: Path) -> None:
    """A turned box counts as the box along the axes around it."""
    turned = open_data_set(describe())[0].truth
    found = Detections(boxes=turned.boxes, scores=np.ones(len(turned), np.float32), labels=turned.labels)
    data_set = open_data_set(describe(labels={"headings": False}))
    judge = judge_of(data_set, options=JudgeOptions(missing_results="skip"))
    result = judge.evaluate(judge.write(tmp_path, [(data_set[0], found)])).to_dict()
    assert result["mAP"] == 100.0


@pytest.mark.parametrize("label_format", sorted(WRITERS.keys() - {"openpcdet", "datumaro"}))
def test_a_label_without_class_leaves_the_others(label_format: str, describe: Describe) -> None:
    folder = describe(label_format)
    WRITERS[label_format](folder / "labels", "a1", BOXES, [NAMES[0], "", NAMES[2]])
    frame = open_data_set(folder)[0]
    assert frame.labels == [NAMES[0], NAMES[2]]
    assert frame.skipped.count(EMPTY_CLASS) == 1
    assert frame.track_ids is None or frame.track_ids.tolist() == [0, 2]
    np.testing.assert_allclose(frame.boxes[:, :3], BOXES[[0, 2], :3], atol=1e-6)
    report = examine_data_set(folder)
    skipped = [found for found in report.findings if EMPTY_CLASS in found.message]
    assert [(found.severity, found.frames) for found in skipped] == [("warning", ("a1",))]
