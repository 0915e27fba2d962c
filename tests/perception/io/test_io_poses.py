"""Files of poses: read as the memory reads them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from memory.exchange.poses import pose_of_record, read_poses
from perception.errors import DataError
from perception.io.poses import ScanPoses

ROWS = "1 0 0 5 0 1 0 0 0 0 1 2\n\n0 -1 0 5 1 0 0 0 0 0 1 2\n"
NAMED = (
    '{"frame": 7, "x": 1, "y": 2, "yaw": 0.5, "time": "2026-01-05T09:00:01.5Z", "map_id": "yard"}\n'
    '{"frame": "gate", "x": 0, "y": 0, "z": 1, "yaw": 3, "time_ns": 70,'
    ' "covariance": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}\n'
)


def test_both_formats_say_what_the_memory_reads(tmp_path: Path) -> None:
    for text, camera, names in (
        (ROWS, False, ["000001", "first"]), (ROWS, True, ["0", "000001"]), (NAMED, False, ["000007", "gate"])
    ):  # fmt: skip
        path = tmp_path / "poses"
        path.write_text(text)
        ours, theirs = ScanPoses(path, camera=camera), read_poses(path, camera=camera)
        for position, name in enumerate(names):
            found, expected = ours.find(name, position), theirs.find(name, position)
            told = pose_of_record(found.to_dict())
            np.testing.assert_array_equal(told.map_from_lidar, expected.map_from_lidar)
            assert (told.time_ns, told.map_id) == (expected.time_ns, expected.map_id)
            assert (told.covariance is None) == (expected.covariance is None)
    assert told.map_from_lidar[0, 0] == pytest.approx(math.cos(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no pose; expected one a line"),
        ("1 2 3\n", "line 1: 3 numbers; expected 12"),
        ("1 0 0 5 0 1 0 0 0 0 x 2\n", "line 1: field 11 is 'x'"),
        ("2 0 0 5 0 1 0 0 0 0 1 2\n", "line 1: the left three columns are no rotation"),
        (ROWS + '{"frame": "a", "x": 0, "y": 0, "yaw": 0}\n', "line 4: rows of numbers and JSON"),
        ('{"frame": "a"\n', "line 1: no JSON"),
        ('{"x": 0, "y": 0, "yaw": 0}\n', "line 1: field frame must name a scan, got None"),
        ('{"frame": "a", "x": 0, "yaw": 0}\n', "line 1: field y must be a finite number, got None"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "when": 3}\n', "unknown field 'when'; there are frame"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "time": "noon"}\n', "field time must be ISO 8601"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "time_ns": 1.5}\n', "field time_ns must be a whole"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "map_id": 3}\n', "field map_id must be text"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "covariance": [1]}\n', "field covariance must be 3 x 3"),
        ('{"frame": "1", "x": 0, "y": 0, "yaw": 0}\n{"frame": 1, "x": 0, "y": 0, "yaw": 0}\n',
         "line 2: frame '1' has a pose already"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=r"poses\.txt") as told:
        ScanPoses(path)
    assert message in str(told.value)


def test_a_scan_without_a_pose(tmp_path: Path) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(ROWS)
    with pytest.raises(DataError, match=r"2 poses, none in row 2 \(from 0\) for scan '000002'; write a row"):
        ScanPoses(path).find("000002", 0)
    path.write_text(NAMED)
    with pytest.raises(DataError, match="no pose of frame 'door'; name it as the scan is named"):
        ScanPoses(path).find("door", 0)
    with pytest.raises(DataError, match="cannot read the file"):
        ScanPoses(tmp_path / "none.txt")
