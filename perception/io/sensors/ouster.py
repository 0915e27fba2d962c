"""Packets of Ouster sensors, decoded by the sensor's metadata.

Follows "Lidar Data Packet Format" (the legacy format and the profiles below) and "Lidar Range to XYZ" in
Ouster's "Firmware User Manual". Of two returns, the first and stronger one is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32
from perception.io.text import read_text


class _Profile(NamedTuple):
    """Byte layout of a packet format."""

    packet_header: int
    packet_footer: int
    column_header: int
    column_footer: int
    pixel_bytes: int
    range_bytes: int
    range_mask: int
    range_mm: int
    reflectivity_at: int


_PROFILES = {
    "LEGACY": _Profile(0, 0, 16, 4, 12, 4, 0xFFFFF, 1, 4),
    "RNG19_RFL8_SIG16_NIR16": _Profile(32, 32, 12, 0, 12, 4, 0x7FFFF, 1, 4),
    "RNG19_RFL8_SIG16_NIR16_DUAL": _Profile(32, 32, 12, 0, 16, 4, 0x7FFFF, 1, 3),
    "RNG15_RFL8_NIR8": _Profile(32, 32, 12, 0, 4, 2, 0x7FFF, 8, 2),
}
#: lidar_to_sensor_transform of sensors without it in their metadata: turned by 180 degrees, 36 mm up.
_USUAL_TRANSFORM = (-1.0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 36.18, 0, 0, 0, 1)
_MOST_COLUMNS, _MOST_PIXELS = 8192, 1024
_Floats = npt.NDArray[np.float64]


class Columns(NamedTuple):
    """The valid columns of one packet.

    Attributes:
        frame: number of the turn.
        places: (C,) int64 column indices in the turn.
        range_mm: (C, pixels) int64, 0 without a return.
        reflectivity: (C, pixels) uint8.
    """

    frame: int
    places: npt.NDArray[np.int64]
    range_mm: npt.NDArray[np.int64]
    reflectivity: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class OusterSensor:
    """The metadata of a sensor.

    Attributes:
        profile: packet format.
        columns_per_frame, columns_per_packet: numbers of columns.
        altitude_rad, azimuth_rad: (pixels,) angles of the beams.
        beam_origin_m: distance of the beams' origin from the axis, and its height above the lidar's origin.
        sensor_from_lidar: (4, 4), metres.
    """

    profile: str
    columns_per_frame: int
    columns_per_packet: int
    altitude_rad: _Floats
    azimuth_rad: _Floats
    beam_origin_m: tuple[float, float]
    sensor_from_lidar: _Floats

    @property
    def packet_bytes(self) -> int:
        """Packet size in bytes."""
        form = _PROFILES[self.profile]
        return form.packet_header + self.columns_per_packet * self._column_bytes + form.packet_footer

    @property
    def _column_bytes(self) -> int:
        form = _PROFILES[self.profile]
        return form.column_header + len(self.altitude_rad) * form.pixel_bytes + form.column_footer

    def columns(self, packet: bytes) -> Columns:
        """Decode the valid columns of a packet of ``packet_bytes`` bytes."""
        form, pixels = _PROFILES[self.profile], len(self.altitude_rad)
        body = np.frombuffer(packet, np.uint8)[form.packet_header :]
        table = body[: self.columns_per_packet * self._column_bytes].reshape(self.columns_per_packet, -1)
        places = _whole(table, 8, 2)[:, 0]
        if self.profile == "LEGACY":
            valid = _whole(table, self._column_bytes - 4, 4)[:, 0] == 0xFFFFFFFF
            frame = int(_whole(table, 10, 2)[0, 0])
        else:
            valid = (_whole(table, 10, 2)[:, 0] & 1) == 1
            frame = int.from_bytes(packet[2:4], "little")
        kept = valid & (places < self.columns_per_frame)
        seen = table[kept, form.column_header : form.column_header + pixels * form.pixel_bytes]
        seen = seen.reshape(len(seen) * pixels, form.pixel_bytes)
        ranges = (_whole(seen, 0, form.range_bytes)[:, 0] & form.range_mask) * form.range_mm
        bright = seen[:, form.reflectivity_at]
        return Columns(frame, places[kept], ranges.reshape(-1, pixels), bright.reshape(-1, pixels))

    def cloud(self, parts: Sequence[Columns]) -> RawCloud:
        """Return the points of a turn in the sensor's axes: x forward, y left, z up, in metres."""
        places = np.concatenate([part.places for part in parts])
        range_m = np.concatenate([part.range_mm for part in parts]) * 0.001
        bright = np.concatenate([part.reflectivity for part in parts])
        column, pixel = np.nonzero(range_m)
        out_m, up_m = self.beam_origin_m
        encoder = 2 * np.pi * (1.0 - places[column] / self.columns_per_frame)
        turn = encoder - self.azimuth_rad[pixel]
        along = range_m[column, pixel] - np.hypot(out_m, up_m)
        level = along * np.cos(self.altitude_rad[pixel])
        x = level * np.cos(turn) + out_m * np.cos(encoder)
        y = level * np.sin(turn) + out_m * np.sin(encoder)
        z = along * np.sin(self.altitude_rad[pixel]) + up_m
        with np.errstate(over="ignore", invalid="ignore"):
            xyz = np.stack([a * x + b * y + c * z + d for a, b, c, d in self.sensor_from_lidar[:3].tolist()])
        return RawCloud(as_float32(xyz.T), bright[column, pixel])


def read_ouster_metadata(path: Path) -> OusterSensor:
    """Read the JSON metadata that Ouster's software saves with a recording, of any version.

    Raises:
        DataError: the file is missing or not JSON, or a field is missing or invalid.
    """
    try:
        values = json.loads(read_text(path, "the metadata of an Ouster sensor"))
    except DataError:
        raise
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: not valid JSON ({str(error)[:300]}). Save the sensor's metadata again."
        ) from error
    if not isinstance(values, Mapping):
        raise DataError(f"{path}: not the metadata of an Ouster sensor. Save the sensor's metadata again.")
    find = _Finder(path, values)
    altitude = find.numbers("beam_altitude_angles")
    azimuth = find.numbers("beam_azimuth_angles")
    if not 0 < len(altitude) == len(azimuth) <= _MOST_PIXELS:
        raise DataError(
            f"{path}: {len(altitude)} beam_altitude_angles, but {len(azimuth)} beam_azimuth_angles. Save the"
            " sensor's metadata again."
        )
    profile = str(find.value("udp_profile_lidar", "LEGACY"))
    if profile not in _PROFILES:
        raise DataError(
            f"{path}: udp_profile_lidar {profile[:80]!r} is not supported. Set the sensor to one of"
            f" {', '.join(_PROFILES)}."
        )
    mode = str(find.value("lidar_mode", "")).partition("x")[0]
    width = find.count("columns_per_frame", int(mode) if mode.isascii() and mode.isdigit() else None)
    beam = find.numbers("beam_to_lidar_transform", (), 16)
    out_mm = find.numbers("lidar_origin_to_beam_origin_mm", (0.0,), 1)
    return OusterSensor(
        profile,
        width,
        find.count("columns_per_packet", 16),
        np.radians(altitude),
        np.radians(azimuth),
        (beam[3] * 0.001, beam[11] * 0.001) if beam else (out_mm[0] * 0.001, 0.0),
        _in_metres(find.numbers("lidar_to_sensor_transform", _USUAL_TRANSFORM, 16)),
    )


class _Finder:
    """Fields of a JSON object or of its child objects; the version decides where they are."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self._objects = [values, *(value for value in values.values() if isinstance(value, Mapping))]

    def value(self, name: str, usual: Any) -> Any:
        return next((one[name] for one in self._objects if one.get(name) is not None), usual)

    def count(self, name: str, usual: int | None) -> int:
        value = self.value(name, usual)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_COLUMNS:
            raise DataError(
                f"{self.path}: field {name} must be a count up to {_MOST_COLUMNS}, got {value!r:.80}"
            )
        return value

    def numbers(
        self, name: str, usual: Sequence[float] | None = None, count: int | None = None
    ) -> list[float]:
        value = self.value(name, usual)
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        try:
            # Newer sensors list angles in rows.
            found = np.asarray(values, np.float64).reshape(-1)
        except (TypeError, ValueError, OverflowError, RecursionError):
            found = np.array([np.nan])
        if not np.isfinite(found).all() or (
            count is not None and len(found) not in (count, len(usual or ()))
        ):
            raise DataError(f"{self.path}: field {name} must be finite numbers, got {value!r:.80}")
        listed: list[float] = found.tolist()
        return listed


def _in_metres(numbers: Sequence[float]) -> _Floats:
    made = np.array(numbers, np.float64).reshape(4, 4)
    made[:3, 3] *= 0.001
    return made


def _whole(table: npt.NDArray[np.uint8], at: int, size: int) -> npt.NDArray[np.int64]:
    """Read (N, 1) little-endian integers from the bytes of rows."""
    return np.ascontiguousarray(table[:, at : at + size]).view(f"<u{size}").astype(np.int64)
