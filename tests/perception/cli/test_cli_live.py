"""``perceive live``: a recording at its own pace, a folder that grows, figures, records, a clean end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.cli.live.command import _stop_on_signal
from perception.train.data.frames import TrainingFrame
from perception.types import Detections, PointCloud
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import open_recordings

Perceive = Callable[..., Any]
Street = Callable[[int], TrainingFrame]
START_NS = 1_700_000_000 * 10**9
#: Seconds after which a test that hangs ends.
GUARD_S = 300.0


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]


def test_a_folder_is_replayed(perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "poses.txt").write_text("".join(f"1 0 0 {k} 0 1 0 0 0 0 1 0\n" for k in range(3)))
    command = ("live", scans, "--replay", "--weights", tiny_weights, "--queue", 3, "--out", out)
    told = perceive(*command, "--poses", tmp_path / "poses.txt", "--json")
    assert told.status == 0
    summary = json.loads(told.output.splitlines()[-1])
    assert summary["summary"]
    assert (summary["arrived"], summary["done"], summary["dropped"], summary["without_pose"]) == (3, 3, 0, 0)
    assert summary["latency_p50_ms"] <= summary["latency_p99_ms"]
    records = records_of(out)
    assert [record["frame"] for record in records] == ["street0", "street1", "street2"]
    assert [record["pose"]["map_from_lidar"][0][3] for record in records] == [0, 1, 2]
    assert all(
        {"track_id", "velocity", "structure", "latency_ms", "limits_reached"} <= record.keys()
        for record in records
    )
    steps = np.diff([record["timestamp_ns"] for record in records])
    assert steps.tolist() == [10**8, 10**8]

    again = perceive(*command)
    assert again.status == 2
    assert "--overwrite" in again.remarks


def test_boxes_are_predicted_to_the_time_of_delivery(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    poses = tmp_path / "poses.txt"
    poses.write_text("".join(f"1 0 0 {k} 0 1 0 0 0 0 1 0\n" for k in range(3)))
    command = ("live", scans, "--replay", "--weights", tiny_weights, "--queue", 3, "--poses", poses)
    assert perceive(*command, "--out", tmp_path / "plain").status == 0
    assert not any("delivery" in record for record in records_of(tmp_path / "plain"))
    assert perceive(*command, "--out", tmp_path / "out", "--predict", 50).status == 0
    for record in records_of(tmp_path / "out"):
        delivery = record["delivery"]
        assert delivery["latency_ms"] >= record["latency_ms"] + 50
        age_ns = delivery["time_ns"] - record["time_ns"]
        assert age_ns == pytest.approx(delivery["latency_ms"] * 1e6, abs=1e4)
        columns = ("track_id", "labels", "boxes", "radius_m")
        assert len({len(delivery[name]) for name in columns}) == 1
        gone = any("not predicted" in warning for warning in delivery["warnings"])
        assert (set(delivery["track_id"]) == set(record["track_id"])) != gone
    # The sensor drives a metre per scan of 0.1 s, and goes on until the delivery.
    assert delivery["map_from_lidar"][0][3] == pytest.approx(2 + age_ns * 1e-8, abs=1e-6)
    wrong = perceive(*command, "--out", tmp_path / "wrong", "--predict", -1)
    assert wrong.status == 2
    assert "--predict" in wrong.remarks


def test_a_recording_is_played_with_its_poses(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    pytest.importorskip("foxglove", reason="the Foxglove SDK is not installed (extra 'foxglove')")
    path, out = tmp_path / "drive.mcap", tmp_path / "out"
    with open_recordings(mcap=path, title="a drive") as recordings:
        for k in range(3):
            pose = np.eye(4)
            pose[0, 3] = 0.5 * k
            moment, cloud = RecordingMoment(k, START_NS + k * 10**8), PointCloud(street(k).points)
            recordings.scan(cloud, Detections.empty(), moment, map_from_lidar=pose)
    options = ("--weights", tiny_weights, "--queue", 3, "--speed", 4, "--out", out)
    told = perceive("live", path, *options)
    assert told.status == 0
    assert "3 of 3 scans in" in told.output
    records = records_of(out)
    assert [record["time_ns"] for record in records] == [START_NS + k * 10**8 for k in range(3)]
    assert [record["pose"]["map_from_lidar"][0][3] for record in records] == [0, 0.5, 1.0]


def test_a_folder_grows_until_the_process_is_asked_to_end(
    scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """In a process of its own, as systemd runs it, which listens."""
    folder, out = tmp_path / "grows", tmp_path / "out"
    folder.mkdir()
    arguments = ["live", folder, "--weights", tiny_weights, "--out", out, "--json", "--queue", 3]
    command = [sys.executable, "-m", "perception.cli", *map(str, arguments)]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(GUARD_S)
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    pipe = subprocess.PIPE
    with listener, subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert listener.recv(1000).decode() == f"READY=1\nSTATUS=scans of {folder}"
            for path in sorted(scans.iterdir()):
                os.rename(path, folder / path.name)
            until_s = time.monotonic() + GUARD_S
            while not (out / "detections.jsonl").exists() or len(records_of(out)) < 3:
                assert time.monotonic() < until_s
                time.sleep(0.05)
            process.stdout.readline()  # A second is over: the service manager has heard of the pace.
            process.send_signal(signal.SIGTERM)
            output, remarks = process.communicate(timeout=GUARD_S)
            told, listener_is_empty = set[str](), False
            listener.setblocking(False)
            while not listener_is_empty:
                try:
                    told.add(listener.recv(1000).decode().split("\n")[-1])
                except BlockingIOError:
                    listener_is_empty = True
            assert {"WATCHDOG=1", "STOPPING=1"} <= told
            assert any(text.startswith("STATUS=") and "scans/s" in text for text in told)
        finally:
            process.kill()
    assert process.returncode == 0, remarks
    assert json.loads(output.splitlines()[-1])["done"] == 3
    assert "Traceback" not in remarks
    assert "no poses: tracks are in the frame of the sensor" in remarks


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("nowhere",), "nowhere: no such file or folder"),
        (("SCANS", "--queue", "0"), "at least 1, got 0"),
        (("SCANS", "--rate", "0"), "--rate must be"),
        (("SCANS", "--for", "-1"), "seconds, got -1"),
        (("SCANS", "--replay", "--speed", "0"), "speed must be positive, got 0"),
        (("SCANS", "--topic", "/points"), "--topic /points"),
        (("SCANS", "--keep-warm"), "keep_warm needs CUDA graphs"),
    ],
)
def test_what_cannot_be_is_said(
    options: tuple[str, ...], said: str, perceive: Perceive, scans: Path, tiny_weights: Path
) -> None:
    words = [str(scans) if word == "SCANS" else word for word in options]
    told = perceive("live", *words, "--weights", tiny_weights)
    assert told.status == 2
    assert said in told.remarks


def test_scans_that_fail_are_told_by_the_status(perceive: Perceive, scans: Path, tiny_weights: Path) -> None:
    (scans / "street1.bin").write_bytes(b"123")
    told = perceive("live", scans, "--replay", "--weights", tiny_weights, "--queue", 3)
    assert told.status == 1
    assert "1 unreadable" in told.output
    assert "street1.bin" in told.remarks


def test_the_time_is_up(perceive: Perceive, tmp_path: Path, tiny_weights: Path) -> None:
    told = perceive("live", tmp_path, "--weights", tiny_weights, "--for", 0.2)
    assert told.status == 0
    assert "0 of 0 scans" in told.output
    assert not [thread for thread in threading.enumerate() if thread.name in ("scans", "results", "status")]


def test_scans_that_are_there_already_are_left_and_that_is_said(
    perceive: Perceive, scans: Path, tiny_weights: Path
) -> None:
    told = perceive("live", scans, "--weights", tiny_weights, "--for", 0.2)
    assert told.status == 0
    assert "--replay plays them" in told.remarks


def test_no_thread_is_left_that_holds_what_it_would_have_stopped() -> None:
    held = threading.Event()
    with _stop_on_signal(held.set, 60.0):
        timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
        assert len(timers) == 1
    assert not timers[0].is_alive()
    assert not held.is_set()
