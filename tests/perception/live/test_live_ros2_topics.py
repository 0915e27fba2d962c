"""Topics of ROS 2 without ROS: a router, a robot that talks, one that listens, each in its own process."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detections, Detector, Tracker
from perception.data.sample import sample_frames
from perception.io.transform import ScanTransform
from perception.live import LiveRun, Ros2Address, Ros2Boxes, Ros2Scans
from perception.live.ros2 import described
from perception.live.ros2.messages import CLOUD, DETECTIONS, MARKERS, type_hash
from perception.live.ros2.session import Ros2Session

NODES = Path(__file__).with_name("ros2_nodes.py")
#: Seconds after which a test that hangs ends.
PATIENCE_S = 300.0


class Process:
    """A process of :mod:`ros2_nodes` or of ``perceive``, and the lines that it says."""

    def __init__(self, *words: Any) -> None:
        command = [sys.executable, *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.remarks: list[str] = []
        heard = ((self.process.stdout, self.lines), (self.process.stderr, self.remarks))
        self._hearing = [threading.Thread(target=self._hear, args=pair) for pair in heard]
        for thread in self._hearing:
            thread.start()

    @staticmethod
    def _hear(stream: Any, kept: list[str]) -> None:
        with stream:
            for line in stream:
                kept.append(line.rstrip())

    def told(self, key: str) -> list[dict[str, Any]]:
        """The lines of JSON with a key."""
        values = (json.loads(line) for line in list(self.lines) if line.startswith("{"))
        return [value for value in values if key in value]

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal and wait."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        for thread in self._hearing:
            thread.join(PATIENCE_S)
        return status


Run = Callable[..., Process]


@pytest.fixture
def run(patience: Any) -> Iterator[Run]:
    """Start a process; those of :mod:`ros2_nodes` are ready when it is back."""
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra 'ros2')")
    pytest.importorskip("zenoh_ros2_sdk", reason="zenoh-ros2-sdk, the robot here, is not installed")
    started: list[Process] = []

    def start(*words: Any) -> Process:
        own = words[0] == "perceive"
        made = Process("-m", "perception.cli", *words[1:]) if own else Process(NODES, *words)
        started.append(made)
        if not own:
            patience(lambda: "ready" in made.lines or made.process.poll() is not None)
            assert made.process.poll() is None, made.remarks
        return made

    yield start
    for one in started:
        one.end()


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROS_DOMAIN_ID", raising=False)
    assert Ros2Address.parse("ros2:/points") == Ros2Address("/points")
    assert Ros2Address.parse("ros2:points") == Ros2Address("/points")
    assert Ros2Address.parse("ros2:") == Ros2Address("")
    found = Ros2Address.parse("ros2://robot.local:7448/front/points?domain=3&distro=humble")
    assert found == Ros2Address("/front/points", "robot.local", 7448, 3, "humble")
    assert Ros2Address.parse("ros2://[fe80::1]/points").endpoint == "tcp/[fe80::1]:7447"
    monkeypatch.setenv("ROS_DOMAIN_ID", "42")
    assert Ros2Address.parse("ros2:/points").domain == 42
    assert Ros2Address.parse("ros2:/points?domain=0").domain == 0
    for wrong, why in (
        ("udp:/points", "ros2"),
        ("ros2:/points?speed=2", "'speed'"),
        ("ros2:/points?distro=foxy", "distro 'foxy'"),
        ("ros2:/points?domain=233", "domain=233 must be a number from 0 to 232"),
        ("ros2:/1st", "'/1st' is not a ROS name"),
        ("ros2:/points/", "'/points/' is not a ROS name"),
        ("ros2://robot:x/points", "ros2"),
    ):
        with pytest.raises(ValueError, match=r".*") as caught:
            Ros2Address.parse(wrong)
        assert why in str(caught.value)
    monkeypatch.setenv("ROS_DOMAIN_ID", "two")
    with pytest.raises(ValueError, match=r"ROS_DOMAIN_ID=two must be a number"):
        Ros2Address.parse("ros2:/points")


def test_types_have_the_hashes_that_ros_publishes() -> None:
    pytest.importorskip("rosbags.typesys", reason="rosbags is not installed (extra 'ros2')")
    sys.path.insert(0, str(NODES.parent))
    try:
        from ros2_nodes import HASHES
    finally:
        sys.path.pop(0)
    assert {kind: type_hash(kind) for kind in (CLOUD, DETECTIONS, MARKERS)} == HASHES


def test_boxes_go_back_to_the_axes_of_the_sensor() -> None:
    """nuScenes: x right, y forward. A car ahead that drives ahead is at y and turned to y there."""
    transform = ScanTransform(axes="y,-x,z")
    box = np.array([[10, 1, -0.5, 4, 2, 1.5, 0.25]], np.float32)
    found = Detections(box, np.array([0.9], np.float32), ["Car"])
    tracks = Tracker().update(found, time_ns=0)
    (thing,) = described(tracks, transform.rotation)
    assert thing.centre == pytest.approx((-1, 10, -0.5), abs=0.01)
    assert thing.size == pytest.approx((4, 2, 1.5), abs=0.01)
    yaw = 0.25 + np.pi / 2
    assert thing.turn == pytest.approx((0, 0, np.sin(yaw / 2), np.cos(yaw / 2)), abs=0.01)
    ahead = transform.apply_xyz(np.array([thing.centre], np.float32))
    assert ahead[0] == pytest.approx((10, 1, -0.5), abs=0.01)


def test_axes_that_mirror_are_refused() -> None:
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra 'ros2')")
    with pytest.raises(ValueError, match=r"mirror"):
        Ros2Boxes(Ros2Address(""), transform=ScanTransform(axes="y,x,z"))


def test_nothing_is_awaited_where_there_is_no_router(port: int) -> None:
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra 'ros2')")
    source = Ros2Scans(Ros2Address("/points", "127.0.0.1", port))
    with pytest.raises(OSError, match=rf"at 127\.0\.0\.1:{port}.*rmw_zenohd"):
        next(iter(source.arrivals(threading.Event())))


@pytest.mark.parametrize("distro", ["jazzy", "humble"])
def test_a_cloud_is_tracked_and_heard_by_our_own_node(
    run: Run, port: int, distro: str, detector: Detector, points: Any, patience: Any, tmp_path: Path
) -> None:
    """With the other library as the sensor; messages that are no cloud are passed over."""
    run("router", port)
    files = [tmp_path / f"{k}.npy" for k in range(8)]
    for k, file in enumerate(files):
        np.save(file, points(k))
    run("talk", port, "/front/points", 10, *files)
    address = Ros2Address("/front/points", "127.0.0.1", port, distro=distro)
    heard: list[bytes] = []
    listener = Ros2Session(address)
    listener.subscribe("/robot/markers", MARKERS, lambda sample: heard.append(sample.payload.to_bytes()))
    bad = listener.publisher("/front/points", CLOUD)
    remarks: list[str] = []
    boxes = Ros2Boxes(Ros2Address("/robot", "127.0.0.1", port, distro=distro), say=remarks.append)
    live = LiveRun(Ros2Scans(address), detector, sinks=[boxes], say=remarks.append)
    thread = threading.Thread(target=live.run)
    thread.start()
    try:
        patience(lambda: len(heard) >= 3)
        assert listener.published(CLOUD) == ["/front/points"]
        assert listener.published(MARKERS) == ["/robot/markers"]
        bad(b"no cloud")
        patience(lambda: live.figures.unreadable > 0)
    finally:
        live.stop()
        thread.join(PATIENCE_S)
        listener.close()
    assert any("bytes are not a sensor_msgs/msg/PointCloud2" in remark for remark in remarks)
    assert live.figures.summary()["latency_p50_ms"] > 0


def test_silence_says_what_there_is(
    run: Run, port: int, points: Any, tmp_path: Path, patience: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.live.ros2.scans._SILENCE_S", 0.5)
    run("router", port)
    np.save(tmp_path / "0.npy", points(0))
    run("talk", port, "/velodyne_points", 5, tmp_path / "0.npy")
    remarks: list[str] = []
    source = Ros2Scans(Ros2Address("/points", "127.0.0.1", port), say=remarks.append)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: list(source.arrivals(stop)))
    thread.start()
    try:
        # Before the router has heard of the other node, there is nothing to name.
        patience(lambda: any("point clouds are on" in remark for remark in remarks))
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert remarks[-1] == (
        "ros2:/points: no point cloud for 0.5 s; point clouds are on /velodyne_points in domain 0"
    )


@pytest.mark.slow
def test_three_processes_and_what_dies_comes_back(run: Run, port: int, patience: Any, tmp_path: Path) -> None:
    """The simulated street at 20 Hz, faster than a frame; the sensor's node dies, then the router."""
    files = []
    for k, frame in enumerate(sample_frames()):
        files.append(tmp_path / f"{k}.npy")
        np.save(files[-1], frame.cloud.points)
    router = run("router", port)
    listener = run("listen", port, "/robot")
    talker = run("talk", port, "/points", 20, *files)
    address = f"ros2://127.0.0.1:{port}"
    live = run(
        "perceive", "live", f"{address}/points", "--publish", f"ros2=//127.0.0.1:{port}/robot",
        "--json", "--out", tmp_path / "out",
    )  # fmt: skip

    def boxes() -> int:
        return sum(len(one["boxes"]) for one in listener.told("boxes"))

    patience(lambda: boxes() > 0)
    talker.end()
    for again in (lambda: None, lambda: (router.end(), run("router", port))):
        again()
        before = len(listener.told("boxes"))
        talker = run("talk", port, "/points", 20, *files)
        patience(lambda before=before: len(listener.told("boxes")) >= before + 3)
        talker.end()
    assert live.end(signal.SIGTERM) == 0, live.remarks
    (summary,) = live.told("summary")
    assert summary["dropped"] > 0
    assert summary["done"] + summary["dropped"] + summary["late"] <= summary["arrived"]
    assert summary["latency_p50_ms"] > 0
    records = [json.loads(line) for line in (tmp_path / "out/detections.jsonl").read_text().splitlines()]
    heard = {one["time_ns"]: one for one in listener.told("boxes")}
    compared = 0
    for record in records:
        told = heard.get(record["time_ns"])
        if told is None:
            continue
        seen = [row for row, missed in enumerate(record["missed_s"]) if missed == 0]
        assert [one["id"] for one in told["boxes"]] == [str(record["track_id"][row]) for row in seen]
        assert [one["class"] for one in told["boxes"]] == [record["labels"][row] for row in seen]
        for one, row in zip(told["boxes"], seen, strict=True):
            assert one["centre"] == pytest.approx(record["boxes"][row][:3], abs=1e-3)
            assert one["size"] == pytest.approx(record["boxes"][row][3:6], abs=1e-3)
            compared += 1
        assert told["frame"] == "velodyne"
    assert compared > 5
    shown = listener.told("markers")
    assert all(markers["markers"][0][0] == 3 for markers in shown)
    assert max(len(markers["markers"]) for markers in shown) > 1


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(ImportError, match=r"sparsight\[ros2\]"):
        Ros2Scans(Ros2Address("/points"))
    with pytest.raises(ImportError, match=r"sparsight\[ros2\]"):
        Ros2Boxes(Ros2Address(""))
    monkeypatch.undo()
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed (extra 'ros2')")
    with pytest.raises(ValueError, match=r"no topic"):
        Ros2Scans(Ros2Address(""))
