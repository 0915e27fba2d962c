"""Packets in captures: known ranges encoded, decoded again, within the resolution of the format."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sensor_packets as sensors
from mutations import mutations

from perception import PointCloud
from perception.errors import DataError
from perception.io.recordings.bag_scans import BagScan
from perception.io.sensors.ouster import read_ouster_metadata
from perception.io.sensors.packets import PacketScans
from perception.io.sensors.pcap import read_datagrams
from perception.scans import ScanTransform

pytest.importorskip("dpkt", reason="dpkt is not installed (extra 'packets')")
PROFILES = ["LEGACY", "RNG19_RFL8_SIG16_NIR16", "RNG19_RFL8_SIG16_NIR16_DUAL", "RNG15_RFL8_NIR8"]
BEAM = '{"beam_altitude_angles": [1], "beam_azimuth_angles": [1]'


def scans(path: Path, **how: Any) -> list[PointCloud]:
    found = list(PacketScans(path, **how).attempts())
    assert all(isinstance(one, BagScan) for one in found)
    return [one.cloud for one in found if isinstance(one, BagScan)]


def elevation_deg(xyz: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.degrees(np.arcsin(xyz[:, 2] / np.linalg.norm(xyz, axis=1)))
    return made


@pytest.mark.parametrize(
    ("suffix", "how"), [(".pcap", {}), (".pcapng", {}), (".pcap", {"vlan": True, "link": 1})]
)
def test_a_vlp16_gives_its_points_turn_by_turn(suffix: str, how: dict[str, Any], tmp_path: Path) -> None:
    """2 mm and 0.01 degrees; the sensor's y is forward, and its x to the right, in its manual."""
    pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
    found = scans(sensors.velodyne_drive(tmp_path / f"drive{suffix}", **how))
    assert [len(cloud) for cloud in found[:2]] == [pytest.approx(28800, abs=400)] * 2
    first = found[0].points.astype(np.float64)
    xyz = first[:, :3]
    beam = np.abs(elevation_deg(xyz)[:, None] - np.array(sensors.VLP16_DEG)).argmin(axis=1)
    xyz[:, 2] -= np.array(sensors.VLP16_ABOVE_MM)[beam] * 0.001
    distance = np.linalg.norm(xyz, axis=1)
    np.testing.assert_allclose(elevation_deg(xyz), np.array(sensors.VLP16_DEG)[beam], atol=0.01)
    # The second firing of a block has lasers 16 to 31 of the table of ranges.
    azimuth = np.degrees(np.arctan2(-xyz[:, 1], xyz[:, 0])) % 360
    block = azimuth // 0.4
    second = azimuth % 0.4 >= 0.2
    expected = 0.002 * (2500 + 100 * (beam + 16 * second) % 1600 + block % 900)
    # At the borders of a firing the azimuth does not tell which one it was.
    inner = (azimuth % 0.2 > 0.005) & (azimuth % 0.2 < 0.195)
    assert inner.mean() > 0.8
    np.testing.assert_allclose(distance[inner], expected[inner], atol=0.002)
    assert 0 < first[:, 3].min() < first[:, 3].max() <= 1.0
    times = [cloud.timestamp_ns for cloud in found]
    assert times[0] == pytest.approx(sensors.START_S * 10**9, abs=2_000_000)
    assert times[1] - times[0] == pytest.approx(75 * 1_327_104, abs=2_000_000)  # type: ignore[operator]
    assert found[1].source == f"{tmp_path / f'drive{suffix}'}:{sensors.VELODYNE}:2368#1"


def test_two_returns_and_an_hdl32e(tmp_path: Path) -> None:
    pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
    both = scans(sensors.velodyne_drive(tmp_path / "dual.pcap", mode=sensors.DUAL))[0].points[:, :3]
    one = scans(sensors.velodyne_drive(tmp_path / "one.pcap"))[0].points[:, :3]
    assert len(both) == pytest.approx(2 * len(one), rel=0.02)
    assert np.linalg.norm(both, axis=1).max() - np.linalg.norm(one, axis=1).max() == pytest.approx(
        2.0, abs=0.01
    )
    wide = (
        scans(sensors.velodyne_drive(tmp_path / "wide.pcap", model=sensors.HDL32E))[0]
        .points[:, :3]
        .astype(np.float64)
    )
    elevation = elevation_deg(wide)
    # Its lasers are not at one height: at 5 m a centimetre is a tenth of a degree.
    assert (elevation.min(), elevation.max()) == pytest.approx((-30.67, 10.67), abs=0.15)
    assert len(np.unique(((elevation + 30.67) / 1.3333).round())) == 32


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("profile", PROFILES)
def test_ouster_gives_its_points_turn_by_turn(profile: str, nested: bool, tmp_path: Path) -> None:
    """Packets in fragments; columns that are not valid and pixels without return are left out."""
    path = tmp_path / "drive.pcap"
    ranges, bright = sensors.ouster_drive(path, profile, nested=nested)
    first, second = scans(path)
    np.testing.assert_array_equal(first.points, second.points)
    assert first.timestamp_ns == sensors.START_S * 10**9
    assert second.timestamp_ns == pytest.approx(first.timestamp_ns + 10**8, abs=1000)
    kept = ranges[:48] > 0
    assert len(first) == kept.sum() == 48 * 8 - 1
    np.testing.assert_array_equal(
        first.points[:, 3], (bright[:48][kept] / np.float32(255)).astype(np.float32)
    )
    sensor = read_ouster_metadata(tmp_path / "drive.json")
    # Back from the sensor's axes: range, beam and column of each point.
    lidar = (first.points[:, :3].astype(np.float64) - [0, 0, 0.0382]) * [-1, -1, 1]
    column, pixel = np.nonzero(kept)
    encoder = 2 * np.pi * (1 - column / 64)
    beam = lidar - 0.0158 * np.stack([np.cos(encoder), np.sin(encoder), 0 * encoder], axis=1)
    distance = np.linalg.norm(beam, axis=1)
    np.testing.assert_allclose(distance + 0.0158, 0.001 * ranges[:48][kept], atol=1e-5)
    np.testing.assert_allclose(np.arcsin(beam[:, 2] / distance), sensor.altitude_rad[pixel], atol=2e-5)
    turn = np.arctan2(beam[:, 1], beam[:, 0]) - encoder + sensor.azimuth_rad[pixel]
    np.testing.assert_allclose(np.sin(turn), 0, atol=2e-5)
    mended = scans(path, transform=ScanTransform(scale=2.0, intensity_scale=510.0))[0]
    np.testing.assert_allclose(mended.points[0], first.points[0] * [2, 2, 2, 0.5], rtol=1e-6)


def test_ouster_points_are_those_of_its_own_software(tmp_path: Path) -> None:
    """Points 0, 100 and 382 as ouster-sdk 1.0.1 has them (``core.XYZLut``): same metadata, same ranges."""
    path = tmp_path / "drive.pcap"
    sensors.ouster_drive(path, PROFILES[1])
    found = scans(path)[0].points[[0, 100, 382], :3]
    expected = [
        [-14.218769, 0.605214, 5.212349], [-8.596479, 19.837432, -3.218105], [3.050403, -18.705552, -6.854258]
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sensors_of_one_capture_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "both.pcap"
    profile = PROFILES[1]
    sensors.write_metadata(path, sensors.ouster_metadata(profile))
    packet = sensors.ouster_packet(profile, 1, range(16), np.full((16, 8), 5000), np.full((16, 8), 9))
    sensors.write_capture(
        path,
        [
            (1.0, sensors.OUSTER, 7502, packet),
            (1.1, sensors.VELODYNE, 7502, packet),
            (1.2, sensors.OUSTER, 9, b"imu"),
        ],
    )
    with pytest.raises(DataError, match=r"2 sensors: 10\.0\.0\.2:7502, 10\.0\.0\.3:7502"):
        PacketScans(path)
    assert len(scans(path, stream=f"{sensors.VELODYNE}:7502")[0]) == 128
    with pytest.raises(DataError, match=r"no packets of 1792 bytes from 'x'.*10\.0\.0\.3:9 \(3 bytes\)"):
        PacketScans(path, "x")
    path.with_suffix(".json").unlink()
    with pytest.raises(DataError, match=r"no packets of 1206 bytes.*metadata in both\.json"):
        PacketScans(path)


def test_other_links_and_lost_fragments(tmp_path: Path) -> None:
    sent = [(1.0, sensors.VELODYNE, 5, bytes(3000)), (2.0, sensors.VELODYNE, 5, b"abc")]
    for link in (1, 113, 101):
        found = list(read_datagrams(sensors.write_capture(tmp_path / "a.pcap", sent, link=link)))
        assert [(one.time_ns, len(one.data)) for one in found] == [(10**9, 3000), (2 * 10**9, 3)]
    whole = (tmp_path / "a.pcap").read_bytes()
    # Without its second frame the first datagram is not whole.
    second = 24 + 16 + 20 + 1480
    (tmp_path / "a.pcap").write_bytes(whole[:second] + whole[second + 16 + 20 + 1480 :])
    assert [one.data for one in read_datagrams(tmp_path / "a.pcap")] == [b"abc"]


def test_an_hdl64e_tells_its_calibration_or_why_not(tmp_path: Path) -> None:
    pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
    datagrams = []
    for number in range(20):
        data = sensors.velodyne_packet(
            [number * 40] * 12,
            np.full((12, 32), 2500),
            np.full((12, 32), 9),
            mode=ord("H") + number,
            model=number,
        )
        datagrams.append((1.0 + number, sensors.VELODYNE, 2368, data))
    path = sensors.write_capture(tmp_path / "drive.pcap", datagrams)
    with pytest.raises(DataError, match=r"10\.0\.0\.2:2368"):
        scans(path)


@pytest.mark.slow
def test_an_hdl64e_with_its_calibration(tmp_path: Path) -> None:
    """An S2 that tells of lasers at -24.8 to 2 degrees, a byte a packet; blocks are of its halves in turn."""
    pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
    lasers = b"".join(
        struct.pack(
            "<BhhhhhhhhhBB7x", laser, round(-2480 + 2680 * laser / 63), 0, 0, 0, 0, 0, 0, 0, 0, 0, 255
        )
        for laser in range(64)
    )
    told = bytearray(b"UNIT#\0\0" + lasers + bytes(21))
    told[-28:-22] = bytes([16, 11, 15, 12, 47, 47])
    told[-2:] = len(told).to_bytes(2, "little")
    status = [(ord(mark), 1) for mark in "HMSDNYGTV"] + [(ord("1"), value) for value in told]
    near = np.full((12, 32), 2500)
    datagrams = []
    for number, (kind, value) in enumerate([*status, *status[:300]]):
        azimuth = [36 * (6 * number + block // 2) for block in range(12)]
        data = sensors.velodyne_packet(azimuth, near, near // 50, mode=kind, model=value)
        halves = bytearray(data)
        for block in range(1, 12, 2):
            halves[100 * block : 100 * block + 2] = b"\xff\xdd"
        datagrams.append((sensors.START_S + number * 0.000288, sensors.VELODYNE, 2368, bytes(halves)))
    found = scans(sensors.write_capture(tmp_path / "drive.pcap", datagrams))
    assert len(found) >= 10
    xyz = found[3].points[:, :3].astype(np.float64)
    assert len(xyz) == pytest.approx(64_000, rel=0.02)
    np.testing.assert_allclose(np.linalg.norm(xyz, axis=1), 5.0, atol=0.002)
    assert (elevation_deg(xyz).min(), elevation_deg(xyz).max()) == pytest.approx((-24.8, 2.0), abs=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON"),
        ("[]", "metadata of an Ouster sensor"),
        ("{}", "field beam_altitude_angles must be finite numbers, got None"),
        ('{"beam_altitude_angles": [1], "beam_azimuth_angles": [1, 2]}', "1 beam_altitude_angles"),
        (BEAM + "}", "field columns_per_frame must be a count up to 8192, got None"),
        (BEAM + ', "udp_profile_lidar": "NEW"}', "udp_profile_lidar 'NEW' is not"),
        (BEAM + ', "columns_per_frame": 9,'
         ' "lidar_to_sensor_transform": [1, 2]}', "field lidar_to_sensor_transform must be finite numbers"),
    ],
)  # fmt: skip
def test_wrong_metadata_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "drive.json").write_text(text)
    with pytest.raises(DataError, match=r"drive\.json") as told:
        read_ouster_metadata(tmp_path / "drive.json")
    assert message in str(told.value)


def test_without_the_libraries_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sensors.velodyne_drive(tmp_path / "drive.pcap", turns=0.1)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "velodyne_decoder", None)
        with pytest.raises(ImportError, match=r"velodyne-decoder: .*sparsight\[packets\]"):
            scans(path)
    monkeypatch.setitem(sys.modules, "dpkt", None)
    with pytest.raises(ImportError, match=r"dpkt: .*sparsight\[packets\]"):
        scans(path)


@pytest.mark.parametrize("count", [30, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["velodyne.pcap", "velodyne.pcapng", "ouster.pcap", "ouster.json"])
def test_damaged_captures_are_read_or_refused(kind: str, count: int, tmp_path: Path) -> None:
    if kind.startswith("velodyne"):
        pytest.importorskip("velodyne_decoder", reason="velodyne-decoder is not installed (extra 'packets')")
        path = target = sensors.velodyne_drive(tmp_path / kind, turns=0.1)
    else:
        target, path = tmp_path / kind, tmp_path / "ouster.pcap"
        sensors.ouster_drive(path, PROFILES[0])
    sound, refused = target.read_bytes(), 0
    tracemalloc.start()
    try:
        for number, (what, data) in enumerate(mutations(sound, count, seed=6)):
            target.write_bytes(data)
            tracemalloc.reset_peak()
            try:
                for one in PacketScans(path).attempts():
                    assert isinstance(one, BagScan)
                    assert one.cloud.points.shape == (len(one.cloud), 4)
            except DataError as error:
                refused += str(path.with_suffix("")) in str(error)
            except Exception as error:
                raise AssertionError(f"{kind}, {what} {number}: {type(error).__name__}: {error}") from error
            assert tracemalloc.get_traced_memory()[1] < 200_000_000, what
    finally:
        tracemalloc.stop()
    assert refused > 0
