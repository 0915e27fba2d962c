"""KITTI labels, calibration, boxes and folders, on made-up and on real frames."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perception import PointCloud
from perception.data import (
    CameraCalibration,
    CameraObject,
    boxes_from_objects,
    in_image,
    objects_from_boxes,
    open_data_set,
)
from perception.data.camera import DEFAULT_IMAGE_SIZE
from perception.data.kitti import read_calibration, read_objects, write_calibration, write_objects
from perception.data.projection import BEHIND_CAMERA_BOX
from perception.data.types import Frame
from perception.errors import DataError
from perception.io import save_point_cloud

REAL = Path(os.environ.get("SPARSIGHT_DATA", Path(__file__).parents[3] / ".." / "shared" / "data")) / "kitti"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="no KITTI data (set SPARSIGHT_DATA)")

CAR = CameraObject(
    "Car", 0.0, 1, -1.5, (10.0, 20.0, 110.0, 90.0), 1.5, 1.6, 4.0, (1.0, 1.65, 20.0), -np.pi / 2
)


def tilted_calibration() -> CameraCalibration:
    """The default with a rectification of a few degrees about each axis."""
    x, y, z = 0.03, -0.05, 0.02
    about_x = [[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]]
    about_y = [[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]]
    about_z = [[np.cos(z), -np.sin(z), 0], [np.sin(z), np.cos(z), 0], [0, 0, 1]]
    return replace(
        CameraCalibration.default(), rectification=np.array(about_x) @ np.array(about_y) @ np.array(about_z)
    )


metres = st.floats(-90, 90)
sizes = st.floats(0.1, 20)
angles = st.floats(-np.pi + 1e-3, np.pi - 1e-3)
kitti_objects = st.builds(
    CameraObject,
    type=st.sampled_from(["Car", "DontCare", "Person_sitting", "my_class"]),
    truncated=st.floats(-1, 1),
    occluded=st.integers(-1, 3),
    alpha=st.floats(-10, 10),
    box_2d=st.tuples(*[st.floats(-100, 2000)] * 4),
    height_m=sizes,
    width_m=sizes,
    length_m=sizes,
    location=st.tuples(metres, metres, metres),
    rotation_y=angles,
    score=st.none() | st.floats(-100, 100, width=32),
)


def numbers(item: CameraObject) -> list[float]:
    return [item.truncated, item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m,
            *item.location, item.rotation_y]  # fmt: skip


@settings(deadline=None)
@given(objects=st.lists(kitti_objects, max_size=5))
def test_objects_round_trip(objects: list[CameraObject], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("labels") / "000000.txt"
    write_objects(path, objects)
    loaded = read_objects(path)
    assert [(item.type, item.occluded) for item in loaded] == [(item.type, item.occluded) for item in objects]
    for item, other in zip(objects, loaded, strict=True):
        np.testing.assert_allclose(numbers(other), numbers(item), atol=5.1e-5)
        # Nine digits identify a float32.
        assert (item.score is None) == (other.score is None)
        assert np.float32(item.score or 0) == np.float32(other.score or 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Car 0 0 0", r"line 2: 4 fields; expected 15 .* or 16"),
        (
            "Car 0 0 0 1 2 3 4 1.5 1.6 far 1 1.6 20 0",
            "line 2: field length is 'far'; expected a finite number",
        ),
        ("Car 0 0 0 1 2 3 4 1.5 1.6 4 1 1.6 nan 0", "line 2: field z is 'nan'"),
        ("Car 0 0.5 0 1 2 3 4 1.5 1.6 4 1 1.6 20 0", "line 2: field occluded is '0.5'"),
        ("Car 0 0 0 1 2 3 4 1.5 1.6 4 1 1.6 20 0 high", "line 2: field score is 'high'"),
    ],
)
def test_bad_labels_name_line_and_field(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "000000.txt"
    path.write_text(f"\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        read_objects(path)
    assert str(path) in str(caught.value)


def test_label_files_that_are_empty_missing_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "000000.txt"
    path.write_text("\n")
    assert read_objects(path) == []
    path.write_bytes(b"\xff\xfe\x80")
    with pytest.raises(DataError, match="not a text file"):
        read_objects(path)
    with pytest.raises(DataError, match="No such file"):
        read_objects(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="one word"):
        write_objects(path, [replace(CAR, type="my class")])
    with pytest.raises(DataError, match="writing failed"):
        write_objects(tmp_path / "no_folder" / "0.txt", [CAR])


def test_calibration_round_trip(tmp_path: Path) -> None:
    calibration = tilted_calibration()
    write_calibration(tmp_path / "calib.txt", calibration)
    loaded = read_calibration(tmp_path / "calib.txt")
    for attribute in ("image_from_camera", "rectification", "camera_from_lidar_raw"):
        np.testing.assert_allclose(getattr(loaded, attribute), getattr(calibration, attribute), atol=1e-12)
    np.testing.assert_allclose(loaded.camera_from_lidar @ loaded.lidar_from_camera, np.eye(4), atol=1e-12)


def test_default_calibration_looks_along_x() -> None:
    calibration = CameraCalibration.default()
    np.testing.assert_allclose(calibration.camera_from_lidar @ [10, 2, 1, 1], [-2, -1.08, 9.73, 1])
    pixel = calibration.image_from_camera @ calibration.camera_from_lidar @ [10.27, 0, -0.08, 1]
    np.testing.assert_allclose(pixel[:2] / pixel[2], [620, 187])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("P2:", "P9:", "the line 'P2:' with 12 numbers"),
        ("R0_rect:", "R0:", "key R0_rect is missing"),
        ("Tr_velo_to_cam:", "Tr:", "key Tr_velo_to_cam is missing"),
        ("R0_rect: ", "R0_rect: 1 ", r"line 5: key R0_rect has 10 numbers"),
        ("R0_rect: 1", "R0_rect: one", "line 5: field R0_rect is 'one"),
        ("R0_rect: 1", "R0_rect: 100", "not a"),
    ],
)
def test_bad_calibration_names_the_key(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "calib.txt"
    write_calibration(path, CameraCalibration.default())
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        read_calibration(path)


def test_missing_calibration_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CameraCalibration\.default"):
        read_calibration(tmp_path / "calib.txt")
    with pytest.raises(ValueError, match=r"rectification must have shape \(3, 3\)"):
        replace(CameraCalibration.default(), rectification=np.eye(4))


def test_box_of_an_object_ahead() -> None:
    boxes = boxes_from_objects([CAR, replace(CAR, type="DontCare")], CameraCalibration.default())
    assert boxes.labels == ["Car"]
    # Bottom at camera y 1.65, so the centre is 0.9 m below the camera, which is 0.08 m below the LiDAR.
    np.testing.assert_allclose(boxes.boxes, [[20.27, -1, -0.98, 4, 1.6, 1.5, 0]], atol=1e-6)


def test_no_boxes() -> None:
    calibration = CameraCalibration.default()
    assert boxes_from_objects([], calibration).boxes.shape == (0, 7)
    assert objects_from_boxes(np.zeros((0, 7)), [], None, calibration) == []
    assert objects_from_boxes([], [], [], calibration) == []


box_rows = st.tuples(metres, metres, st.floats(-3, 3), sizes, sizes, sizes, angles)


@settings(deadline=None)
@given(rows=st.lists(box_rows, max_size=4), tilted=st.booleans())
def test_boxes_round_trip(rows: list[tuple[float, ...]], *, tilted: bool) -> None:
    calibration = tilted_calibration() if tilted else CameraCalibration.default()
    boxes = np.array(rows).reshape(-1, 7)
    labels = ["Car"] * len(boxes)
    objects = objects_from_boxes(boxes, labels, None, calibration)
    back = boxes_from_objects(objects, calibration)
    np.testing.assert_allclose(back.boxes, boxes, atol=2e-5)
    for item in objects:
        left, top, right, bottom = item.box_2d
        assert 0 <= left <= right <= 1241
        assert 0 <= top <= bottom <= 374
        assert 0 <= item.truncated <= 1
        assert -np.pi < item.alpha <= np.pi


def test_image_box_of_objects_ahead_beside_behind_and_around_the_camera() -> None:
    rows = [[20, 0, 0, 4, 2, 2, 0], [20, 60, 0, 4, 2, 2, 0], [-20, 0, 0, 4, 2, 2, 0], [0.5, 0, 0, 4, 2, 2, 0]]
    labels = ["Car"] * 4
    ahead, beside, behind, around = objects_from_boxes(rows, labels, None, CameraCalibration.default())
    depth = 18 - 0.27
    expected = [620 - 720 / depth, 187 - 720 * 1.08 / depth, 620 + 720 / depth, 187 + 720 * 0.92 / depth]
    np.testing.assert_allclose(ahead.box_2d, expected)
    assert ahead.truncated == 0
    assert beside.box_2d[0] == beside.box_2d[2] == 0
    assert beside.truncated == 1
    assert behind.box_2d == BEHIND_CAMERA_BOX
    assert behind.truncated == 1
    assert around.box_2d == (0, 0, 1241, 374)
    assert around.truncated > 0.5


def test_detections_carry_scores_and_unknown_truncation() -> None:
    (item,) = objects_from_boxes([[20, 0, 0, 4, 2, 2, 0]], ["Car"], [0.75], CameraCalibration.default())
    assert (item.score, item.truncated, item.occluded) == (0.75, -1.0, -1)


def test_objects_from_boxes_rejects_wrong_shapes() -> None:
    calibration = CameraCalibration.default()
    with pytest.raises(ValueError, match=r"shape \(M, 7\)"):
        objects_from_boxes(np.zeros((2, 6)), ["Car"] * 2, None, calibration)
    with pytest.raises(ValueError, match="labels and"):
        objects_from_boxes(np.zeros((2, 7)), ["Car"], None, calibration)
    with pytest.raises(ValueError, match="scores"):
        objects_from_boxes(np.zeros((2, 7)), ["Car"] * 2, [1, 2, 3], calibration)


def test_in_image() -> None:
    rows = [
        [10, 0, 0, 1],
        [-10, 0, 0, 1],
        [10, 20, 0, 1],
        [10, 0, 8, 1],
        [np.nan, 0, 0, 1],
        [np.inf, 0, 0, 1],
    ]
    mask = in_image(np.array(rows, np.float32), CameraCalibration.default())
    assert mask.tolist() == [True, False, False, False, False, False]
    assert in_image(np.zeros((0, 4)), CameraCalibration.default()).shape == (0,)
    with pytest.raises(ValueError, match=r"shape \(N, 3\)"):
        in_image(np.zeros(3), CameraCalibration.default())


# --- folders ----------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three frames; 000001 has no object."""
    for folder in ("velodyne", "label_2", "calib", "image_2"):
        (tmp_path / "training" / folder).mkdir(parents=True)
    for index in range(3):
        name = f"{index:06d}"
        cloud = PointCloud(np.full((index + 1, 4), 0.5, np.float32))
        save_point_cloud(tmp_path / "training" / "velodyne" / f"{name}.bin", cloud)
        write_calibration(tmp_path / "training" / "calib" / f"{name}.txt", CameraCalibration.default())
        write_objects(tmp_path / "training" / "label_2" / f"{name}.txt", [] if index == 1 else [CAR])
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 1224, 370)
    (tmp_path / "training" / "image_2" / "000000.png").write_bytes(png)
    (tmp_path / "ImageSets").mkdir()
    (tmp_path / "ImageSets" / "train.txt").write_text("000002\n000000\n")
    return tmp_path


def test_dataset_reads_the_frames_of_a_split(root: Path) -> None:
    for folder in (root, root / "training"):
        dataset = open_data_set(folder, "train")
        assert dataset.frame_ids == ["000002", "000000"]
        assert [frame.frame_id for frame in dataset] == dataset.frame_ids
    assert len(dataset) == 2
    assert len(dataset[0].cloud) == 3
    assert dataset[-1].frame_id == "000000"
    assert [frame.frame_id for frame in dataset[:1]] == ["000002"]
    assert dataset[0].labels == ["Car"]
    with pytest.raises(IndexError):
        dataset[2]


def test_dataset_of_all_frames(root: Path) -> None:
    dataset = open_data_set(root, split=None)
    assert dataset.frame_ids == ["000000", "000001", "000002"]
    assert len(dataset.frame("000001").boxes) == 0
    assert dataset[0].image == root / "training" / "image_2" / "000000.png"
    assert dataset[1].image is None


def test_reduced_scans_are_preferred(root: Path) -> None:
    (root / "training" / "velodyne_reduced").mkdir()
    save_point_cloud(
        root / "training" / "velodyne_reduced" / "7.npy", PointCloud(np.zeros((1, 4), np.float32))
    )
    assert open_data_set(root, split=None).frame_ids == ["7"]
    assert len(open_data_set(root, split=None, scans="velodyne")) == 3


def test_frames_without_label_folder_have_no_objects(root: Path) -> None:
    for path in (root / "training" / "label_2").iterdir():
        path.unlink()
    (root / "training" / "label_2").rmdir()
    assert open_data_set(root, "train")[0].objects == []


def test_missing_parts_are_named(root: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        open_data_set(root / "missing")
    with pytest.raises(DataError, match=r"val\.txt: no list.*split=None"):
        open_data_set(root, split="val")
    with pytest.raises(DataError, match=r"training/, velodyne/ or label_2/ \(KITTI object\)"):
        open_data_set(root / "ImageSets")
    (root / "ImageSets" / "val.txt").write_text("000000 000009")
    with pytest.raises(DataError, match=r"no scan for 1 of 2 frames \(000009\)"):
        open_data_set(root, split="val")
    dataset = open_data_set(root, "train")
    with pytest.raises(DataError, match="no scan for frame 'x'"):
        dataset.frame("x")
    (root / "training" / "calib" / "000002.txt").unlink()
    with pytest.raises(DataError, match=r"calib.*000002\.txt: reading failed"):
        _ = dataset.frame("000002").boxes
    (root / "training" / "label_2" / "000000.txt").unlink()
    with pytest.raises(DataError, match=r"label_2.*000000\.txt"):
        _ = dataset.frame("000000").boxes
    for path in (root / "training" / "velodyne").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="no frames"):
        open_data_set(root, split=None)


# --- real frames ------------------------------------------------------------------------------------


def image_size(frame: Frame) -> tuple[int, int]:
    """From the head of the PNG file, where there is one."""
    if frame.image is None:
        return DEFAULT_IMAGE_SIZE
    width, height = struct.unpack(">II", frame.image.read_bytes()[16:24])
    return width, height


@needs_real_data
def test_real_labels_survive_the_way_to_boxes_and_back() -> None:
    dataset = open_data_set(REAL, split=None)
    frame_ids = open_data_set(REAL, "train").frame_ids + open_data_set(REAL, "val").frame_ids
    assert len(frame_ids) == 106
    for frame_id in frame_ids:
        frame = dataset.frame(frame_id)
        objects = [item for item in frame.objects if item.type != "DontCare"]
        size = image_size(frame)
        back = objects_from_boxes(frame.boxes, frame.labels, None, frame.calibration, image_size=size)
        for item, other in zip(objects, back, strict=True):
            np.testing.assert_allclose(other.location, item.location, atol=1e-3)
            turn = (other.rotation_y - item.rotation_y + np.pi) % (2 * np.pi) - np.pi
            assert abs(turn) < 1e-3
            # Labels have two decimals, alpha and the 2-D boxes were made in other ways.
            assert abs((other.alpha - item.alpha + np.pi) % (2 * np.pi) - np.pi) < 0.06
            assert other.truncated == pytest.approx(item.truncated, abs=0.07)


@needs_real_data
def test_real_yaw_is_minus_rotation_y_less_a_quarter_turn() -> None:
    frame = open_data_set(REAL, split="val")[0]
    expected = [-item.rotation_y - np.pi / 2 for item in frame.objects if item.type != "DontCare"]
    difference = (frame.boxes[:, 6] - expected + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(difference, 0, atol=0.02)


@needs_real_data
def test_reduced_scans_are_what_the_camera_sees_of_the_full_ones() -> None:
    full = open_data_set(REAL, split=None, scans="velodyne")
    reduced = open_data_set(REAL, split=None)
    for frame_id in full.frame_ids:
        frame = full.frame(frame_id)
        mask = in_image(frame.cloud.points, frame.calibration, image_size(frame))
        seen = frame.cloud.points[mask]
        assert abs(len(seen) - len(reduced.frame(frame_id).cloud)) < 0.01 * len(seen)
