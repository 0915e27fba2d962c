"""Columns of a point cloud file as stored, before intensity is scaled to [0, 1]."""

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

#: Lower-case names of intensity fields, the preferred one first.
_STRENGTHS = ("intensity", "scalar_intensity", "i")
#: The same for reflectivity, which is intensity corrected by distance.
_REFLECTIVITIES = (
    "reflectivity",
    "scalar_reflectivity",
    "reflectance",
    "scalar_reflectance",
    "remission",
)

#: Full scales of intensity that sensors and data sets use.
FULL_SCALES = (1.0, 255.0, 65535.0)
#: One value in so many may exceed the full scale: retroreflectors and errors.
_BRIGHTER_ONE_IN = 100
#: If the median intensity is this close to 0 or 1, a detector sees no intensity.
FLAT_INTENSITY = 0.005
#: Float intensities this little above 1 are rounding errors.
_UNIT_TOLERANCE = 0.01
#: Points this many times farther from the origin than from each other are map coordinates.
_FAR_AWAY = 100.0
_FEW_POINTS = 100


@dataclass(frozen=True, eq=False)
class RawCloud:
    """Points as a file stores them.

    Attributes:
        xyz: (N, 3) float32, in the unit and axes of the file; may be read-only columns of its table.
        intensity: (N,) in the file's range and dtype, or None.
        time_ns: time of the first point, nanoseconds since the epoch, or None.
    """

    xyz: FloatArray
    intensity: npt.NDArray[Any] | None
    time_ns: int | None = None


def read_bytes(path: Path) -> bytes:
    """Read a whole file; raise ``DataError`` if that fails."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: reading failed ({error.strerror}). Check the path.") from error


def check_near_origin(path: Path, xyz: npt.NDArray[np.float64]) -> None:
    """Refuse map coordinates: float32 rounds them to centimetres, and they are far from the sensor.

    Args:
        path: the file, for the message.
        xyz: (N, 3) as stored; fewer than 100 finite points are accepted.

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
            f"{path}: points lie around ({at}), far from the origin, so they are map coordinates. Subtract"
            " the position of the sensor from x, y and z."
        )


def as_float32(values: npt.NDArray[Any]) -> FloatArray:
    """Cast to float32; numbers beyond its range become infinite without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)


def restore_bytes(values: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values read from text in their declared type if it matters: uint8 intensity means 0..255."""
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
            f"{path}: no field {', '.join(missing)}; fields: {', '.join(fields)[:200] or 'none'}. Export the"
            " cloud with scalar fields x, y, z (and intensity)."
        )
    xyz = np.stack([as_float32(fields[name]) for name in ("x", "y", "z")], axis=1)
    intensity = pick_intensity({name: fields[name] for name in intensity_names(fields)})
    return RawCloud(xyz, intensity, first_point_time(fields))


def intensity_names(names: Collection[str]) -> list[str]:
    """Return the names of intensity and reflectivity among the given names, at most one of each."""
    kinds = ([name for name in kind if name in names] for kind in (_STRENGTHS, _REFLECTIVITIES))
    return [found[0] for found in kinds if found]


def pick_intensity(fields: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any] | None:
    """Choose between the fields of :func:`intensity_names`; None without one.

    Reflectivity wins if its full scale is smaller: such an intensity counts photons and has no full scale.
    Constant reflectivity is ignored.
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
    """Return the columns of packed rows; the first column of a name counts.

    Args:
        path: the file, for messages.
        body: bytes that hold the rows.
        fields: name, type and count of numbers; fields of several numbers, or named ``_``, are skipped.
        rows: number of rows.
        start: bytes before the rows.

    Raises:
        DataError: bytes are missing.
    """
    row_bytes = sum(dtype.itemsize * numbers for _, dtype, numbers in fields)
    needed = start + rows * row_bytes
    if len(body) < needed:
        raise DataError(
            f"{path}: truncated, {needed - len(body)} of {needed} data bytes are missing. Copy the file"
            " again."
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
    """Pick x, y, z and intensity from the named columns of a (N, C) table."""
    places = [columns.index(name) for name in ("x", "y", "z")]
    # Adjacent columns need no copy.
    xyz = table[:, :3] if places == [0, 1, 2] else table[:, places]
    xyz = xyz if xyz.dtype == np.float32 else as_float32(xyz)
    bright = {name: np.ascontiguousarray(table[:, columns.index(name)]) for name in intensity_names(columns)}
    return RawCloud(xyz, pick_intensity(bright))


def apply_transform(raw: RawCloud, transform: ScanTransform) -> RawCloud:
    """Apply a transform's unit, axes and intensity scale."""
    xyz = raw.xyz if transform.keeps_xyz else transform.apply_xyz(raw.xyz)
    intensity = raw.intensity
    if transform.intensity_scale is not None and intensity is not None:
        intensity = scaled_intensity(intensity, transform.intensity_scale)
    return RawCloud(xyz, intensity, raw.time_ns)


def finite_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the finite numbers of (N,) values."""
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]


def intensity_divisor(intensity: npt.NDArray[Any] | None) -> float | None:
    """Return the number by which to divide an intensity column to get [0, 1].

    Unsigned bytes are divided by 255. Other values get the smallest of 1, 255 and 65535 that at most one in a
    hundred finite values exceeds. Whole numbers above 1 never get 1.

    Args:
        intensity: (N,) of any real dtype, or None.

    Returns:
        1.0, 255.0 or 65535.0, or None if none of these fits (negative, or above 65535).
    """
    if intensity is None:
        return 1.0
    if intensity.dtype == np.uint8:
        return 255.0
    finite = finite_numbers(intensity)
    if not len(finite):
        return 1.0
    if float(finite.min()) < -_UNIT_TOLERANCE:
        return None
    if float(finite.max()) <= 1.0 + _UNIT_TOLERANCE:
        return 1.0
    whole = bool((finite == np.floor(finite)).all())
    brighter = len(finite) // _BRIGHTER_ONE_IN
    limits = {full: full + _UNIT_TOLERANCE * (full == 1.0) for full in FULL_SCALES[whole:]}
    return next((full for full, limit in limits.items() if (finite > limit).sum() <= brighter), None)


def common_intensity_scale(columns: Sequence[npt.NDArray[Any]]) -> tuple[float, bool]:
    """Estimate the full scale of intensity of one sensor.

    Args:
        columns: the intensity of each scan, as stored.

    Returns:
        The full scale, and True if it is a known one. If 16-bit values are so small that a detector would
        see zeros, the scale is the 99th percentile, and not known.
    """
    divisors = [intensity_divisor(column) for column in columns]
    known = [divisor for divisor in divisors if divisor is not None]
    values = np.concatenate([column[np.isfinite(column)].astype(np.float64) for column in columns])
    if len(known) == len(divisors):
        scale = max(known, default=1.0)
        if scale <= 255.0 or np.median(values) >= FLAT_INTENSITY * scale:
            return scale, True
    return float(np.ceil(max(np.percentile(values, 100 - 100 / _BRIGHTER_ONE_IN), 1.0))), False


def unit_points(
    place: str, raw: RawCloud, *, advice: str = "", least: float = 1.0
) -> tuple[FloatArray, float]:
    """Scale intensity to [0, 1] and join the columns; a cloud without intensity gets zeros.

    Args:
        place: file and field, for messages.
        raw: points as stored.
        advice: how to fix an unknown range, for messages.
        least: smallest divisor.

    Returns:
        (N, 4) float32 x, y, z and intensity, in which NaN and infinity stay; and the divisor.

    Raises:
        DataError: ``intensity_divisor`` does not know the range.
    """
    points = np.zeros((len(raw.xyz), 4), np.float32)
    # Column by column, because numpy takes five times as long to copy rows of three numbers.
    for axis in range(3):
        points[:, axis] = raw.xyz[:, axis]
    if raw.intensity is None:
        return points, least
    divisor = intensity_divisor(raw.intensity)
    if divisor is None:
        finite = raw.intensity[np.isfinite(raw.intensity)]
        raise DataError(
            f"{place} intensity spans {float(finite.min()):g} to {float(finite.max()):g};"
            f" expected 0..1, 0..255 or 0..65535{advice}"
        )
    divisor = max(divisor, least)
    points[:, 3] = scaled_intensity(raw.intensity, divisor)
    return points, divisor
