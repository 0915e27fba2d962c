"""NumPy ``.npy`` files with one array (N, 3) or (N, 4); pickled objects are refused."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32, raw_from_table, read_bytes
from perception.types import FloatArray

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path, columns: Sequence[str] | None = None) -> RawCloud:
    """Read an array of x, y, z and optionally intensity, or of the given columns.

    Raises:
        DataError: the file is not ``.npy``, truncated, pickled, not numbers, or has other columns.
    """
    array = _read_array(path)
    if array.ndim == 2 and columns is not None and array.shape[1] == len(columns):
        return raw_from_table(array, columns)
    if array.ndim != 2 or columns is not None or array.shape[1] not in (3, 4):
        expected = "(N, 3) x, y, z or (N, 4) with intensity" if columns is None else f"(N, {len(columns)})"
        fix = (
            "Name the columns, for example --columns x,y,z,intensity,_ (load_point_cloud(columns=...)), or"
            " save another array."
        )
        if array.ndim != 2:
            fix = "Save an array with one row per point."
        elif array.shape[0] in (3, 4, 5) and array.shape[1] > len(array):
            fix = "Save the transposed array, array.T, with one row per point."
        raise DataError(f"{path}: shape {array.shape}; expected {expected}. {fix}")
    return RawCloud(as_float32(array[:, :3]), array[:, 3] if array.shape[1] == 4 else None)


def write_npy(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points."""
    with path.open("wb") as file:
        np.save(file, points, allow_pickle=False)


def _read_array(path: Path) -> npt.NDArray[Any]:
    """Read the array, after checking that the file is as large as its header promises."""
    data = read_bytes(path)
    if data.startswith(b"PK"):
        raise DataError(f"{path}: an .npz archive named .npy. Save the array with numpy.save.")
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        # Version 3.0 differs from 2.0 only in field names, which arrays of numbers do not have.
        shape, by_column, dtype = _HEADERS.get(version, np.lib.format.read_array_header_2_0)(stream)
    except Exception as error:
        # NumPy evaluates the header as Python, so damage raises SyntaxError, RecursionError and others.
        reason = str(error)[:200] or type(error).__name__
        raise DataError(
            f"{path}: not a readable .npy file ({reason}). Write a float array with numpy.save."
        ) from error
    if dtype.kind not in "fiu":
        raise DataError(
            f"{path}: the .npy array has dtype {str(dtype)[:80]}. Save an array of float or integer numbers."
        )
    body = memoryview(data)[stream.tell() :]
    needed = math.prod(shape) * dtype.itemsize if all(0 <= size <= len(data) for size in shape) else None
    if needed is None or needed > len(body):
        missing = (
            "more bytes than the file has" if needed is None else f"{needed - len(body)} of {needed} bytes"
        )
        raise DataError(
            f"{path}: not a readable .npy file: truncated, or its header is damaged; {missing} are missing."
            " Copy the file again."
        )
    return np.frombuffer(body[:needed], dtype).reshape(shape, order="F" if by_column else "C")
