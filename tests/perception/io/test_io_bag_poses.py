"""Poses out of recordings: interpolated, through chains of frames, and refused where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from perception.errors import DataError
from perception.io.recordings.bag_poses import BagPoses
from perception.io.recordings.bags import open_bag

SECOND_NS = 10**9


def poses(path: Path, topic: str | None = None, *, sensor: str = "lidar") -> BagPoses:
    with open_bag(path) as bag:
        return BagPoses(bag, topic, sensor=sensor)


def planar(x: float, y: float, z: float, yaw: float) -> np.ndarray:
    made = np.eye(4)
    made[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    made[:3, 3] = x, y, z
    return made


def track(messages: Any, kind: str) -> list[Any]:
    """From (0, 0) to (10, 20) in ten seconds, turning by two radians; not in order."""
    make = getattr(messages, kind)
    order = [3, 0, 1, 2, *range(4, 11)]
    sent = [make((100 + k) * SECOND_NS, (1.0 * k, 2.0 * k, 0.5), 0.2 * k) for k in order]
    return [("/where", k, message) for k, message in enumerate(sent)]


@pytest.mark.parametrize("kind", ["pose", "odometry"])
@pytest.mark.parametrize("mcap", [False, True])
def test_poses_are_interpolated(ros_messages: Any, tmp_path: Path, kind: str, mcap: bool) -> None:
    found = poses(ros_messages.write(tmp_path / "bag", track(ros_messages, kind), mcap=mcap))
    assert found.frame_id == {"pose": "map", "odometry": "odom"}[kind]
    for since in (0.0, 2.0, 4.25, 9.99, 10.0):
        here = found.at(round((100 + since) * SECOND_NS))
        assert here is not None
        np.testing.assert_allclose(here, planar(since, 2 * since, 0.5, 0.2 * since), atol=1e-6)


def test_outside_of_the_track_the_last_pose_holds_for_a_second(ros_messages: Any, tmp_path: Path) -> None:
    found = poses(ros_messages.write(tmp_path / "bag", track(ros_messages, "pose")))
    here = found.at(round(110.9 * SECOND_NS))
    assert here is not None
    np.testing.assert_allclose(here, planar(10, 20, 0.5, 2.0), atol=1e-6)
    assert found.at(round(111.5 * SECOND_NS)) is None
    assert found.at(round(98.5 * SECOND_NS)) is None


def test_the_place_of_the_sensor_on_the_robot_counts(ros_messages: Any, tmp_path: Path) -> None:
    mounts = [
        ros_messages.transform(0, "base", "mast", (0.5, 0.0, 1.0), yaw=0.5),
        ros_messages.transform(0, "mast", "lidar", (0.0, 0.2, 0.3), yaw=-0.1),
    ]
    sent = [*track(ros_messages, "odometry"), ("/tf_static", 0, ros_messages.tf(*mounts))]
    path = ros_messages.write(tmp_path / "bag", sent)
    here = poses(path).at(103 * SECOND_NS)
    assert here is not None
    expected = planar(3, 6, 0.5, 0.6) @ planar(0.5, 0, 1, 0.5) @ planar(0, 0.2, 0.3, -0.1)
    np.testing.assert_allclose(here, expected, atol=1e-6)
    bare = poses(path, sensor="another").at(103 * SECOND_NS)
    assert bare is not None
    np.testing.assert_allclose(bare, planar(3, 6, 0.5, 0.6), atol=1e-6)


def test_a_chain_of_transforms(ros_messages: Any, tmp_path: Path) -> None:
    sent: list[Any] = [
        (
            "/tf",
            k,
            ros_messages.tf(
                ros_messages.transform(k * SECOND_NS, "map", "odom", (0.0, 0.1 * k, 0.0)),
                ros_messages.transform(k * SECOND_NS, "odom", "base", (2.0 * k, 0.0, 0.0), yaw=0.1 * k),
                ros_messages.transform(k * SECOND_NS, "base", "wheel", (0.0, 0.0, 0.0), yaw=3.0),
            ),
        )
        for k in range(6)
    ]
    mount = ros_messages.transform(0, "base", "lidar", (1.0, 0.0, 1.5))
    sent.append(("/tf_static", 0, ros_messages.tf(mount)))
    path = ros_messages.write(tmp_path / "bag", sent)
    found = poses(path)
    assert (found.frame_id, found.topics) == ("map", ("/tf", "/tf_static"))
    here = found.at(round(2.5 * SECOND_NS))
    assert here is not None
    expected = planar(0, 0.25, 0, 0) @ planar(5, 0, 0, 0.25) @ planar(1, 0, 1.5, 0)
    np.testing.assert_allclose(here, expected, atol=1e-6)
    assert found.at(9 * SECOND_NS) is None
    named = poses(path, "/tf").at(round(2.5 * SECOND_NS))
    assert named is not None
    np.testing.assert_allclose(named, expected, atol=1e-6)
    with pytest.raises(DataError, match=r"leads to the sensor's frame 'roof'; frames: base, lidar"):
        poses(path, sensor="roof")


def test_no_pose_and_too_many_are_clear(ros_messages: Any, tmp_path: Path) -> None:
    cloud = ros_messages.cloud(ros_messages.columns(3))
    static = ros_messages.tf(ros_messages.transform(0, "base", "lidar", (0.0, 0.0, 0.0)))
    none = ros_messages.write(tmp_path / "none", [("/points", 1, cloud), ("/tf_static", 1, static)])
    with pytest.raises(DataError, match=r"none: no poses; expected nav_msgs/msg/Odometry.*--poses"):
        poses(none)
    with pytest.raises(DataError, match=r"none: no poses \(sensor_msgs/msg/.*, 1\) in topic '/points'"):
        poses(none, "/points")
    with pytest.raises(DataError, match=r"no topic '/odom'"):
        poses(none, "/odom")
    sent = [
        ("/a", 0, ros_messages.pose(0, (0.0, 0.0, 0.0))),
        ("/b", 0, ros_messages.odometry(0, (1.0, 2.0, 3.0))),
    ]
    two = ros_messages.write(tmp_path / "two", sent)
    with pytest.raises(DataError, match=r"2 topics hold poses: /a \(geometry_msgs.*with --pose-topic"):
        poses(two)
    here = poses(two, "/b").at(0)
    assert here is not None
    np.testing.assert_allclose(here[:3, 3], [1, 2, 3])


def test_a_rotation_without_length_is_named(ros_messages: Any, tmp_path: Path) -> None:
    message = ros_messages.pose(0, (0.0, 0.0, 0.0))
    message.pose.orientation.w = 0.0
    path = ros_messages.write(tmp_path / "bag", [("/where", 1, message)])
    with pytest.raises(DataError, match=r"topic /where, message 0.*quaternion"):
        poses(path)


def test_a_circle_of_frames_is_named(ros_messages: Any, tmp_path: Path) -> None:
    ring = [ros_messages.transform(0, one, other, (0.0, 0.0, 0.0)) for one, other in ("ab", "bc", "ca")]
    path = ros_messages.write(tmp_path / "bag", [("/tf", 1, ros_messages.tf(*ring))])
    with pytest.raises(DataError, match="a -> c -> b -> a"):
        poses(path, sensor="a")
