"""Files of poses: read as the memory reads them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from memory.exchange.poses import pose_of_record, read_poses
from perception.errors import DataError
from perception.io.poses import ScanPoses
from perception.io.times import ScanTimes, first_point_time, time_in_name

ROWS = "1 0 0 5 0 1 0 0 0 0 1 2\n# a bend\n0 -1 0 5 1 0 0 0 0 0 1 2\n"
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
        ("", "no pose"),
        ("1 2 3\n", "line 1: 3 numbers; expected 12"),
        ("1 0 0 0 0 0 0 0\n", "line 1: quaternion 0, 0, 0, 0 has length 0"),
        ("#\n1 0 0 0 1 1 0 0\n", "line 2: quaternion 1, 1, 0, 0 has length 1.41"),
        ("1 0 0 0 0 0 0 1\n1.0 0 0 0 0 0 0 1\n", "time 1.0"),
        ("1 0 0 0 0 0 0 1\n" + ROWS, "line 2: 12 numbers"),
        (ROWS + "1 0 0 0 0 0 0 1\n", "line 4: 8 numbers; expected 12"),
        ("1 0 0 nan 0 0 0 1\n", "line 1: field z is 'nan'"),
        ("noon 0 0 0 0 0 0 1\n", "line 1: field time is 'noon'; expected"),
        ("1 0 0 5 0 1 0 0 0 0 x 2\n", "line 1: field 11 is 'x'"),
        ("2 0 0 5 0 1 0 0 0 0 1 2\n", "line 1: the left"),
        (ROWS + '{"frame": "a", "x": 0, "y": 0, "yaw": 0}\n', "rows of numbers"),
        ('{"frame": "a"\n', "line 1: no"),
        ('{"x": 0, "y": 0, "yaw": 0}\n', "line 1: field frame must"),
        ('{"frame": "a", "x": 0, "yaw": 0}\n', "line 1: field y must be a finite number, got None"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "when": 3}\n', "unknown field 'when'"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "time": "noon"}\n', "field time must be ISO 8601"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "time_ns": 1.5}\n', "field time_ns must be a whole"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "map_id": 3}\n', "field map_id must be text"),
        ('{"frame": "a", "x": 0, "y": 0, "yaw": 0, "covariance": [1]}\n', "field covariance must be 3 x 3"),
        ('{"frame": "1", "x": 0, "y": 0, "yaw": 0}\n{"frame": 1, "x": 0, "y": 0, "yaw": 0}\n',
         "frame '1'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=r"poses\.txt") as told:
        ScanPoses(path)
    assert message in str(told.value)


TUM = "# time x y z qx qy qz qw\n100.0 0 0 1 0 0 0 1\n101.5 3 0 1 0 0 0.70710678 0.70710678\n"


def test_poses_by_time_lie_between_rows(tmp_path: Path) -> None:
    """In a line and on the sphere; the time is the scan's, or in its name."""
    path = tmp_path / "tum.txt"
    path.write_text(TUM)
    poses = ScanPoses(path)
    assert poses.by_time
    for found in (
        poses.find("scan", 0, 100_500_000_000), poses.find("scan", 0, int(100.5e9)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.map_from_lidar[:3, 3], [1, 0, 1], atol=1e-12)
        np.testing.assert_allclose(found.map_from_lidar[1, 0], math.sin(math.pi / 6), atol=1e-7)
        assert found.time_ns == 100_500_000_000
    np.testing.assert_allclose(
        poses.find("scan", 0, 99_500_000_000).map_from_lidar, poses.find("a", 9, 10**11).map_from_lidar
    )
    with pytest.raises(DataError, match=r"no pose within 1 s of scan 'a'"):
        poses.find("a", 0, 7 * 10**9)
    with pytest.raises(DataError, match="'000001' has none"):
        poses.find("000001", 1)
    path.write_text(TUM.replace("100.0", "1305031102.175304").replace("101.5", "1305031102.275304"))
    named = ScanPoses(path).find("1305031102.225304", 0)
    np.testing.assert_allclose(named.map_from_lidar[0, 3], 1.5, atol=1e-9)
    camera = ScanPoses(path, camera=True).find("1305031102.225304", 0).map_from_lidar
    np.testing.assert_allclose(camera[:3, 3], [1.0, -1.5, 0.0], atol=1e-9)


def test_times_of_scans(tmp_path: Path) -> None:
    path = tmp_path / "times.txt"
    path.write_text("# KITTI\n2011-09-26 13:02:25.594360375\n1.5e2\n#\n1305031102.175304123\n")
    times = ScanTimes(path)
    assert times.find("first", 0) == 1_317_042_145_594_360_375
    assert times.find("000001", 0) == 150 * 10**9
    assert times.find("scan", 2) == 1_305_031_102_175_304_123
    assert times.line("scan", 2) == 5
    with pytest.raises(DataError, match=r"scan '3'"):
        times.find("3", 0)
    for text in ("noon", "nan", "1e400", "2011-13-26 13:02:25"):
        path.write_text(f"1\n{text}\n")
        with pytest.raises(DataError, match=r"times\.txt: line 2: "):
            ScanTimes(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("behind", ["", "\n", "\n\n  \n"])
def test_an_empty_line_is_a_scan_without_a_value(end: str, behind: str, tmp_path: Path) -> None:
    """The scans after it keep their own; the end of the last line begins no other."""
    path = tmp_path / "rows.txt"
    path.write_bytes(("\n# comment\n1\n\n \n2" + behind).replace("\n", end).encode())
    times = ScanTimes(path)
    assert [times.find("a", row) for row in range(5)] == [None, 10**9, None, None, 2 * 10**9]
    if behind.count("\n") < 2:
        with pytest.raises(DataError, match=r"scan 'a'"):
            times.find("a", 5)
    else:
        assert times.find("a", 5) is None
    row = "1 0 0 {} 0 1 0 0 0 0 1 2"
    path.write_bytes(f"\n{row.format(5)}\n\n# c\n{row.format(6)}{behind}".replace("\n", end).encode())
    for poses in (ScanPoses(path), read_poses(path)):
        assert [poses.find("a", row).map_from_lidar[0, 3] for row in (1, 3)] == [5, 6]
        with pytest.raises(ValueError, match=r"row.*'a', is empty"):
            poses.find("a", 2)
        with pytest.raises(ValueError, match="4"):
            poses.find("a", 4)
    tum = "\n1 0 0 0 0 0 0 1\n\n3 2 0 0 0 0 0 1\n" + behind
    path.write_bytes(tum.replace("\n", end).encode())
    assert ScanPoses(path).find("a", 0, 2 * 10**9).map_from_lidar[0, 3] == 1


def test_names_tell_times() -> None:
    assert time_in_name("1305031102.175304") == 1_305_031_102_175_304_000
    assert (
        time_in_name("n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd")
        == 1_532_402_927_647_951_000
    )
    assert time_in_name("scan_1532402927647951000") == 1_532_402_927_647_951_000
    assert time_in_name("315968663259918000") == 315_968_663_259_918_000
    assert time_in_name("1532402927647") == 1_532_402_927_647_000_000
    for name in ("000010", "0000000010", "0000000000010", "2018-07-24", "street0", ""):
        assert time_in_name(name) is None


def test_the_unit_of_the_times_of_points_is_told_by_their_size() -> None:
    seconds = 1_626_240_238.25
    for factor, kind in (
        (1, "f8"),
        (10**3, "f8"),
        (10**3, "i8"),
        (10**6, "u8"),
        (10**9, "u8"),
        (10**9, "f8"),
    ):
        times = np.array([0.5, 0.25, 0.0]) * factor + seconds * factor
        told = first_point_time({"x": times, "timestamp": times.astype(kind)})
        assert told == pytest.approx(1_626_240_238_250_000_000, abs=512)
    assert first_point_time({"t": np.array([seconds, np.nan, seconds + 1])}) == 1_626_240_238_250_000_000
    assert first_point_time({"t": np.array([5, 6]), "time": np.array([seconds, seconds])}) is not None
    for without in (
        {"t": np.array([0, 1_000_000], np.uint64)},
        {"t": np.array([seconds], np.float32)},
        {"t": np.array([seconds, 0, 0])},
        {"t": np.array([np.nan])},
        {"t": np.zeros(0)},
        {},
    ):
        assert first_point_time(without) is None


def test_a_scan_without_a_pose(tmp_path: Path) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(ROWS)
    with pytest.raises(DataError, match=r"scan '000002'"):
        ScanPoses(path).find("000002", 0)
    path.write_text(NAMED)
    with pytest.raises(DataError, match="no pose"):
        ScanPoses(path).find("door", 0)
    with pytest.raises(DataError, match="reading failed"):
        ScanPoses(tmp_path / "none.txt")
