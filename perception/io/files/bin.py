"""``.bin`` scans: rows of little-endian float32 without a header.

KITTI's files hold x, y, z, intensity; nuScenes' ``.pcd.bin`` files also the ring of the laser. The values
tell which.
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
#: A few printable bytes may also be the rest of a truncated file.
_SHORTEST_TEXT = 64
#: Column counts to propose if the given columns do not fit.
_PROPOSED = range(3, 17)
_SAY_COLUMNS = (
    "Expected rows of float32 x, y, z, intensity, or also ring (nuScenes). Name the columns, for example"
    " --columns x,y,z,intensity,_ (load_point_cloud(columns=...)), or convert the file."
)


def read_bin(path: Path, columns: Sequence[str] | None = None) -> RawCloud:
    """Read a ``.bin`` scan; an empty file is an empty cloud.

    Without ``columns``, a file has four columns if its size and its intensity allow it. Otherwise it has
    five, if the fifth holds rings (whole numbers up to 255). If both fit, ``.pcd.bin`` has five.

    Raises:
        DataError: the file is unreadable or text, its size is not a multiple of a row, or no known columns
            fit.
    """
    data = read_bytes(path)
    if _is_text(data):
        raise DataError(
            f"{path}: this is a text file. If it holds points, rename it to .csv, .txt or .xyz; .ply and .pcd"
            " files keep their own suffix."
        )
    if columns is None:
        columns = _recognise(path, data)
    elif len(data) % (4 * len(columns)):
        raise DataError(_misfit(path, len(data), columns))
    row_bytes = 4 * len(columns)
    excess = len(data) % row_bytes
    if excess:
        raise DataError(
            f"{path}: truncated, {excess} bytes after the last whole point and {row_bytes - excess} missing"
            f" ({len(data)} bytes is not a multiple of {row_bytes}). Copy the file again. {_SAY_COLUMNS}"
        )
    return raw_from_table(_table(data, columns), columns)


def _misfit(path: Path, size: int, columns: Sequence[str]) -> str:
    """Explain why the given columns do not fit: either they or the file are wrong."""
    row_bytes = 4 * len(columns)
    fitting = [str(count) for count in _PROPOSED if size % (4 * count) == 0]
    would = (
        f"Rows of {', '.join(fitting)} columns would fit. Correct --columns (load_point_cloud(columns=...)),"
        " or copy the file again if the columns are right."
        if fitting
        else f"Rows of {_PROPOSED[0]} to {_PROPOSED[-1]} columns do not fit either. Copy the file again."
    )
    return (
        f"{path}: {size} bytes are not whole rows of columns {','.join(columns)} ({row_bytes} bytes per row,"
        f" {size % row_bytes} left over). {would}"
    )


def write_bin(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points."""
    path.write_bytes(np.ascontiguousarray(points, "<f4").tobytes())


def _recognise(path: Path, data: bytes) -> tuple[str, ...]:
    """Recognise the columns by the size, values and name of the file."""
    fits = [columns for columns in (KITTI_COLUMNS, NUSCENES_COLUMNS) if _fits(data, columns)]
    if len(fits) == 2:
        return NUSCENES_COLUMNS if path.name.lower().endswith(NUSCENES_SUFFIX) else KITTI_COLUMNS
    if fits:
        return fits[0]
    if len(data) % (4 * len(KITTI_COLUMNS)) and not len(data) % (4 * len(NUSCENES_COLUMNS)):
        raise DataError(
            f"{path}: the size fits five float32 per row, but the fifth is not a ring (a whole number from 0"
            f" to {_MOST_RINGS - 1}). {_SAY_COLUMNS}"
        )
    # Truncated, or with an invalid intensity, which the caller refuses with the same advice.
    return KITTI_COLUMNS


def _is_text(data: bytes) -> bool:
    """Return True if a file starts with printable characters only, which coordinates never do."""
    start = data[:1024]
    return len(start) >= _SHORTEST_TEXT and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start)


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
