"""One entry for all point cloud files; the suffix chooses the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from perception.errors import DataError
from perception.io.columns import Columns, parse_columns
from perception.io.files.bin import NUSCENES_SUFFIX, read_bin, write_bin
from perception.io.files.delimited import looks_like_points, read_delimited, write_delimited
from perception.io.files.las import read_las
from perception.io.files.npy import read_npy, write_npy
from perception.io.files.pcd import read_pcd, write_pcd
from perception.io.files.ply import read_ply, write_ply
from perception.io.raw import RawCloud, transformed, unit_intensity
from perception.io.transform import ScanTransform
from perception.types import FloatArray, PointCloud
from sparse_core.files import replacing

#: Of tables of numbers. Anything may be in them, so that files in a folder are looked into.
_TEXT = dict.fromkeys((".csv", ".txt", ".xyz"), read_delimited)
#: Their columns need not have names.
_TABLE_READERS: dict[str, Callable[[Path, tuple[str, ...] | None], RawCloud]] = {
    ".bin": read_bin,
    ".npy": read_npy,
    **_TEXT,
}
_NAMED_READERS: dict[str, Callable[[Path], RawCloud]] = {
    ".pcd": read_pcd,
    ".ply": read_ply,
    ".las": read_las,
    ".laz": read_las,
}
_WRITERS: dict[str, Callable[[Path, FloatArray], None]] = {
    ".bin": write_bin,
    ".npy": write_npy,
    ".pcd": write_pcd,
    ".ply": write_ply,
    **dict.fromkeys(_TEXT, write_delimited),
    ".csv": partial(write_delimited, separator=","),
}

#: Of files that may be about scans rather than scans.
TEXT_SUFFIXES = tuple(_TEXT)
#: Suffixes that ``load_point_cloud`` knows, lower case; ``save_point_cloud`` writes all but LAS.
SUPPORTED_SUFFIXES = (*_TABLE_READERS, *_NAMED_READERS)
#: What nuScenes' files are, by the data set's own calibration: x right, y forward, on the roof.
NUSCENES_TRANSFORM = ScanTransform(axes="y,-x,z", sensor_height_m=1.84)


def load_point_cloud(
    path: str | Path, *, columns: Columns | None = None, transform: ScanTransform | None = None
) -> PointCloud:
    """Read one scan.

    ``.bin``: rows of float32 x, y, z, intensity (KITTI) or of these and the ring (nuScenes' ``.pcd.bin``),
    told apart by their numbers. ``.npy``: (N, 3) or (N, 4). ``.pcd`` and ``.ply``: fields x, y, z and, under
    one of its usual names, intensity. ``.csv``, ``.txt`` and ``.xyz``: columns by name, or 3 or 4 by order.
    ``.las`` and ``.laz``: x, y, z and intensity (extra ``las``). Coordinates are taken as stored, metres in
    the LiDAR frame, unless a transform (or a column's name) says what they are; the detector (and
    ``perceive doctor``) tells what it doubts. Rows with NaN or infinity are kept; the detector drops and
    reports them.

    Intensity comes out in [0, 1]: zeros where the file has none; a column of unsigned bytes, or one of values
    from above 1 to 255, is divided by 255, and one up to 65535 by 65535. One value in a hundred may be
    brighter. A transform's ``intensity_scale`` takes the place of this.

    Args:
        path: the file.
        columns: what the columns of a ``.bin``, ``.npy`` or text file are, such as ``"x,y,z,intensity,ring"``
            or their number; None: recognised. Other files name theirs.
        transform: unit, axes, height and intensity of the scan, where they are not what a detector expects.

    Returns:
        (N, 4) float32 points in frame ``"lidar"``; ``source`` is the path, ``timestamp_ns`` the time of the
        first point where a ``.pcd`` or ``.ply`` file has dates of its points, else None. Of a
        ``.pcd.bin`` file without a transform of its axes x is to the right and y forward, 1.84 m above the
        ground, as nuScenes has it; a warning says so.

    Raises:
        DataError: the file is missing, of an unknown kind, damaged or has the wrong columns; the message
            names the file, the line or field and the fix.
        ImportError: a library for LAS files is missing; the message names the extra.
        ValueError, TypeError: no such columns.
    """
    path = Path(path)
    transform, told = usual_transform(path, transform or ScanTransform())
    raw = transformed(read_raw_cloud(path, columns=columns), transform)
    advice = (
        ": rescale it or leave it out, or say what it is: the columns (--columns x,y,z,intensity,ring) or the"
        " value that stands for 1 (--intensity-scale 255)"
    )
    intensity, _ = unit_intensity(f"{path}: field", raw, advice=advice)
    return PointCloud(
        np.column_stack([raw.xyz, intensity]),
        timestamp_ns=raw.time_ns,
        source=str(path),
        sensor_height_m=transform.sensor_height_m,
        warnings=told,
    )


def usual_transform(path: Path, transform: ScanTransform) -> tuple[ScanTransform, tuple[str, ...]]:
    """A transform with what the name of a file tells, where it says nothing of it, and words of that."""
    if transform.axes is not None or not path.name.lower().endswith(NUSCENES_SUFFIX):
        return transform, ()
    height_m = transform.sensor_height_m
    height_m = NUSCENES_TRANSFORM.sensor_height_m if height_m is None else height_m
    told = (
        f"read as nuScenes' files are, x to the right, y forward, {height_m:g} m above the ground; say"
        " --axes x,y,z where x is forward already"
    )
    return replace(transform, axes=NUSCENES_TRANSFORM.axes, sensor_height_m=height_m), (told,)


def read_raw_cloud(path: Path, *, columns: Columns | None = None) -> RawCloud:
    """Read one scan as stored, intensity in the file's own range.

    Raises:
        DataError, ValueError, TypeError: see ``load_point_cloud``.
    """
    names = None if columns is None else parse_columns(columns)
    suffix = _supported_suffix(path)
    if suffix in _NAMED_READERS:
        return _NAMED_READERS[suffix](path)
    return _TABLE_READERS[suffix](path, names)


def save_point_cloud(path: str | Path, cloud: PointCloud) -> None:
    """Write one scan; the suffix chooses the format (``.pcd`` and ``.ply`` are written binary; no LAS).

    Every format keeps x, y, z and intensity as float32 and loses frame, timestamp and source.

    Raises:
        DataError: the suffix is unknown or the file cannot be written.
    """
    path = Path(path)
    writer = _WRITERS.get(_supported_suffix(path))
    if writer is None:
        raise DataError(f"{path}: {path.suffix} is read only; write {', '.join(_WRITERS)}")
    try:
        with replacing(path, durable=False) as temporary:
            writer(temporary, cloud.points)
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
        raise DataError(f"no point cloud given; name files or folders of {known_suffixes()} files")
    return list(found)


def _scans_in(path: Path) -> list[Path]:
    if path.is_dir():
        scans = sorted(filter(is_point_cloud, path.iterdir()))
        # Text beside scans of another kind is about them, whatever it looks like.
        scans = [scan for scan in scans if scan.suffix.lower() not in _TEXT] or scans
        if not scans:
            below = (entry for depth in ("*/*", "*/*/*") for entry in path.glob(depth))
            inner = sorted({entry.parent for entry in below if is_point_cloud(entry)})
            where = f": {', '.join(map(str, inner[:3]))}" if inner else ""
            raise DataError(
                f"{path}: no {known_suffixes()} file in this folder; name the folder that holds the scans"
                + where
            )
        return scans
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; check the path")
    _supported_suffix(path)
    return [path]


def is_point_cloud(path: Path) -> bool:
    """Whether there is a file of this name and a supported suffix; one of text must look like points."""
    suffix = path.suffix.lower()
    known = suffix in SUPPORTED_SUFFIXES and path.is_file()
    return known and (suffix not in _TEXT or looks_like_points(path))


def _supported_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUPPORTED_SUFFIXES:
        raise DataError(
            f"{path}: unknown kind of scan {suffix or '(no suffix)'!r}; convert it to {known_suffixes()}"
        )
    return suffix


def known_suffixes() -> str:
    """The suffixes of scans in words."""
    return ", ".join(SUPPORTED_SUFFIXES[:-1]) + f" or {SUPPORTED_SUFFIXES[-1]}"
