"""What the node of ROS 2 does without ROS: messages of the wire in, fields of messages out."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detections, Detector, Tracker
from perception.errors import DataError
from perception.live import LiveRun, PushedScans, Result
from perception.live.ros2 import described
from perception.types import PointCloud

START_NS = 10**18


@pytest.fixture(scope="session")
def node(repository: Path) -> Any:
    """The file of the node, which is imported where there is no ROS."""
    spec = importlib.util.spec_from_file_location("ros2_node", repository / "deploy/ros2_node.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cloud_message(points: np.ndarray, time_ns: int) -> bytes:
    """A ``sensor_msgs/PointCloud2`` as it comes over the wire."""
    typesys = pytest.importorskip("rosbags.typesys", reason="rosbags is not installed (extra 'ros')")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](time_ns // 10**9, time_ns % 10**9)
    names = ("x", "y", "z", "intensity")
    fields = [types["sensor_msgs/msg/PointField"](name, 4 * k, 7, 1) for k, name in enumerate(names)]
    data, count = np.frombuffer(points.astype("<f4").tobytes(), np.uint8), len(points)
    header = types["std_msgs/msg/Header"](stamp, "velodyne")
    cloud = types["sensor_msgs/msg/PointCloud2"](header, 1, count, fields, False, 16, 16 * count, data, True)
    return bytes(store.serialize_cdr(cloud, cloud.__msgtype__))


def test_clouds_of_the_wire_are_tracked(
    node: Any, detector: Detector, points: Callable[[int], np.ndarray], patience: Any
) -> None:
    results: list[Result] = []

    class Kept:
        def take(self, result: Result) -> None:
            results.append(result)
            if len(results) == 3:
                run.stop()

        def close(self) -> None:
            pass

    source = PushedScans("/points")
    decode = node.Decoding(source, "/points")
    run = LiveRun(source, detector, sinks=[Kept()], queue=4)
    for number in range(3):
        decode(cloud_message(points(number), START_NS + number * 10**8), 0)
    decode(b"no cloud", 0)
    run.run()
    assert [result.arrival.name for result in results] == [f"/points-00000{k}" for k in range(3)]
    assert [result.arrival.cloud.timestamp_ns for result in results] == [
        START_NS + k * 10**8 for k in range(3)
    ]
    assert {result.arrival.sensor for result in results} == {"velodyne"}
    assert np.array_equal(results[1].arrival.cloud.points, points(1))
    assert run.figures.unreadable <= 1


def test_boxes_are_described_as_messages_want_them() -> None:
    box = np.array([[10, 1, -0.5, 4, 2, 1.5, math.pi / 2]], np.float32)
    tracker = Tracker()
    for number in range(3):
        found = Detections(box, np.array([0.9], np.float32), ["Car"])
        tracks = tracker.update(found, time_ns=number * 10**8)
    (thing,) = described(tracks)
    assert (thing.number, thing.label) == (1, "Car")
    assert thing.centre == pytest.approx((10, 1, -0.5), abs=0.01)
    assert thing.size == pytest.approx((4, 2, 1.5), abs=0.01)
    assert thing.turn == pytest.approx((0, 0, math.sqrt(0.5), math.sqrt(0.5)), abs=0.01)
    # What is only believed to be there still is no detection of this moment.
    unseen = tracker.update(Detections.empty(), time_ns=3 * 10**8)
    assert len(list(described(unseen))) == 0


def test_pushed_scans_get_times_and_errors_pass_through(listening: Any) -> None:
    source = PushedScans("robot")
    with listening(source) as heard:
        source.put(PointCloud(np.zeros((1, 4), np.float32)))
        source.put(DataError("damaged"))
        one, two = heard.until(2)
    assert one.cloud.timestamp_ns > 1_600_000_000 * 10**9
    assert isinstance(two, DataError)
