"""The columns of a point cloud file as they are stored, before intensity is brought to [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.columns import SKIPPED
from perception.io.transform import ScanTransform, scaled_intensity
from perception.types import FloatArray

#: Field names (lower case) that hold the strength of the return, the preferred one first.
INTENSITY_FIELDS = (
    "intensity",
    "scalar_intensity",
    "i",
    "reflectivity",
    "scalar_reflectivity",
    "reflectance",
    "scalar_reflectance",
    "remission",
)

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
    """

    xyz: FloatArray
    intensity: npt.NDArray[Any] | None


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
    """Values read from text, as uint8 again if they were declared so: such an intensity means 0..255."""
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
    name = next((name for name in INTENSITY_FIELDS if name in fields), None)
    return RawCloud(xyz, None if name is None else fields[name])


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
    name = next((name for name in INTENSITY_FIELDS if name in columns), None)
    return RawCloud(xyz, None if name is None else np.ascontiguousarray(table[:, columns.index(name)]))


def transformed(raw: RawCloud, transform: ScanTransform) -> RawCloud:
    """A file's columns with a transform's unit, axes and scale of intensity."""
    xyz = raw.xyz if transform.keeps_xyz else transform.apply_xyz(raw.xyz)
    intensity = raw.intensity
    if transform.intensity_scale is not None and intensity is not None:
        intensity = scaled_intensity(intensity, transform.intensity_scale)
    return RawCloud(xyz, intensity)


def intensity_divisor(intensity: npt.NDArray[Any] | None) -> float | None:
    """The number that brings an intensity column to [0, 1].

    Unsigned bytes are always divided by 255. Otherwise the largest finite value decides: up to 1 the column
    is taken as it is, up to 255 it is divided by 255, up to 65535 by 65535.

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
    low, high = float(finite.min()), float(finite.max())
    if low < -_UNIT_TOLERANCE:
        return None
    if high <= 1.0 + _UNIT_TOLERANCE:
        return 1.0
    return next((divisor for divisor in (255.0, 65535.0) if high <= divisor), None)


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
