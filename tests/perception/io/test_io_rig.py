"""Several LiDARs on one robot: their description, and what is merged with what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from perception import PointCloud
from perception.errors import DataError
from perception.io import save_point_cloud
from perception.io.rig import parse_extrinsic, read_rig
from perception.io.rig_scans import RigScan, RigScans

AHEAD = {"scans": "front/*.bin", "extrinsic": {"xyz": [1.0, 0.0, 0.5]}}
#: Behind, and turned around.
BACK = {"scans": "rear", "extrinsic": [[-1, 0, 0, -1], [0, -1, 0, 0], [0, 0, 1, 0.5], [0, 0, 0, 1]]}
SECOND_NS = 10**9


def described(folder: Path, **changed: Any) -> Path:
    path = folder / "rig.yaml"
    path.write_text(yaml.safe_dump({"sensors": {"front": AHEAD, "rear": BACK}, **changed}, sort_keys=False))
    return path


def write(path: Path, *xyz: tuple[float, float, float]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    points = np.concatenate([np.float32(xyz), np.full((len(xyz), 1), 0.5, np.float32)], axis=1)
    save_point_cloud(path, PointCloud(points))


def merged(folder: Path, pose_at: Any = None, **changed: Any) -> list[RigScan]:
    found = list(RigScans(read_rig(described(folder, **changed)), folder, pose_at).attempts())
    assert all(isinstance(one, RigScan) for one in found), found
    return found  # type: ignore[return-value]


def test_scans_of_one_name_are_one_scan(tmp_path: Path) -> None:
    for k in range(2):
        write(tmp_path / f"front/{k:06d}.bin", (2.0, 1.0 + k, 0.0))
        write(tmp_path / f"rear/{k:06d}.bin", (2.0, 1.0, -0.5))
    first, second = merged(tmp_path, sensor_height_m=0.3)
    np.testing.assert_array_equal(first.cloud.points, np.float32([[3, 1, 0.5, 0.5], [-3, -1, 0, 0.5]]))
    np.testing.assert_array_equal(second.cloud.points[0], np.float32([3, 2, 0.5, 0.5]))
    assert (first.name, second.number) == ("000000", 1)
    assert first.cloud.sensor_height_m == 0.3
    assert not first.cloud.warnings


def test_each_scan_meets_the_nearest_in_time(tmp_path: Path) -> None:
    """The rear sensor is 40 ms late, turns slower, and was off in the end."""
    for k in range(4):
        write(tmp_path / f"front/{1000000000 + k}.000000.bin", (float(k), 0.0, 0.0))
    for k, second in enumerate((0.04, 1.04, 1.97)):
        write(
            tmp_path / f"rear/{1000000000 + int(second)}.{round(second % 1 * 1e6):06d}.bin",
            (9.0, float(k), 0.0),
        )
    found = merged(tmp_path)
    assert [len(one.cloud) for one in found] == [2, 2, 2, 1]
    assert [one.cloud.points[1, 1] for one in found[:3]] == [0, -1, -2]
    assert [one.cloud.timestamp_ns for one in found[:2]] == [10**18, 10**18 + SECOND_NS]
    assert found[3].cloud.warnings == ("no scan of sensor 'rear' within 0.05 s",)
    assert [len(one.cloud) for one in merged(tmp_path, tolerance_s=0.035)] == [1, 1, 2, 1]


def test_the_way_in_between_is_taken_into_account(tmp_path: Path) -> None:
    """At 10 m/s and half a turn a second, both sensors see one post in one place."""

    def pose_at(time_ns: int) -> np.ndarray:
        since = (time_ns - 10**18) / 1e9
        made = np.eye(4)
        made[:2, :2] = [[np.cos(3 * since), -np.sin(3 * since)], [np.sin(3 * since), np.cos(3 * since)]]
        made[:3, 3] = [10 * since, 0, 0]
        return made

    post = np.array([12.0, 3.0, 0.0, 1.0])
    write(tmp_path / "rig.yaml.d/none.bin", (0.0, 0.0, 0.0))
    rig = read_rig(described(tmp_path))
    for sensor, second, folder in zip(rig.sensors, (0.0, 0.04), ("front", "rear"), strict=True):
        seen = np.linalg.inv(pose_at(10**18 + round(second * 1e9)) @ sensor.common_from_sensor) @ post
        write(tmp_path / f"{folder}/1000000000.{round(second * 1e6):06d}.bin", tuple(seen[:3].tolist()))  # type: ignore[arg-type]
    (still,) = merged(tmp_path)
    assert np.linalg.norm(still.cloud.points[1, :2] - post[:2]) > 0.3
    (moved,) = merged(tmp_path, pose_at)
    np.testing.assert_allclose(moved.cloud.points[:, :3], [post[:3], post[:3]], atol=1e-5)
    (unknown,) = merged(tmp_path, lambda _: None)
    np.testing.assert_array_equal(unknown.cloud.points, still.cloud.points)


def test_each_sensor_has_units_axes_columns_and_times_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "front/000000.bin", (1.0, 2.0, 3.0))
    (tmp_path / "rear").mkdir()
    (tmp_path / "rear/scan.csv").write_text("7,2000,1000,0,51\n")
    (tmp_path / "times.txt").write_text("5.0\n")
    rear = {
        **BACK, "scans": "rear/*.csv", "columns": "_,x,y,z,intensity", "scale": 0.001, "axes": "y,-x,z",
        "intensity_scale": 255.0, "times": "times.txt",
    }  # fmt: skip
    front = {**AHEAD, "times": "times.txt"}
    (found,) = merged(tmp_path, sensors={"front": front, "rear": rear})
    np.testing.assert_allclose(found.cloud.points, [[2, 2, 3.5, 0.5], [-2, 2, 0.5, 0.2]], atol=1e-6)
    assert found.cloud.timestamp_ns == 5 * SECOND_NS
    with pytest.raises(DataError, match="scans of rear"):
        merged(tmp_path, sensors={"front": front, "rear": {**rear, "times": None}})


def test_a_scan_whose_line_of_times_is_empty_is_not_merged(tmp_path: Path) -> None:
    for k in range(3):
        write(tmp_path / f"front/{k:06d}.bin", (2.0, 1.0, 0.0))
        write(tmp_path / f"rear/{k:06d}.bin", (2.0, float(k), 0.0))
    (tmp_path / "front.txt").write_text("5.0\n\n7.0\n")
    (tmp_path / "rear.txt").write_text("5.0\n6.0\n\n")
    sensors = {"front": {**AHEAD, "times": "front.txt"}, "rear": {**BACK, "times": "rear.txt"}}
    found = list(RigScans(read_rig(described(tmp_path, sensors=sensors)), tmp_path).attempts())
    (error,) = (one for one in found if isinstance(one, DataError))
    assert "scan '000001' of sensor 'front' has no time" in str(error)
    assert [(one.name, len(one.cloud)) for one in found if isinstance(one, RigScan)] == [
        ("000000", 2), ("000002", 1)
    ]  # fmt: skip


def test_topics_of_a_recording(ros_messages: Any, tmp_path: Path) -> None:
    """A damaged scan is an error in its place; the other sensor alone is not."""
    clouds = [ros_messages.columns(5, seed) for seed in range(4)]
    sent = [
        ("/front", 1, ros_messages.cloud(clouds[0], time_ns=SECOND_NS)),
        ("/rear", 2, ros_messages.cloud(clouds[1], time_ns=SECOND_NS + 30_000_000)),
        ("/front", 3, ros_messages.cloud(clouds[2], time_ns=2 * SECOND_NS, data=np.zeros(3, np.uint8))),
        ("/front", 4, ros_messages.cloud(clouds[3], time_ns=3 * SECOND_NS)),
    ]
    bag = ros_messages.write(tmp_path / "bag", sent)
    sensors = {"front": {**AHEAD, "scans": "/front"}, "rear": {**BACK, "scans": "/rear"}}
    scans = RigScans(read_rig(described(tmp_path, sensors=sensors)), bag)
    assert len(scans) == 3
    for _ in range(2):
        first, second, third = scans.attempts()
        assert isinstance(first, RigScan)
        assert isinstance(second, DataError)
        assert isinstance(third, RigScan)
        assert (len(first.cloud), len(third.cloud)) == (10, 5)
        np.testing.assert_allclose(first.cloud.points[5:, 0], -clouds[1]["x"] - 1, atol=1e-5)
    wrong = {"front": {**AHEAD, "scans": "/none"}}
    with pytest.raises(DataError, match="no topic '/none'"):
        RigScans(read_rig(described(tmp_path, sensors=wrong)), bag)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sensors": {}}, "field sensors must name"),
        ({"sensors": {"front": 3}}, "sensors.front: expected fields scans, extrinsic"),
        ({"sensors": {"front": {"scans": "a"}}}, "sensors.front: field extrinsic is missing"),
        (
            {"sensors": {"front": {**AHEAD, "angle": 3}}},
            "sensors.front: unknown field 'angle'",
        ),
        ({"sensors": {"front": {**AHEAD, "axes": "x,y"}}}, "sensors.front: axes must name the scan's axes"),
        ({"sensors": {"front": {**AHEAD, "scale": "a"}}}, "sensors.front: "),
        ({"sensors": {"front": {**AHEAD, "columns": "x"}}}, "sensors.front: columns must"),
        ({"sensors": {"front": {**AHEAD, "scans": 3}}}, "sensors.front: field scans must be text, got 3"),
        (
            {"sensors": {"front": {**AHEAD, "extrinsic": {"rpy": [1]}}}},
            "field extrinsic: unknown field 'rpy'",
        ),
        ({"tolerance_s": -1}, "field tolerance_s must not be negative"),
        ({"tolerance_s": "soon"}, "field tolerance_s must be a finite number, got 'soon'"),
        ({"sensor_height_m": float("nan")}, "field sensor_height_m must be a finite number"),
        ({"tolerence": 1}, "unknown field 'tolerence'"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rig\.yaml") as told:
        read_rig(described(tmp_path, **changed))
    assert message in str(told.value)


@pytest.mark.parametrize("text", ["", "[", "3", "a: &a [*a]", "sensors: [1]", "\x00"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rig.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=r"rig\.yaml"):
        read_rig(path)


def test_extrinsics(tmp_path: Path) -> None:
    made = parse_extrinsic("here", {"xyz": [1, 2, 3], "rpy_deg": [0, 0, 90]})
    np.testing.assert_allclose(made @ [1, 0, 0, 1], [1, 3, 3, 1], atol=1e-12)
    np.testing.assert_array_equal(parse_extrinsic("here", np.eye(4)[:3].tolist()), np.eye(4))
    for value in (
        "eye", [[1, 2], [3, 4]], np.zeros((4, 4)).tolist(), np.diag([1, 1, -1, 1]).tolist(), [1, 2, 3],
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]], {"xyz": [1, 2]}, [[1e300] * 4] * 4,
    ):  # fmt: skip
        with pytest.raises(DataError, match="here"):
            parse_extrinsic("here", value)


def test_a_folder_without_scans_of_a_sensor(tmp_path: Path) -> None:
    write(tmp_path / "front/0.bin", (1.0, 2.0, 3.0))
    with pytest.raises(DataError, match="of sensor 'rear'"):
        merged(tmp_path)
