"""ROS 1 bags written by rosbags: scans and poses as from ROS 2, and damage."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutations import mutations

from perception.errors import DataError
from perception.io.recordings.bag_poses import BagPoses
from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import open_bag

SECOND_NS = 10**9


def in_ros1(store: Any, message: Any, sequence: int) -> Any:
    """The same message with the types of ROS 1, whose headers are numbered."""
    kind = message.__msgtype__
    if kind == "std_msgs/msg/Header":
        stamp = store.types["builtin_interfaces/msg/Time"](message.stamp.sec, message.stamp.nanosec)
        return store.types[kind](sequence, stamp, message.frame_id)

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(one) for one in value]
        return in_ros1(store, value, sequence) if hasattr(value, "__msgtype__") else value

    return store.types[kind](
        **{name: changed(getattr(message, name)) for name in message.__dataclass_fields__ if name[0] != "_"}
    )


def write(path: Path, sent: Sequence[tuple[str, int, Any]], compression: str = "", **renamed: str) -> Path:
    """A .bag of (topic, time of the recording, message of ROS 2), types renamed."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    transforms = "geometry_msgs/TransformStamped[] transforms"
    for name in ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage"):
        store.register(get_types_from_msg(transforms, name))
    writer = Writer(path)
    if compression:
        writer.set_compression(Writer.CompressionFormat[compression])
    with writer:
        connections = {
            topic: writer.add_connection(
                topic, renamed.get(message.__msgtype__, message.__msgtype__), typestore=store
            )
            for topic, message in {topic: message for topic, _, message in sent}.items()
        }
        for number, (topic, time_ns, message) in enumerate(sent):
            data = store.serialize_ros1(in_ros1(store, message, number), message.__msgtype__)
            writer.write(connections[topic], time_ns, bytes(data))
    return path


def drive(messages: Any) -> list[tuple[str, int, Any]]:
    return [
        *(
            ("/points", k, messages.cloud(messages.columns(30, k), time_ns=k * SECOND_NS))
            for k in (1, 2, 3)
        ),
        *(("/odom", k, messages.odometry(k * SECOND_NS, (2.0 * k, 0.0, 0.0))) for k in (1, 3)),
        ("/tf_static", 1, messages.tf(messages.transform(SECOND_NS, "base", "lidar", (0.0, 0.0, 1.5)))),
    ]  # fmt: skip


@pytest.mark.parametrize("compression", ["", "BZ2", "LZ4"])
def test_scans_and_poses_are_those_of_ros_2(ros_messages: Any, tmp_path: Path, compression: str) -> None:
    sent = drive(ros_messages)
    one = write(tmp_path / "drive.bag", sent, compression)
    two = ros_messages.write(tmp_path / "drive", sent)
    read = []
    for path in (one, two):
        with open_bag(path) as bag:
            scans = list(BagScans(bag))
            poses = BagPoses(bag, sensor=scans[0].frame_id)
            read.append((bag.topics, scans, poses))
    (topics, ours, poses), (their_topics, theirs, their_poses) = read
    assert [topic[:2] + topic[3:] for topic in topics] == [topic[:2] + topic[3:] for topic in their_topics]
    assert {topic.encoding for topic in topics} == {"ros1"}
    assert len(ours) == 3
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine.cloud.points, other.cloud.points)
        assert mine.cloud.timestamp_ns == other.cloud.timestamp_ns
        pose = poses.at(mine.cloud.timestamp_ns)
        assert pose is not None
        np.testing.assert_array_equal(pose, their_poses.at(mine.cloud.timestamp_ns))
        np.testing.assert_allclose(pose[:3, 3], [2.0 * mine.cloud.timestamp_ns / SECOND_NS, 0.0, 1.5])


def test_transforms_of_the_first_years_are_read(ros_messages: Any, tmp_path: Path) -> None:
    moves = [
        ros_messages.tf(ros_messages.transform(k * SECOND_NS, "map", "lidar", (k, 0.0, 0.0))) for k in (1, 3)
    ]
    sent = [("/tf", k, move) for k, move in enumerate(moves)]
    path = write(tmp_path / "drive.bag", sent, **{"tf2_msgs/msg/TFMessage": "tf/msg/tfMessage"})
    with open_bag(path) as bag:
        pose = BagPoses(bag, sensor="lidar").at(2 * SECOND_NS)
    assert pose is not None
    np.testing.assert_allclose(pose[:3, 3], [2.0, 0.0, 0.0])


def test_what_is_no_bag_and_a_missing_library(
    ros_messages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "drive.bag"
    path.write_bytes(b"")
    with (
        pytest.raises(DataError, match=r"drive\.bag.*'rosbag reindex' \(ROS 1\)"),
        open_bag(path),
    ):
        pass
    monkeypatch.setitem(sys.modules, "rosbags.rosbag1", None)
    with (
        pytest.raises(ImportError, match=r"reading ROS 1 bags needs rosbags: .*sparsight\[ros\]"),
        open_bag(path),
    ):
        pass


@pytest.mark.parametrize("count", [30, pytest.param(600, marks=pytest.mark.slow)])
def test_damaged_bags_are_read_or_refused(ros_messages: Any, tmp_path: Path, count: int) -> None:
    path = write(tmp_path / "drive.bag", drive(ros_messages))
    sound, refused = path.read_bytes(), 0
    tracemalloc.start()
    try:
        for kind, data in mutations(sound, count, seed=4):
            path.write_bytes(data)
            tracemalloc.reset_peak()
            try:
                with open_bag(path) as bag:
                    scans = [scan for scan in BagScans(bag).attempts() if not isinstance(scan, DataError)]
                    BagPoses(bag, sensor="lidar").at(SECOND_NS)
                assert len(scans) <= 10, kind
            except DataError as error:
                refused += str(path) in str(error)
            assert tracemalloc.get_traced_memory()[1] < 200_000_000, kind
    finally:
        tracemalloc.stop()
    assert refused > 0
