"""KITTI velodyne ``.bin``: rows of four little-endian float32 x, y, z, intensity, without a header."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32, read_bytes
from perception.types import FloatArray

_ROW_BYTES = 16


def read_bin(path: Path) -> RawCloud:
    """Read a ``.bin`` scan; an empty file is an empty cloud.

    Raises:
        DataError: the file cannot be read or its size is no multiple of 16 bytes.
    """
    data = read_bytes(path)
    excess = len(data) % _ROW_BYTES
    if excess:
        raise DataError(
            f"{path}: truncated, {excess} bytes after the last whole point and {_ROW_BYTES - excess} missing"
            f" ({len(data)} bytes is no multiple of {_ROW_BYTES}); copy the file again, or convert it:"
            " rows are float32 x, y, z, intensity"
        )
    rows = np.frombuffer(data, "<f4").reshape(-1, 4)
    return RawCloud(as_float32(rows[:, :3]), as_float32(rows[:, 3]))


def write_bin(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points."""
    path.write_bytes(np.ascontiguousarray(points, "<f4").tobytes())
