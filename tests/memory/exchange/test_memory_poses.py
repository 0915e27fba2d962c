"""Poses of both formats, and what is wrong with a file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from memory.errors import DataError
from memory.exchange.poses import LIDAR_FROM_CAMERA, read_poses

ROW = "1 0 0 {x} 0 1 0 2 0 0 1 3"


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_rows_by_number_and_by_place(tmp_path: Path) -> None:
    poses = read_poses(write(tmp_path / "poses.txt", ROW.format(x=10), "# a bend", ROW.format(x=11)))
    assert len(poses) == 2
    np.testing.assert_array_equal(
        poses.find("000001", 0).map_from_lidar, [[1, 0, 0, 11], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]
    )
    assert poses.find("street", 0).map_from_lidar[0, 3] == 10
    with pytest.raises(ValueError, match=r"frame '000010' needs row 10 \(from 0\) of .*, which has 2"):
        poses.find("000010", 0)


def test_json(tmp_path: Path) -> None:
    lines = [
        {"frame": "000010", "x": 1, "y": 2, "z": 3, "yaw": 0.5, "time_ns": 7, "map_id": "yard"},
        {"frame": "gate", "x": 0, "y": 0, "yaw": 0, "time": "1970-01-01T00:00:01Z"},
        {"frame": 12, "x": 0, "y": 0, "yaw": 0, "covariance": np.eye(3).tolist()},
    ]
    poses = read_poses(write(tmp_path / "poses.jsonl", *lines))
    first = poses.find("10", 5)
    assert (first.time_ns, first.map_id) == (7, "yard")
    np.testing.assert_array_equal(first.map_from_lidar[:3, 3], [1, 2, 3])
    cos, sin = math.cos(0.5), math.sin(0.5)
    np.testing.assert_allclose(first.map_from_lidar[:3, :3], [[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    assert poses.find("gate", 0).time_ns == 10**9
    np.testing.assert_array_equal(poses.find("000012", 0).covariance, np.eye(3))
    with pytest.raises(ValueError, match="frame '11' has no pose in"):
        poses.find("11", 0)


def test_poses_of_the_camera(tmp_path: Path) -> None:
    """KITTI's camera 2 m further along its own z axis, turned to the left: forward and left for the LiDAR."""
    turn = math.radians(-90)  # About y, which points down: a turn to the left is negative.
    cos, sin = math.cos(turn), math.sin(turn)
    row = f"{cos} 0 {sin} 0 0 1 0 0 {-sin} 0 {cos} 2"
    pose = read_poses(write(tmp_path / "poses.txt", row), camera=True).find("0", 0).map_from_lidar
    np.testing.assert_allclose(pose[:3, 3], [2, 0, 0], atol=1e-12)
    np.testing.assert_allclose(pose[:3, :3] @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(LIDAR_FROM_CAMERA @ [1, 2, 3, 1], [3, -1, -2, 1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3", "expected 12 finite numbers, .* got 3"),
        ("1 2 x", "expected 12 numbers or a JSON object"),
        (ROW.format(x="nan"), "expected 12 finite numbers"),
        ("2 0 0 0 0 1 0 0 0 0 1 0", "not a rotation"),
        ("1 0 0 0 0 1 0 0 0 0 -1 0", "not a rotation"),
        ({"frame": "2", "x": 0, "y": 0, "yaw": 0}, "mixes"),
    ],
)
def test_bad_rows(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "poses.txt", ROW.format(x=1), "", line)
    with pytest.raises(DataError, match=rf"poses\.txt:3: .*{message}"):
        read_poses(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"frame": ', "not valid JSON"),
        ("[1]", "mixes"),
        ({"frame": "1", "x": 0, "y": 0}, "field 'yaw' is missing"),
        ({"x": 0, "y": 0, "yaw": 0}, "field 'frame' is missing"),
        ({"frame": "1", "x": "0", "y": 0, "yaw": 0}, "x, y, z and yaw must be numbers"),
        ({"frame": "1", "x": 0, "y": 0, "yaw": 0, "roll": 1}, "unknown field 'roll'"),
        ({"frame": "000000", "x": 0, "y": 0, "yaw": 0}, "frame '000000' has a pose already"),
        ({"frame": "1", "x": 0, "y": 0, "yaw": 0, "covariance": [1]}, "covariance must have shape"),
        ({"frame": "1", "x": 0, "y": 0, "yaw": 0, "time": "noon"}, "'noon'"),
        ('{"frame": "1", "x": NaN, "y": 0, "yaw": 0}', "NaN"),
    ],
)
def test_bad_objects(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "poses.jsonl", {"frame": 0, "x": 0, "y": 0, "yaw": 0}, line)
    with pytest.raises(DataError, match=rf"poses\.jsonl:2: .*{message}"):
        read_poses(path)


def test_no_pose_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no pose"):
        read_poses(write(tmp_path / "poses.txt", ""))
    with pytest.raises(DataError, match="cannot read the file"):
        read_poses(tmp_path / "missing.txt")
