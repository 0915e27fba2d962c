"""NumPy ``.npy``: one array (N, 3) or (N, 4) of numbers; pickled objects are refused."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32, read_bytes
from perception.types import FloatArray


def read_npy(path: Path) -> RawCloud:
    """Read an array of x, y, z and, in a fourth column, intensity.

    Raises:
        DataError: no ``.npy`` file, truncated, pickled, not numbers, or not three or four columns.
    """
    try:
        array = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            f"{path}: not a readable .npy file ({error}); write it again with numpy.save from a float array"
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: an .npz archive named .npy; save the one array with numpy.save")
    if array.dtype.kind not in "fiu":
        raise DataError(f"{path}: dtype {array.dtype}; expected an array of float or integer numbers")
    if array.ndim != 2 or array.shape[1] not in (3, 4):
        raise DataError(
            f"{path}: shape {array.shape}; expected (N, 3) x, y, z or (N, 4) with intensity:"
            " select and reorder the columns before saving"
        )
    return RawCloud(as_float32(array[:, :3]), array[:, 3] if array.shape[1] == 4 else None)


def write_npy(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points."""
    with path.open("wb") as file:
        np.save(file, points, allow_pickle=False)
