"""Packets over loopback: the same scans as out of a capture of the same packets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sensor_packets as sensors

from perception.errors import DataError
from perception.io.sensors.packets import PacketScans
from perception.io.sensors.pcap import Datagram, read_datagrams
from perception.io.transform import ScanTransform
from perception.live import Arrival, PacketSocket, UdpAddress

pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
pytest.importorskip("dpkt", reason="dpkt is not installed (extra 'packets')")


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Watched(PacketSocket):
    """Counts the packets of the sensor that were taken, and knows when it listens."""

    taken, listens = 0, False

    def _datagrams(self, stop: threading.Event) -> Iterator[Datagram | None]:
        for one in super()._datagrams(stop):
            self.taken += one is not None
            yield one

    def _listen(self) -> socket.socket:
        listener = super()._listen()
        # Before a source is read, it only tries whether it can listen.
        self.listens = threading.current_thread() is not threading.main_thread()
        return listener


Send = Callable[[Path, Watched], None]


@pytest.fixture
def send(port: int, patience: Any) -> Iterator[Send]:
    """Send the packets of a capture to a source that is read, a few at a time: no buffer overflows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))

        def sent(path: Path, source: Watched) -> None:
            patience(lambda: source.listens)
            before = source.taken
            packets = list(read_datagrams(path))
            for number, one in enumerate(packets, 1):
                sender.sendto(one.data, ("127.0.0.1", port))
                if number % 16 == 0 or number == len(packets):
                    patience(lambda number=number: source.taken == before + number)

        yield sent


def test_a_vlp16_gives_the_scans_of_its_capture(
    port: int, send: Send, tmp_path: Path, listening: Any
) -> None:
    path = sensors.velodyne_drive(tmp_path / "drive.pcap", turns=3.2)
    transform = ScanTransform(axes="y,-x,z", sensor_height_m=0.5)
    expected = [one.cloud for one in PacketScans(path, transform=transform).attempts()]  # type: ignore[union-attr]
    address = UdpAddress.parse(f"udp://127.0.0.1:{port}?model=VLP-16&sender=127.0.0.1")
    source, began_ns = Watched(address, transform=transform), time.time_ns()
    with listening(source) as heard:
        send(path, source)
        came = heard.until(2)
    # The first turn may be a part of one; the last goes on.
    for one, cloud in zip(came, expected[1:], strict=False):
        assert isinstance(one, Arrival)
        assert np.array_equal(one.cloud.points, cloud.points)
        assert one.cloud.sensor_height_m == 0.5
        assert began_ns < one.cloud.timestamp_ns < time.time_ns()
    assert [one.name for one in came] == [f"{port}-000000", f"{port}-000001"]


@pytest.mark.parametrize("profile", ["LEGACY", "RNG19_RFL8_SIG16_NIR16"])
def test_an_ouster_gives_the_scans_of_its_capture(
    profile: str, port: int, send: Send, tmp_path: Path, listening: Any
) -> None:
    path = tmp_path / "drive.pcap"
    sensors.ouster_drive(path, profile, turns=4)
    expected = [one.cloud for one in PacketScans(path).attempts()]  # type: ignore[union-attr]
    address = UdpAddress.parse(f"udp://127.0.0.1:{port}?metadata={tmp_path / 'drive.json'}")
    source = Watched(address)
    with listening(source) as heard:
        send(path, source)
        came = heard.until(2)
    assert len(came) == 2
    for one, cloud in zip(came, expected[1:3], strict=True):
        assert np.array_equal(one.cloud.points, cloud.points)


def test_packets_of_others_and_of_another_model(
    port: int, tmp_path: Path, listening: Any, patience: Any
) -> None:
    said: list[str] = []
    path = sensors.velodyne_drive(tmp_path / "drive.pcap", turns=1.5)
    source = Watched(UdpAddress.parse(f"udp://127.0.0.1:{port}?model=HDL-32E"), say=said.append)
    with listening(source) as heard, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        patience(lambda: source.listens)
        other.sendto(b"position", ("127.0.0.1", port))
        for one in list(read_datagrams(path))[:5]:
            other.sendto(one.data, ("127.0.0.1", port))
        (error,) = heard.until(1)
    assert isinstance(error, DataError)
    assert "of VLP-16, not HDL-32E" in str(error)
    assert f"udp://127.0.0.1:{port}: skipping packets of 8 bytes" in "".join(said)


def test_a_sensor_that_stands_still_does_not_fill_the_memory(tmp_path: Path) -> None:
    from perception.io.sensors.ouster import read_ouster_metadata
    from perception.io.sensors.pcap import Datagram
    from perception.io.sensors.turns import OusterTurns, VelodyneTurns

    packet = sensors.velodyne_packet(
        [100] * 12, np.full((12, 32), 2500), np.full((12, 32), 9), mode=sensors.STRONGEST, model=sensors.VLP16
    )
    velodyne = VelodyneTurns("here")
    for number in range(8192):
        assert velodyne.add(Datagram(number, "", packet)) is None
    with pytest.raises(DataError, match="here: 8192 packets"):
        velodyne.add(Datagram(8192, "", packet))
    (tmp_path / "still.json").write_text(json.dumps(sensors.ouster_metadata("LEGACY")))
    ouster = OusterTurns(read_ouster_metadata(tmp_path / "still.json"))
    still = sensors.ouster_packet("LEGACY", 1, range(16), np.full((16, 8), 800), np.full((16, 8), 9))
    done = [ouster.add(Datagram(number, "", still)) for number in range(100)]
    assert sum(one is not None for one in done) == 12


def test_silence_is_said_and_turns_begin_anew(
    port: int,
    send: Send,
    tmp_path: Path,
    listening: Any,
    patience: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perception.live.udp._GAP_S", 0.1)
    monkeypatch.setattr("perception.live.udp._SILENCE_S", 0.3)
    monkeypatch.setattr("perception.live.udp._WAIT_S", 0.05)
    said: list[str] = []
    # How many packets had come before each remark: a busy machine may be silent for a while among them.
    after: list[int] = []

    def say(text: str) -> None:
        said.append(text)
        after.append(source.taken)

    path = sensors.velodyne_drive(tmp_path / "drive.pcap", turns=1.5)
    source = Watched(UdpAddress("127.0.0.1", port), say=say)
    with listening(source) as heard:
        for _ in range(2):
            send(path, source)
            patience(lambda: after and after[-1] == source.taken)
        # One whole turn would be of two halves with a pause between them.
        assert heard.came == []
    assert all("no packets of 1206 bytes" in text and "sensor is on" in text for text in said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("udp://", "udp://"),
        ("udp://:99999", "udp://"),
        ("udp://:2368/scans", "udp://"),
        ("udp://:2368?modle=VLP-16", "unknown key 'modle'"),
        ("udp://:2368?model=VLP-17", "unknown model 'VLP-17'"),
        ("udp://:2368?model", "udp://"),
        ("udp://:2368?model=VLP-16&metadata=a.json", "Leave one out"),
    ],
)
def test_addresses_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="udp://") as caught:
        UdpAddress.parse(text)
    assert said in str(caught.value)


def test_addresses_and_ports_that_are_taken(port: int, tmp_path: Path) -> None:
    assert UdpAddress.parse("udp://:2368") == UdpAddress("", 2368)
    assert UdpAddress.parse("udp://[::1]:2368?model=vlp-16") == UdpAddress("::1", 2368, "VLP-16")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"listen.*program"):
            PacketSocket(UdpAddress("127.0.0.1", taken.getsockname()[1]))
    with pytest.raises(DataError, match=r"none\.json"):
        PacketSocket(UdpAddress("127.0.0.1", port, metadata=tmp_path / "none.json"))
