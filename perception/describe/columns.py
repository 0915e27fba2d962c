"""Recognition of the columns of ``.bin`` and ``.npy`` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.describe.evidence import Evidence
from perception.errors import DataError
from perception.io.columns import SKIPPED
from perception.io.files.bin import KITTI_COLUMNS, NUSCENES_COLUMNS
from perception.io.files.npy import read_npy
from perception.io.point_cloud import read_raw_cloud
from perception.io.raw import intensity_divisor, read_bytes

_FIELD = "scans.columns"
_COUNTS = (4, 5, 6, 3, 7, 8)
_ROWS = 20_000


def find_columns(paths: Sequence[Path]) -> Evidence:
    """Find the columns of scans of one format; raise ``DataError`` if no columns fit."""
    suffix = paths[0].suffix.lower()
    if suffix not in (".bin", ".npy"):
        return Evidence(_FIELD, None, f"{suffix} files contain field names", "measured")
    try:
        for path in paths:
            raw = read_raw_cloud(path)
            if intensity_divisor(raw.intensity) is None:
                raise DataError(f"{path}: the fourth column is not intensity.")
    except DataError as error:
        return _by_their_numbers(paths, suffix, _with_advice(error))
    if suffix == ".npy":
        width = 3 if raw.intensity is None else 4
        return Evidence(_FIELD, list(KITTI_COLUMNS[:width]), f"arrays of {width} columns", "measured")
    ringed = all(_has_rings(path) for path in paths)
    names, what = (NUSCENES_COLUMNS, "five float32 with ring") if ringed else (KITTI_COLUMNS, "four float32")
    return Evidence(
        _FIELD, list(names), f"rows of {what}, by sizes and values of {len(paths)} files", "measured"
    )


def _with_advice(error: DataError) -> DataError:
    """Return the error of a reader, without advice on an option that ``perceive init`` lacks."""
    text, option, _ = str(error).partition(" Name the columns")
    if option:
        text += (
            " Convert the scans to .npy arrays of x, y, z and intensity, or write dataset.yaml with"
            " scans.columns yourself."
        )
    return DataError(text)


def _has_rings(path: Path) -> bool:
    """Return True if a file without given columns has five."""
    return len(read_raw_cloud(path).xyz) * 20 == path.stat().st_size


def _by_their_numbers(paths: Sequence[Path], suffix: str, error: DataError) -> Evidence:
    """Find the number of columns that divides all files and makes neighbouring rows similar."""
    if suffix == ".npy":
        return _of_arrays(paths, error)
    tables = [np.frombuffer(read_bytes(path), "<f4", count=path.stat().st_size // 4) for path in paths]
    fits = [count for count in _COUNTS if all(len(values) and len(values) % count == 0 for values in tables)]
    fits = [count for count in fits if all(_plausible(values.reshape(-1, count)) for values in tables)]
    if not fits:
        raise error
    roughness = {count: max(_roughness(values.reshape(-1, count)) for values in tables) for count in fits}
    best = min(fits, key=lambda count: roughness[count])
    names = _named(best, [values.reshape(-1, best) for values in tables])
    how = f"rows of {best} float32 fit all {len(paths)} files, and make neighbouring rows most similar"
    return Evidence(_FIELD, names, how, "likely")


def _of_arrays(paths: Sequence[Path], error: DataError) -> Evidence:
    for width in range(4, 33):
        columns = ("x", "y", "z", *["_"] * (width - 3))
        try:
            for path in paths:
                read_npy(path, columns)
        except DataError:
            continue
        tables = [np.load(path, allow_pickle=False) for path in paths]
        return Evidence(_FIELD, _named(width, tables), f"arrays of {width} columns", "likely")
    raise error


def _named(width: int, tables: Sequence[npt.NDArray[Any]]) -> list[str]:
    """Return names: x, y, z, intensity if plausible, and skipped columns."""
    bright = width > 3 and all(intensity_divisor(np.ascontiguousarray(table[:, 3])) for table in tables)
    names = ["x", "y", "z", *(["intensity"] if bright else [])]
    return names + [SKIPPED] * (width - len(names))


def _plausible(table: npt.NDArray[np.float32]) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        xyz = np.abs(table[:, :3].astype(np.float64))
        good = np.isfinite(xyz).all(axis=1) & (xyz < 1e6).all(axis=1)
    return bool(good.mean() > 0.9)


def _roughness(table: npt.NDArray[np.float32]) -> float:
    """Return steps between neighbouring rows relative to the spread, which are small for true columns."""
    xyz = table[:_ROWS, :3].astype(np.float64)
    xyz = xyz[np.isfinite(xyz).all(axis=1)]
    if len(xyz) < 3:
        return np.inf
    spread = np.percentile(xyz, 90, axis=0) - np.percentile(xyz, 10, axis=0) + 1e-9
    return float(np.median(np.abs(np.diff(xyz, axis=0)) / spread, axis=0).max())
