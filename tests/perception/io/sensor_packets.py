"""Packets as sensors send them, made of known ranges, and captures of them; for tests."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Time of the first packet.
START_S = 1_700_000_000
#: Elevations of a VLP-16's lasers in the order in which they fire (user manual, appendix).
VLP16_DEG = (-15, 1, -13, 3, -11, 5, -9, 7, -7, 9, -5, 11, -3, 13, -1, 15)
#: How far each is above the middle, in millimetres (the same table).
VLP16_ABOVE_MM = (
    11.2, -0.7, 9.7, -2.2, 8.1, -3.7, 6.6, -5.1, 5.1, -6.6, 3.7, -8.1, 2.2, -9.7, 0.7, -11.2,
)  # fmt: skip
#: Mode of returns, and models, as the last two bytes of packets have them.
STRONGEST, DUAL = 0x37, 0x39
VLP16, HDL32E = 0x22, 0x21
_VELODYNE_AXES = 36000
VELODYNE = "10.0.0.2"
OUSTER = "10.0.0.3"


def velodyne_packet(
    azimuth: Sequence[int], ranges: np.ndarray, bright: np.ndarray, *, mode: int, model: int, time_us: int = 0
) -> bytes:
    """Twelve blocks: azimuths in hundredths of a degree, (12, 32) ranges in 2 mm, (12, 32) intensities."""
    body = b""
    for block in range(12):
        returns = zip(ranges[block].tolist(), bright[block].tolist(), strict=True)
        body += struct.pack("<HH", 0xEEFF, azimuth[block] % _VELODYNE_AXES)
        body += b"".join(struct.pack("<HB", one, strength) for one, strength in returns)
    return body + struct.pack("<LBB", time_us, mode, model)


def ouster_metadata(
    profile: str, *, columns: int = 64, pixels: int = 8, per_packet: int = 16, nested: bool = True
) -> dict[str, Any]:
    """Metadata of a made-up sensor, as new software nests it or as the first wrote it."""
    random = np.random.default_rng(5)
    beams = {
        "beam_altitude_angles": np.linspace(20.0, -20.0, pixels).tolist(),
        "beam_azimuth_angles": random.uniform(-4, 4, pixels).round(2).tolist(),
        "lidar_origin_to_beam_origin_mm": 15.8,
    }
    form = {
        "columns_per_frame": columns, "columns_per_packet": per_packet, "pixels_per_column": pixels,
        "udp_profile_lidar": profile,
    }  # fmt: skip
    turned = {"lidar_to_sensor_transform": [-1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 38.2, 0, 0, 0, 1]}
    if nested:
        return {"beam_intrinsics": beams, "lidar_data_format": form, "lidar_intrinsics": turned}
    return {**beams, **turned, "data_format": form, "lidar_mode": f"{columns}x10"}


def ouster_packet(
    profile: str,
    frame: int,
    places: Sequence[int],
    range_mm: np.ndarray,
    bright: np.ndarray,
    valid: bool = True,
) -> bytes:
    """Columns of (C, pixels) ranges in millimetres, reflectivities up to 255, and rubbish elsewhere."""
    columns = []
    for place, row, shine in zip(places, range_mm.tolist(), bright.tolist(), strict=True):
        pixels = b""
        for one, strength in zip(row, shine, strict=True):
            if profile == "LEGACY":
                pixels += struct.pack("<IHHHH", one | 0xA0000000, strength, 7, 8, 9)
            elif profile == "RNG19_RFL8_SIG16_NIR16":
                pixels += struct.pack("<IBBHHH", one | 0xA0000000, strength, 3, 7, 8, 9)
            elif profile == "RNG19_RFL8_SIG16_NIR16_DUAL":
                pixels += struct.pack("<IIHHHH", one | strength << 24, 999 | 77 << 24, 7, 8, 9, 10)
            else:
                pixels += struct.pack("<HBB", one // 8, strength, 9)
        time_ns = 1000 * place
        if profile == "LEGACY":
            head = struct.pack("<QHHI", time_ns, place, frame, 88 * place)
            columns.append(head + pixels + (b"\xff" * 4 if valid else bytes(4)))
        else:
            columns.append(struct.pack("<QHH", time_ns, place, int(valid)) + pixels)
    if profile == "LEGACY":
        return b"".join(columns)
    return struct.pack("<HH28x", 1, frame) + b"".join(columns) + bytes(32)


def write_capture(
    path: Path,
    datagrams: Iterable[tuple[float, str, int, bytes]],
    *,
    link: int = 1,
    largest: int = 1480,
    vlan: bool = False,
) -> Path:
    """A capture of (seconds, sender, port, payload); what is larger than a frame is in fragments of IPv4."""
    import dpkt

    kind = dpkt.pcapng.Writer if path.suffix == ".pcapng" else dpkt.pcap.Writer
    with path.open("wb") as file:
        writer = kind(file, **({} if path.suffix == ".pcapng" else {"linktype": link}))
        for number, (time_s, sender, port, payload) in enumerate(datagrams):
            body = struct.pack(">HHHH", port, port, 8 + len(payload), 0) + payload
            for start in range(0, len(body), largest):
                part = body[start : start + largest]
                more = 0x2000 if start + largest < len(body) else 0
                address = bytes(map(int, sender.split("."))) + b"\xff\xff\xff\xff"
                head = struct.pack(
                    ">BBHHHBBH", 0x45, 0, 20 + len(part), number & 0xFFFF, more | start // 8, 64, 17, 0
                )
                tag = b"\x81\x00\x00\x05" if vlan else b""
                frame = {1: bytes(12) + tag + b"\x08\x00", 113: bytes(14) + b"\x08\x00", 101: b""}[link]
                writer.writepkt(frame + head + address + part, ts=time_s)
    return path


def write_metadata(path: Path, values: dict[str, Any]) -> None:
    """Beside a capture."""
    path.with_suffix(".json").write_text(json.dumps(values))


def velodyne_drive(
    path: Path, *, mode: int = STRONGEST, model: int = VLP16, turns: float = 2.2, **how: Any
) -> Path:
    """A VLP-16 (two firings a block) or HDL-32E (one), 0.4 degrees a block; ranges by laser and direction."""
    random = np.random.default_rng(0)
    datagrams, azimuth, blocks = [], 0, 6 if mode == DUAL else 12
    for number in range(int(turns * 900 / blocks)):
        firsts = [azimuth + 40 * (k // 2 if mode == DUAL else k) for k in range(12)]
        ranges = np.tile(2500 + 100 * np.arange(32) % 1600, (12, 1)) + np.array(firsts)[:, None] // 40 % 900
        if mode == DUAL:
            ranges[1::2] += 1000
        bright = random.integers(1, 255, (12, 32))
        data = velodyne_packet(firsts, ranges, bright, mode=mode, model=model, time_us=int(number * 1327.104))
        datagrams.append((START_S + number * 0.001327104, VELODYNE, 2368, data))
        azimuth = (azimuth + 40 * blocks) % 36000
    return write_capture(path, datagrams, **how)


def ouster_drive(
    path: Path, profile: str, *, nested: bool = True, turns: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Two turns of 64 columns and 8 beams; ranges (columns, pixels) in millimetres, and reflectivities."""
    values = ouster_metadata(profile, nested=nested)
    write_metadata(path, values)
    random = np.random.default_rng(1)
    ranges, bright = random.integers(1, 4000, (64, 8)) * 8, random.integers(1, 256, (64, 8))
    ranges[5, 3] = 0
    datagrams = [
        (START_S + 0.1 * turn + 0.025 * part, OUSTER, 7502, ouster_packet(
            profile, turn, range(16 * part, 16 * part + 16), ranges[16 * part : 16 * part + 16],
            bright[16 * part : 16 * part + 16], valid=part < 3,
        ))
        for turn in range(turns) for part in range(4)
    ]  # fmt: skip
    write_capture(path, datagrams, largest=512)
    return ranges, bright
