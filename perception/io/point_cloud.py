"""One entry for all point cloud files; the suffix chooses the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.bin import read_bin, write_bin
from perception.io.npy import read_npy, write_npy
from perception.io.pcd import read_pcd, write_pcd
from perception.io.ply import read_ply, write_ply
from perception.io.raw import RawCloud, unit_intensity
from perception.types import FloatArray, PointCloud

_READERS: dict[str, Callable[[Path], RawCloud]] = {
    ".bin": read_bin,
    ".npy": read_npy,
    ".pcd": read_pcd,
    ".ply": read_ply,
}
_WRITERS: dict[str, Callable[[Path, FloatArray], None]] = {
    ".bin": write_bin,
    ".npy": write_npy,
    ".pcd": write_pcd,
    ".ply": write_ply,
}

#: Suffixes that ``load_point_cloud`` and ``save_point_cloud`` know, lower case.
SUPPORTED_SUFFIXES = tuple(_READERS)


def load_point_cloud(path: str | Path) -> PointCloud:
    """Read one scan.

    ``.bin``: float32 x, y, z, intensity (KITTI). ``.npy``: (N, 3) or (N, 4). ``.pcd`` and ``.ply``: fields
    x, y, z and, under one of its usual names, intensity. Coordinates are taken as stored: metres in the LiDAR
    frame, not checked here (``perceive doctor`` does). Rows with NaN or infinity are kept; the detector drops
    and reports them.

    Intensity comes out in [0, 1]: zeros where the file has none; a column of unsigned bytes, or one whose
    largest value is above 1 and at most 255, is divided by 255, and one up to 65535 by 65535.

    Args:
        path: the file.

    Returns:
        (N, 4) float32 points in frame ``"lidar"``, without a timestamp; ``source`` is the path.

    Raises:
        DataError: the file is missing, of an unknown kind, damaged or has the wrong columns; the message
            names the file, the line or field and the fix.
    """
    path = Path(path)
    raw = read_raw_cloud(path)
    points = np.column_stack([raw.xyz, unit_intensity(path, raw)])
    return PointCloud(points, source=str(path))


def read_raw_cloud(path: Path) -> RawCloud:
    """Read one scan as stored, intensity in the file's own range.

    Raises:
        DataError: see ``load_point_cloud``.
    """
    return _READERS[_supported_suffix(path)](path)


def save_point_cloud(path: str | Path, cloud: PointCloud) -> None:
    """Write one scan; the suffix chooses the format (``.pcd`` and ``.ply`` are written binary).

    Every format keeps x, y, z and intensity as float32 and loses frame, timestamp and source.

    Raises:
        DataError: the suffix is unknown or the file cannot be written.
    """
    path = Path(path)
    writer = _WRITERS[_supported_suffix(path)]
    try:
        writer(path, cloud.points)
    except OSError as error:
        raise DataError(f"{path}: cannot write the file ({error.strerror}); check the folder") from error


def find_point_clouds(paths: Iterable[str | Path]) -> list[Path]:
    """All scans that the given files and folders name, each once.

    Args:
        paths: files, kept in the given order, and folders, whose supported files follow in sorted order
            (subfolders are not entered).

    Raises:
        DataError: nothing was given, a path does not exist, a file has an unknown suffix, or a folder holds
            no scan.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        found.update(dict.fromkeys(_scans_in(path)))
    if not found:
        raise DataError(f"no point cloud given; name files or folders of {_known_suffixes()} files")
    return list(found)


def _scans_in(path: Path) -> list[Path]:
    if path.is_dir():
        scans = sorted(
            entry for entry in path.iterdir() if entry.suffix.lower() in _READERS and entry.is_file()
        )
        if not scans:
            raise DataError(
                f"{path}: no {_known_suffixes()} file in this folder; name the folder that holds the scans"
                " (in a KITTI data set: training/velodyne)"
            )
        return scans
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; check the path")
    _supported_suffix(path)
    return [path]


def _supported_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DataError(
            f"{path}: unknown kind of scan {suffix or '(no suffix)'!r}; convert it to {_known_suffixes()}"
        )
    return suffix


def _known_suffixes() -> str:
    return ", ".join(SUPPORTED_SUFFIXES[:-1]) + f" or {SUPPORTED_SUFFIXES[-1]}"
