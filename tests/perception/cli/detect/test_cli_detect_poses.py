"""``perceive detect``: where the sensor was, from files of poses by time and out of recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.train.data.frames import TrainingFrame

Perceive = Callable[..., Any]
TUM = "0.0 0 0 0 0 0 0 1\n10.0 20 0 0 0 0 1 0\n"
SECOND_NS = 10**9


def poses_of(out: Path) -> list[np.ndarray]:
    lines = (out / "detections.jsonl").read_text().splitlines()
    return [np.array(json.loads(line)["pose"]["map_from_lidar"]) for line in lines]


def test_poses_by_time_with_a_file_of_times(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """The third scan is later than all poses: it is named and skipped."""
    (tmp_path / "poses.txt").write_text("0.0 0 0 0 0 0 0 1\n1.0 20 0 0 0 0 1 0\n")
    (tmp_path / "times.txt").write_text("0.25\n1.0\n60\n")
    out = tmp_path / "out"
    options = ("--out", out, "--weights", tiny_weights, "--no-pictures", "--poses", tmp_path / "poses.txt")
    done = perceive("detect", scans, *options, "--times", tmp_path / "times.txt")
    assert done.status == 1
    first, second = poses_of(out)
    np.testing.assert_allclose(first[:, 3], [5, 0, 0], atol=1e-9)
    np.testing.assert_allclose(first[:2, :2], np.sqrt(0.5) * np.array([[1, -1], [1, 1]]), atol=1e-9)
    np.testing.assert_allclose(second[:, :2], [[-1, 0], [0, -1], [0, 0]], atol=1e-9)
    assert "from 0.000 to 1.000 s" in done.remarks
    told = perceive("detect", scans, *options, "--overwrite")
    assert told.status == 1
    assert "'street0' has none. Add --times FILE" in told.remarks


def write_drive(path: Path, points: np.ndarray) -> Path:
    """A bag with a scan a second, odometry between them, and the sensor turned on the robot."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types

    def header(time_ns: int, frame: str) -> Any:
        stamp = types["builtin_interfaces/msg/Time"](time_ns // SECOND_NS, time_ns % SECOND_NS)
        return types["std_msgs/msg/Header"](stamp, frame)

    vector, turn = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Quaternion"]
    fields = [
        types["sensor_msgs/msg/PointField"](name, 4 * k, 7, 1) for k, name in enumerate(("x", "y", "z", "i"))
    ]
    data = points.astype("<f4").view(np.uint8).reshape(-1)
    size = len(points)
    with rosbag2.Writer(path, version=9) as writer:

        def sender(topic: str, kind: str) -> Callable[[int, Any], None]:
            connection = writer.add_connection(topic, kind, typestore=store)
            return lambda time_ns, message: writer.write(
                connection, time_ns, store.serialize_cdr(message, kind)
            )

        cloud = sender("/points", "sensor_msgs/msg/PointCloud2")
        where = sender("/where", "geometry_msgs/msg/PoseStamped")
        fixed = sender("/tf_static", "tf2_msgs/msg/TFMessage")
        # y of the sensor is ahead of the robot: it is turned to the right.
        half = np.sqrt(0.5)
        mounted = types["geometry_msgs/msg/Transform"](vector(1.0, 0.0, 0.5), turn(0.0, 0.0, -half, half))
        edge = types["geometry_msgs/msg/TransformStamped"](header(SECOND_NS, ""), "lidar", mounted)
        fixed(SECOND_NS, types["tf2_msgs/msg/TFMessage"]([edge]))
        for k in range(1, 3):
            head = header(k * SECOND_NS, "lidar")
            scan = types["sensor_msgs/msg/PointCloud2"](
                head, 1, size, fields, False, 16, 16 * size, data, True
            )
            cloud(k * SECOND_NS, scan)
        for time_ns in (SECOND_NS // 2, 5 * SECOND_NS // 2):
            place = types["geometry_msgs/msg/Point"](time_ns / SECOND_NS * 4.0, 0.0, 0.0)
            pose = types["geometry_msgs/msg/Pose"](place, turn(0.0, 0.0, 0.0, 1.0))
            where(time_ns, types["geometry_msgs/msg/PoseStamped"](header(time_ns, "map"), pose))
    return path


def test_poses_out_of_the_recording_itself(
    perceive: Perceive, street: Callable[[int], TrainingFrame], tiny_weights: Path, tmp_path: Path
) -> None:
    """Turned with the axes of the scans: what the detector calls forward is ahead of the robot."""
    bag = write_drive(tmp_path / "drive", street(0).points)
    options = ("--weights", tiny_weights, "--no-pictures", "--axes", "y,-x,z")
    for number, poses in enumerate((("--pose-topic", "/where"), ("--poses", bag))):
        out = tmp_path / f"out{number}"
        assert perceive("detect", bag, "--out", out, *options, *poses).status == 0
        first, second = poses_of(out)
        np.testing.assert_allclose(first[:, :3], np.eye(3), atol=1e-9)
        np.testing.assert_allclose([first[:, 3], second[:, 3]], [[5, 0, 0.5], [9, 0, 0.5]], atol=1e-9)
    # Scans in files have the pose at the time that their name tells.
    street(0).points.astype("<f4").tofile(tmp_path / "000000001.500.bin")
    done = perceive(
        "detect", tmp_path / "000000001.500.bin", "--out", tmp_path / "o", *options, "--poses", bag
    )
    assert "scan '000000001.500'" in done.remarks


@pytest.mark.parametrize("command", [("detect", "--no-pictures"), ("track", "--no-pictures"), ("live",)])
def test_a_topic_without_poses_ends_it_before_the_first_scan(
    perceive: Perceive,
    street: Callable[[int], TrainingFrame],
    tiny_weights: Path,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    """Said once, with the topics that are there, as of ``--topic``; nothing is written."""
    bag, out = write_drive(tmp_path / "drive", street(0).points), tmp_path / "out"
    name, *options = command
    for poses in (("--pose-topic", "/missing"), ("--pose-topic", "/missing", "--poses", bag)):
        done = perceive(name, bag, "--out", out, "--weights", tiny_weights, *options, *poses)
        assert done.status == 2
        assert done.remarks.count("no topic '/missing'") == 1
        assert "/where (geometry_msgs/msg/PoseStamped, 2)" in done.remarks
        assert not out.exists()
    done = perceive(name, bag, "--out", out, "--weights", tiny_weights, *options, "--pose-topic", "/points")
    assert done.status == 2
    assert done.remarks.count("no poses (sensor_msgs/msg/PointCloud2, 2) in topic '/points'") == 1


def test_options_that_do_not_belong_together(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "poses.txt").write_text(TUM)
    options = ("detect", scans, "--out", tmp_path / "out", "--weights", tiny_weights)
    done = perceive(*options, "--pose-topic", "/odom", "--poses", tmp_path / "poses.txt")
    assert done.status == 2
    assert "--pose-topic" in done.remarks
    done = perceive(*options, "--camera-poses")
    assert done.status == 2
    assert "--camera-poses needs --poses" in done.remarks
    done = perceive(*options, "--pose-topic", "/odom")
    assert done.status == 2
    assert "--pose-topic /odom needs a bag" in done.remarks
    done = perceive(*options, "--mounting", "1,2")
    assert done.status == 2
    assert "--mounting must be ROLL,PITCH,YAW in degrees, got '1,2'" in done.remarks
