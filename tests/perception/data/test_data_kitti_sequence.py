"""Sequences of KITTI: identities, poses and times of the frames of a drive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perception import PointCloud
from perception.data import CameraCalibration, frame_beside, objects_from_boxes, open_data_set
from perception.data import types as data_types
from perception.data.kitti import KittiSequence, write_calibration
from perception.errors import DataError
from perception.io import save_point_cloud

BOXES = np.array([[10, 1, -0.8, 4, 1.7, 1.5, 0.3], [15, -3, -0.7, 0.8, 0.6, 1.8, 1.0]], np.float32)
DONT_CARE = "0 -1 DontCare -1 -1 -10 1 2 3 4 -1000 -1000 -1000 -10 -1 -1 -1"


def label(frame: str, track: str, row: int, name: str) -> str:
    (item,) = objects_from_boxes(BOXES[row : row + 1], [name], None, CameraCalibration.default())
    numbers = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
    words = [f"{number:.6f}" for number in (*numbers, item.rotation_y)]
    return " ".join([frame, track, name, "0", "0", *words])


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    (tmp_path / "velodyne_reduced").mkdir()
    for number in range(2):
        cloud = PointCloud(np.full((3, 4), number, np.float32))
        save_point_cloud(tmp_path / f"velodyne_reduced/{number:06d}.bin", cloud)
    write_calibration(tmp_path / "calib.txt", CameraCalibration.default())
    lines = [label("0", "7", 0, "Car"), DONT_CARE, label("0", "3", 1, "Pedestrian")]
    (tmp_path / "labels.txt").write_text("\n".join(lines) + "\n\n")
    (tmp_path / "poses.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 2.5 0 1 0 0 0 0 1 0\n")
    (tmp_path / "timestamps.txt").write_text("0.0\n0.103\n")
    return tmp_path


def test_frames_have_identities_poses_and_times(drive: Path) -> None:
    frames = open_data_set(drive)
    assert isinstance(frames, KittiSequence)
    assert [frame.frame_id for frame in frames] == ["000000", "000001"]
    first, second = frames
    np.testing.assert_allclose(first.boxes, BOXES, atol=1e-4)
    assert first.track_ids is not None
    assert (first.labels, first.track_ids.tolist()) == (["Car", "Pedestrian"], [7, 3])
    assert [item.type for item in first.objects] == ["Car", "DontCare", "Pedestrian"]
    assert second.track_ids is not None
    assert len(second.boxes) == len(second.track_ids) == 0
    assert second.pose is not None
    assert second.pose[:, 3].tolist() == [2.5, 0, 0, 1]
    assert (first.time_ns, second.time_ns) == (0, 103_000_000)
    assert second.points[0, 0] == 1
    (drive / "image_2").mkdir()
    (drive / "image_2/000000.png").touch()
    beside = frame_beside(drive / "velodyne_reduced/000000.bin")
    assert beside is not None
    assert (beside.labels, beside.image) == (["Car", "Pedestrian"], drive / "image_2/000000.png")


def test_an_empty_line_is_a_frame_without_a_pose_or_a_time(drive: Path) -> None:
    for name in ("poses.txt", "timestamps.txt"):
        rows = (drive / name).read_text().splitlines()
        (drive / name).write_text(f"\n{rows[1]}\n\n")
    first, second = open_data_set(drive)
    assert (first.pose, first.time_ns) == (None, None)
    assert second.pose is not None
    assert (second.pose[0, 3], second.time_ns) == (2.5, 103_000_000)


def test_poses_and_times_need_not_be_there(drive: Path) -> None:
    (drive / "poses.txt").unlink()
    (drive / "timestamps.txt").unlink()
    assert [(frame.pose, frame.time_ns) for frame in open_data_set(drive)] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels.txt", "0 7 Car 0 0", r"labels.txt: line 1: 3 fields; expected 15"),
        ("labels.txt", "0", r"labels.txt: line 1"),
        ("labels.txt", "0 a Car", r"labels.txt: line 1: .*track id"),
        ("labels.txt", "0.5 1 Car", r"labels.txt: line 1: frame is '0.5'"),
        ("poses.txt", "1 2 3", r"poses.txt: line 1: 3 numbers"),
        ("poses.txt", "", r"poses.txt: 0 lines, none for frame 0"),
        ("timestamps.txt", "soon", r"timestamps.txt: line 1"),
    ],
)
def test_damaged_files_are_named(drive: Path, name: str, text: str, message: str) -> None:
    (drive / name).write_text(text)
    with pytest.raises(DataError, match=message):
        list(open_data_set(drive))


def test_no_such_frame(drive: Path) -> None:
    with pytest.raises(DataError, match="no scan for frame '7'"):
        open_data_set(drive).frame("7")


@pytest.fixture
def long_drive(drive: Path) -> Path:
    """Four scans, 2.5 m and 0.1 s apart; the car stands, the pedestrian walks 1 m/s along y of the map."""
    for number in range(4):
        cloud = PointCloud(np.full((3, 4), number + 2, np.float32))
        save_point_cloud(drive / f"velodyne_reduced/{number:06d}.bin", cloud)
    lines = []
    for number in range(4):
        for row, (track, name) in enumerate((("7", "Car"), ("3", "Pedestrian"))):
            box = BOXES[row : row + 1].copy()
            box[:, 0] -= 2.5 * number
            box[:, 1] += 0.1 * number * row
            (item,) = objects_from_boxes(box, [name], None, CameraCalibration.default())
            numbers = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
            words = [f"{value:.6f}" for value in (*numbers, item.rotation_y)]
            lines.append(" ".join([str(number), track, name, "0", "0", *words]))
    lines.append(label("0", "9", 0, "Car"))
    (drive / "labels.txt").write_text("\n".join(lines))
    poses = [f"1 0 0 {2.5 * k} 0 1 0 0 0 0 1 0" for k in range(4)]
    (drive / "poses.txt").write_text("\n".join(poses) + "\n")
    (drive / "timestamps.txt").write_text("0.0\n0.1\n0.2\n0.3\n")
    return drive


def test_past_scans_of_the_drive_are_merged(long_drive: Path) -> None:
    frames = open_data_set(long_drive, sweeps=2)
    assert [len(frame.cloud) for frame in frames] == [3, 6, 9, 9]
    last = frames[3].cloud
    assert last.ages_s is not None
    np.testing.assert_allclose(last.ages_s, np.repeat([0, 0.1, 0.2], 3), atol=1e-6)
    np.testing.assert_allclose(last.points[::3, 0], [5, 4 - 2.5, 3 - 5.0], atol=1e-5)
    assert [len(frame.cloud) for frame in open_data_set(long_drive).with_sweeps(2, 0.15)] == [3, 6, 6, 6]
    assert open_data_set(long_drive)[3].cloud.ages_s is None
    (long_drive / "poses.txt").unlink()
    alone = open_data_set(long_drive, sweeps=2)[3].cloud
    assert alone.ages_s is not None
    assert alone.ages_s.tolist() == [0, 0, 0]


def test_velocities_over_the_ground_come_from_tracks(long_drive: Path) -> None:
    frames = open_data_set(long_drive)
    for frame in frames:
        assert frame.velocities is not None
        np.testing.assert_allclose(frame.velocities[:2], [[0, 0], [0, 1]], atol=1e-3)
    # An object that was seen once.
    assert frames[0].velocities is not None
    assert np.isnan(frames[0].velocities[2]).all()
    (long_drive / "poses.txt").unlink()
    assert open_data_set(long_drive)[0].velocities is None


def test_a_drive_in_order_reads_each_scan_once(long_drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load = data_types.load_point_cloud

    def counted(path: Path, **options: object) -> PointCloud:
        read.append(path.stem)
        return load(path, **options)

    monkeypatch.setattr(data_types, "load_point_cloud", counted)
    clouds = [frame.cloud for frame in open_data_set(long_drive, sweeps=2)]
    assert [len(cloud) for cloud in clouds] == [3, 6, 9, 9]
    assert read == [f"{number:06d}" for number in range(4)]
