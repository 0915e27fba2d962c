"""The columns of a point cloud file as they are stored, before intensity is brought to [0, 1]."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.columns import SKIPPED
from perception.io.times import first_point_time
from perception.io.transform import ScanTransform, scaled_intensity
from perception.types import FloatArray

#: Field names (lower case) that hold the strength of the return, the preferred one first.
_STRENGTHS = ("intensity", "scalar_intensity", "i")
#: The same, corrected by the distance.
_REFLECTIVITIES = (
    "reflectivity",
    "scalar_reflectivity",
    "reflectance",
    "scalar_reflectance",
    "remission",
)

#: Ranges of intensity that sensors and data sets have, by the value that stands for 1.
_RANGES = (1.0, 255.0, 65535.0)
#: One value in so many may be brighter than its range: retroreflectors and errors do not tell the range.
_BRIGHTER_ONE_IN = 100
#: A scan whose median intensity is nearer to 0 or 1 has, to a detector, no intensity.
FLAT_INTENSITY = 0.005
#: Float intensities this far above 1 are rounding, not another range.
_UNIT_TOLERANCE = 0.01
#: Points are map coordinates where they lie so many times farther from the origin than from each other.
_FAR_AWAY = 100.0
_FEW_POINTS = 100


@dataclass(frozen=True, eq=False)
class RawCloud:
    """What a file holds.

    Attributes:
        xyz: (N, 3) float32, in the unit and axes of the file.
        intensity: (N,) in the file's own range and dtype, or None where the file has none.
        time_ns: of the first point, nanoseconds since the epoch, or None where the file does not say it.
    """

    xyz: FloatArray
    intensity: npt.NDArray[Any] | None
    time_ns: int | None = None


def read_bytes(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        DataError: the file is missing, a folder, or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror}); check the path") from error


def check_near_origin(path: Path, xyz: npt.NDArray[np.float64]) -> None:
    """Refuse map coordinates, of which float32 would leave steps of centimetres and a sensor sees nothing.

    Args:
        path: the file, for the message.
        xyz: (N, 3) as stored; fewer than 100 finite points are not judged.

    Raises:
        DataError: the points are a hundred times farther from the origin than from each other.
    """
    finite = xyz[np.isfinite(xyz).all(axis=1)]
    if len(finite) < _FEW_POINTS:
        return
    low, middle, high = np.percentile(finite, (2, 50, 98), axis=0)
    if np.abs(middle).max() > _FAR_AWAY * (high - low).max() > 0:
        at = ", ".join(f"{value:.0f}" for value in middle)
        raise DataError(
            f"{path}: points lie around ({at}), far from the origin: map coordinates; subtract the place of"
            " the sensor from x, y and z, so that it is at the origin"
        )


def as_float32(values: npt.NDArray[Any]) -> FloatArray:
    """Cast to float32; numbers beyond its range become infinite without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def restore_bytes(values: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Values read from text, as uint8 again if they were declared so: such an intensity means 0..255.

    Numbers that were declared to have four bytes have no more digits than these.
    """
    if dtype == np.float32:
        return as_float32(values)
    is_bytes = dtype == np.uint8 and bool(((values >= 0) & (values <= 255)).all())
    return values.astype(np.uint8) if is_bytes else values


def raw_from_fields(path: Path, fields: Mapping[str, npt.NDArray[Any]]) -> RawCloud:
    """Pick x, y, z and intensity from the named columns of a file.

    Args:
        path: the file, for messages.
        fields: lower-case name to (N,) values.

    Raises:
        DataError: x, y or z is missing.
    """
    missing = [name for name in ("x", "y", "z") if name not in fields]
    if missing:
        raise DataError(
            f"{path}: no field {', '.join(missing)} among {', '.join(fields)[:200] or 'none'};"
            " export the cloud with scalar fields x, y, z (and intensity)"
        )
    xyz = np.stack([as_float32(fields[name]) for name in ("x", "y", "z")], axis=1)
    intensity = pick_intensity({name: fields[name] for name in intensity_names(fields)})
    return RawCloud(xyz, intensity, first_point_time(fields))


def intensity_names(names: Collection[str]) -> list[str]:
    """The fields among the given ones that may be the intensity, at most one of each kind."""
    kinds = ([name for name in kind if name in names] for kind in (_STRENGTHS, _REFLECTIVITIES))
    return [found[0] for found in kinds if found]


def pick_intensity(fields: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
    """The intensity among the fields of :func:`intensity_names`; None without one.

    Reflectivity is taken where its range is narrower: such an intensity is a count of photons, which has no
    full scale. Reflectivity of one single value is none.

    Args:
        fields: name to (N,) values.
    """
    if len(fields) < 2:
        return next(iter(fields.values()), None)
    strength, reflectivity = (fields[name] for name in intensity_names(fields))
    wide, narrow = intensity_divisor(strength), intensity_divisor(reflectivity)
    narrower = narrow is not None and (wide is None or narrow < wide)
    return reflectivity if narrower and len(np.unique(reflectivity)) > 1 else strength


def packed_columns(
    path: Path, body: memoryview, fields: Sequence[tuple[str, np.dtype[Any], int]], rows: int, start: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """The columns of rows that lie packed in a file; of equal names the first counts.

    Args:
        path: the file, for messages.
        body: where the rows are.
        fields: name, type and how many numbers; those of several numbers, and named ``_``, are skipped.
        rows: how many.
        start: bytes before them.

    Raises:
        DataError: bytes are missing.
    """
    row_bytes = sum(dtype.itemsize * numbers for _, dtype, numbers in fields)
    needed = start + rows * row_bytes
    if len(body) < needed:
        raise DataError(
            f"{path}: truncated, {needed - len(body)} of {needed} data bytes are missing; copy it again"
        )
    table = np.frombuffer(body[start:needed], np.uint8).reshape(rows, row_bytes)
    columns: dict[str, npt.NDArray[Any]] = {}
    offset = 0
    for name, dtype, numbers in fields:
        if numbers == 1 and name != SKIPPED:
            column = np.ascontiguousarray(table[:, offset : offset + dtype.itemsize])
            columns.setdefault(name, column.reshape(-1).view(dtype))
        offset += dtype.itemsize * numbers
    return columns


def raw_from_table(table: npt.NDArray[Any], columns: Sequence[str]) -> RawCloud:
    """Pick x, y, z and intensity from the columns of a table.

    Args:
        table: (N, C) of any real dtype.
        columns: C lower-case names, x, y and z among them.
    """
    places = [columns.index(name) for name in ("x", "y", "z")]
    # Neighbouring columns are copied as one.
    xyz = as_float32(table[:, :3] if places == [0, 1, 2] else table[:, places])
    bright = {name: np.ascontiguousarray(table[:, columns.index(name)]) for name in intensity_names(columns)}
    return RawCloud(xyz, pick_intensity(bright))


def transformed(raw: RawCloud, transform: ScanTransform) -> RawCloud:
    """A file's columns with a transform's unit, axes and scale of intensity."""
    xyz = raw.xyz if transform.keeps_xyz else transform.apply_xyz(raw.xyz)
    intensity = raw.intensity
    if transform.intensity_scale is not None and intensity is not None:
        intensity = scaled_intensity(intensity, transform.intensity_scale)
    return RawCloud(xyz, intensity, raw.time_ns)


def intensity_divisor(intensity: npt.NDArray[Any] | None) -> float | None:
    """The number that brings an intensity column to [0, 1].

    Unsigned bytes are always divided by 255. Otherwise the narrowest of the ranges 0..1, 0..255 and 0..65535
    is taken that all but one in a hundred finite values are in; the brighter ones count as 1. Whole numbers
    above 1 are never of the range 0..1.

    Args:
        intensity: (N,) of any real dtype, or None.

    Returns:
        1.0, 255.0 or 65535.0; None where the range is none of these (negative, or above 65535).
    """
    if intensity is None:
        return 1.0
    if intensity.dtype == np.uint8:
        return 255.0
    finite = intensity[np.isfinite(intensity)]
    if not len(finite):
        return 1.0
    if float(finite.min()) < -_UNIT_TOLERANCE:
        return None
    whole = float(finite.max()) > 1.0 + _UNIT_TOLERANCE and bool((finite == np.floor(finite)).all())
    brighter = len(finite) // _BRIGHTER_ONE_IN
    limits = {full: full + _UNIT_TOLERANCE * (full == 1.0) for full in _RANGES[whole:]}
    return next((full for full, limit in limits.items() if (finite > limit).sum() <= brighter), None)


def common_intensity_scale(columns: Sequence[npt.NDArray[Any]]) -> tuple[float, bool]:
    """The stored intensity that stands for 1 in scans of one sensor.

    Args:
        columns: the intensity of each scan, as stored.

    Returns:
        The scale, and True if it is that of a known range. It is none where values fit into 16 bits but use
        so few of them that a detector would see zeros: then the scale is what one value in a hundred exceeds.
    """
    divisors = [intensity_divisor(column) for column in columns]
    known = [divisor for divisor in divisors if divisor is not None]
    values = np.concatenate([column[np.isfinite(column)].astype(np.float64) for column in columns])
    if len(known) == len(divisors):
        scale = max(known, default=1.0)
        if scale <= 255.0 or np.median(values) >= FLAT_INTENSITY * scale:
            return scale, True
    return float(np.ceil(max(np.percentile(values, 100 - 100 / _BRIGHTER_ONE_IN), 1.0))), False


def unit_intensity(
    place: str, raw: RawCloud, *, advice: str = "", least: float = 1.0
) -> tuple[FloatArray, float]:
    """(N,) float32 intensity in [0, 1] and its divisor; zeros where there is none; NaN, infinity are kept.

    Args:
        place: of the column, for messages.
        raw: as stored.
        advice: what to do about an unknown range, for messages.
        least: the divisor is not less.

    Raises:
        DataError: the range is not one that ``intensity_divisor`` knows.
    """
    if raw.intensity is None:
        return np.zeros(len(raw.xyz), np.float32), least
    divisor = intensity_divisor(raw.intensity)
    if divisor is None:
        finite = raw.intensity[np.isfinite(raw.intensity)]
        raise DataError(
            f"{place} intensity spans {float(finite.min()):g} to {float(finite.max()):g};"
            f" expected 0..1, 0..255 or 0..65535{advice}"
        )
    divisor = max(divisor, least)
    return scaled_intensity(raw.intensity, divisor), divisor
