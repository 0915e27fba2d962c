"""``.bin`` scans: rows of little-endian float32 without a header.

KITTI's velodyne files hold x, y, z, intensity; nuScenes' ``.pcd.bin`` files the ring of the laser as well.
The file does not say which, but its numbers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.raw import RawCloud, intensity_divisor, raw_from_table, read_bytes
from perception.types import FloatArray

KITTI_COLUMNS = ("x", "y", "z", "intensity")
NUSCENES_COLUMNS = (*KITTI_COLUMNS, "ring")
NUSCENES_SUFFIX = ".pcd.bin"

_MOST_RINGS = 256
#: Rows of so many float32 are proposed where those that were given do not fit.
_PROPOSED = range(3, 17)
_SAY_COLUMNS = (
    "expected rows of float32 x, y, z, intensity, or the same with the ring (nuScenes): say what the columns"
    " are, for example --columns x,y,z,intensity,_ (load_point_cloud(columns=...)), or convert the file"
)


def read_bin(path: Path, columns: Sequence[str] | None = None) -> RawCloud:
    """Read a ``.bin`` scan; an empty file is an empty cloud.

    Without ``columns`` a file is read as four columns if its size and fourth column (intensity is not
    negative) allow it, else as five if the fifth holds rings (whole numbers up to 255). Where both would do,
    which no real scan does, the name decides: ``.pcd.bin`` has five.

    Args:
        path: the file.
        columns: names of the columns; None: recognise them.

    Raises:
        DataError: the file cannot be read, its size is no multiple of a row, or the columns are neither.
    """
    data = read_bytes(path)
    if columns is None:
        columns = _recognise(path, data)
    elif len(data) % (4 * len(columns)):
        raise DataError(_misfit(path, len(data), columns))
    row_bytes = 4 * len(columns)
    excess = len(data) % row_bytes
    if excess:
        raise DataError(
            f"{path}: truncated, {excess} bytes after the last whole point and {row_bytes - excess} missing"
            f" ({len(data)} bytes is no multiple of {row_bytes}); copy the file again; {_SAY_COLUMNS}"
        )
    return raw_from_table(_table(data, columns), columns)


def _misfit(path: Path, size: int, columns: Sequence[str]) -> str:
    """What is wrong with columns that were given: either they or the file."""
    row_bytes = 4 * len(columns)
    fitting = [str(count) for count in _PROPOSED if size % (4 * count) == 0]
    would = (
        f"rows of {', '.join(fitting)} columns would fit: correct --columns (load_point_cloud(columns=...)),"
        " or, if they are right, copy the file again: it was cut off"
        if fitting
        else f"nor do rows of {_PROPOSED[0]} to {_PROPOSED[-1]} columns: the file was cut off, copy it again"
    )
    return (
        f"{path}: {size} bytes are no whole rows of the columns given, {','.join(columns)} ({row_bytes} bytes"
        f" a row, {size % row_bytes} left over); {would}"
    )


def write_bin(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points."""
    path.write_bytes(np.ascontiguousarray(points, "<f4").tobytes())


def _recognise(path: Path, data: bytes) -> tuple[str, ...]:
    """The columns of a file by its size, numbers and name."""
    fits = [columns for columns in (KITTI_COLUMNS, NUSCENES_COLUMNS) if _fits(data, columns)]
    if len(fits) == 2:
        return NUSCENES_COLUMNS if path.name.lower().endswith(NUSCENES_SUFFIX) else KITTI_COLUMNS
    if fits:
        return fits[0]
    if len(data) % (4 * len(KITTI_COLUMNS)) and not len(data) % (4 * len(NUSCENES_COLUMNS)):
        raise DataError(
            f"{path}: {len(data)} bytes are whole rows of five float32, but the fifth is no ring (a whole"
            f" number from 0 to {_MOST_RINGS - 1}); {_SAY_COLUMNS}"
        )
    # Truncated, or with an intensity that is refused where it is used, with the same advice.
    return KITTI_COLUMNS


def _fits(data: bytes, columns: tuple[str, ...]) -> bool:
    if len(data) % (4 * len(columns)):
        return False
    table = _table(data, columns)
    if columns == NUSCENES_COLUMNS:
        ring = table[:, 4]
        with np.errstate(invalid="ignore"):
            if not ((ring >= 0) & (ring < _MOST_RINGS) & (ring == np.floor(ring))).all():
                return False
    return intensity_divisor(np.ascontiguousarray(table[:, 3])) is not None


def _table(data: bytes, columns: Sequence[str]) -> FloatArray:
    return np.frombuffer(data, "<f4").reshape(-1, len(columns))
