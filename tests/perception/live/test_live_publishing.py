"""A viewer over a real WebSocket, as Foxglove is one, and a memory that is installed."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib

from perception.cli import main
from perception.live.remembering import GROUP, open_memory
from perception.track import Tracker
from perception.types import Detections, PointCloud
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import open_recordings


class Viewer:
    """As much of Foxglove's protocol (foxglove.sdk.v1 over RFC 6455) as looking on needs."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: foxglove.sdk.v1\r\n\r\n".encode()
        )
        self._file = self._socket.makefile("rb")
        assert b" 101 " in self._file.readline()
        while self._file.readline().strip():
            pass

    def next(self) -> tuple[int, bytes]:
        """Kind (1 text, 2 binary) and content of the next message."""
        first, length = struct.unpack(">BB", self._file.read(2))
        if length == 126:
            (length,) = struct.unpack(">H", self._file.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._file.read(8))
        return first & 15, self._file.read(length)

    def send(self, message: dict[str, Any]) -> None:
        data, mask = json.dumps(message).encode(), b"\1\2\3\4"
        masked = bytes(one ^ mask[place % 4] for place, one in enumerate(data))
        self._socket.sendall(struct.pack(">BBH", 0x81, 0xFE, len(data)) + mask + masked)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_whoever_looks_on_sees_points_boxes_and_tracks(patience: Any) -> None:
    pytest.importorskip("foxglove", reason="the Foxglove SDK is not installed (extra 'foxglove')")
    port = free_port()
    cloud = PointCloud(np.ones((3, 4), np.float32), timestamp_ns=10**18)
    box = np.array([[10, 0, 0, 4, 2, 1.5, 0.1]], np.float32)
    tracks = Tracker().update(Detections(box, np.array([0.9], np.float32), ["Car"]), time_ns=10**18)
    with open_recordings(foxglove=("127.0.0.1", port), title="live") as recordings:
        viewer = Viewer(port)
        recordings.scan(cloud, tracks, RecordingMoment(0, 10**18), map_from_lidar=np.eye(4))
        channels: dict[str, dict[str, Any]] = {}
        while {"/points", "/detections", "/tracks", "/tf"} - channels.keys():
            kind, data = viewer.next()
            told = json.loads(data) if kind == 1 else {}
            if told.get("op") == "advertise":
                channels |= {one["topic"]: one for one in told["channels"]}
        assert channels["/points"]["schemaName"] == "foxglove.PointCloud"
        assert channels["/tracks"]["encoding"] == "json"
        viewer.send({"op": "subscribe", "subscriptions": [{"id": 1, "channelId": channels["/tracks"]["id"]}]})
        found: list[bytes] = []

        def look() -> None:
            while not found:
                kind, data = viewer.next()
                if kind == 2 and data[0] == 1:
                    found.append(data)

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        number = 0

        def published_until_seen() -> bool:
            # Who subscribes sees what comes from then on.
            nonlocal number
            number += 1
            recordings.scan(cloud, tracks, RecordingMoment(number, 10**18 + number), map_from_lidar=np.eye(4))
            return bool(found)

        patience(published_until_seen)
        looking.join()
        assert struct.unpack_from("<I", found[0], 1)[0] == 1
        assert struct.unpack_from("<Q", found[0], 5)[0] > 10**18
        assert json.loads(found[0][13:])["labels"] == ["Car"] * len(tracks)
        with pytest.raises(OSError, match=f"cannot publish on 127.0.0.1 port {port}.*another port"):
            open_recordings(foxglove=("127.0.0.1", port), title="live")
        viewer.close()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("foxglove=8765x", "must be [HOST:]PORT"),
        ("foxglove=:99999", "must be [HOST:]PORT"),
        ("screen", "expected foxglove[=HOST:PORT], rerun[=ADDRESS] or ros2"),
        ("ros2=/1st", "'/1st' is not"),
    ],
)
def test_viewers_that_are_none(
    word: str, said: str, tmp_path: Path, tiny_weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["live", str(tmp_path), "--weights", str(tiny_weights), "--publish", word]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def installed(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyproject.toml says of this package is what is installed, if it was installed long ago too."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"][GROUP].items()
    folder = tmp_path / "installed" / f"{project['name']}-0.0.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.0.1\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(folder.parent))


def test_a_run_is_remembered(
    installed: None,
    points: Callable[[int], np.ndarray],
    tiny_weights: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scans, store = tmp_path / "scans", tmp_path / "store"
    scans.mkdir()
    for number in range(4):
        np.save(scans / f"{number}.npy", points(0))
    (tmp_path / "poses.txt").write_text("1 0 0 5 0 1 0 0 0 0 1 0\n" * 4)
    words = ["live", scans, "--replay", "--queue", 4, "--weights", tiny_weights, "--memory", store, "--json"]
    assert main([str(word) for word in (*words, "--poses", tmp_path / "poses.txt", "--map", "yard")]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["done"] == 4
    # The place, at least; things too where the tracker believed in them. Opened again to read.
    opened = open_memory(str(store), "another run", map_id="yard")
    held = opened.see({"boxes": [], "scores": [], "labels": [], "timestamp_ns": 10**18, "frame": "9"}, 0)
    assert held == summary["memories"] >= 1
    with pytest.raises(ValueError, match=r"store: .*(open|lock|writ)"):
        open_memory(str(store), "a third run")
    with pytest.raises(ValueError, match=r"store: .*differ in length"):
        opened.see({"boxes": [1], "scores": [], "labels": []}, 0)
    opened.close()


def test_without_a_memory_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.extensions.entry_points", lambda group: ())
    with pytest.raises(ImportError, match="no memory is installed"):
        open_memory("store", "a run")
