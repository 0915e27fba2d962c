"""Read and write point cloud files; the suffix chooses the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from perception.errors import DataError
from perception.io.columns import Columns, parse_columns
from perception.io.files.bin import NUSCENES_SUFFIX, read_bin, write_bin
from perception.io.files.delimited import looks_like_points, read_delimited, write_delimited
from perception.io.files.las import read_las
from perception.io.files.npy import read_npy, write_npy
from perception.io.files.pcd import read_pcd, write_pcd
from perception.io.files.ply import read_ply, write_ply
from perception.io.raw import RawCloud, apply_transform, unit_points
from perception.io.transform import ScanTransform
from perception.types import FloatArray, PointCloud
from sparse_core.common.files import replacing

#: Text formats. Folders may hold other text, so these files are checked for points.
_TEXT = dict.fromkeys((".csv", ".txt", ".xyz"), read_delimited)
#: Formats whose columns may have no names.
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

#: Suffixes of files that may hold scans or text about scans.
TEXT_SUFFIXES = tuple(_TEXT)
#: Suffixes that ``load_point_cloud`` knows, lower case; ``save_point_cloud`` writes all but LAS.
SUPPORTED_SUFFIXES = (*_TABLE_READERS, *_NAMED_READERS)
#: Axes and sensor height of nuScenes files, from the calibration of the data set.
NUSCENES_TRANSFORM = ScanTransform(axes="y,-x,z", sensor_height_m=1.84)


def load_point_cloud(
    path: str | Path, *, columns: Columns | None = None, transform: ScanTransform | None = None
) -> PointCloud:
    """Read one scan from a file.

    | suffix | content |
    |---|---|
    | ``.bin`` | rows of float32 x, y, z, intensity (KITTI), and ring (nuScenes); values decide |
    | ``.npy`` | array (N, 3) or (N, 4) |
    | ``.pcd``, ``.ply`` | fields x, y, z and optionally intensity, under one of its usual names |
    | ``.csv``, ``.txt``, ``.xyz`` | columns by name, or 3 or 4 columns in this order |
    | ``.las``, ``.laz`` | x, y, z and intensity (extra ``las``) |

    Coordinates are metres in the LiDAR frame, unless a transform or a column name gives another unit. Rows
    with NaN or infinity are kept; the detector drops and reports them.

    Intensity is scaled to [0, 1]. Unsigned bytes, and values up to 255, are divided by 255; values up to
    65535 by 65535. One value in a hundred may exceed the range. A transform's ``intensity_scale`` overrides
    this. Files without intensity get zeros.

    Args:
        path: the file.
        columns: columns of a ``.bin``, ``.npy`` or text file, such as ``"x,y,z,intensity,ring"``, or their
            number; None recognises them.
        transform: unit, axes, sensor height and intensity of the scan, if a detector expects others.

    Returns:
        (N, 4) float32 points in frame ``"lidar"``, with ``source`` set to the path. ``timestamp_ns`` is the
        date of the first point if a ``.pcd`` or ``.ply`` file has one, else None. A ``.pcd.bin`` file
        without ``axes`` gets nuScenes' axes and height (x right, y forward, 1.84 m), and a warning.

    Raises:
        DataError: the file is missing, damaged, of an unknown kind or has the wrong columns. The message
            names the file, the line or field, and the fix.
        ImportError: a library for LAS files is missing; the message has the pip command.
        ValueError, TypeError: ``columns`` is invalid.
    """
    path = Path(path)
    transform, warnings = transform_of_name(path, transform or ScanTransform())
    raw = apply_transform(read_raw_cloud(path, columns=columns), transform)
    advice = (
        ". Rescale or remove it, name the columns (--columns x,y,z,intensity,ring), or give the full scale"
        " (--intensity-scale 255)."
    )
    points, _ = unit_points(f"{path}: field", raw, advice=advice)
    return PointCloud(
        points,
        timestamp_ns=raw.time_ns,
        source=str(path),
        sensor_height_m=transform.sensor_height_m,
        warnings=warnings,
    )


def transform_of_name(path: Path, transform: ScanTransform) -> tuple[ScanTransform, tuple[str, ...]]:
    """Complete a transform by the file's name; returns it and a warning if something was assumed."""
    if transform.axes is not None or not path.name.lower().endswith(NUSCENES_SUFFIX):
        return transform, ()
    height_m = transform.sensor_height_m
    height_m = NUSCENES_TRANSFORM.sensor_height_m if height_m is None else height_m
    warning = (
        f"assumed nuScenes axes: x right, y forward, sensor {height_m:g} m above the ground. If x points"
        " forward, add --axes x,y,z."
    )
    return replace(transform, axes=NUSCENES_TRANSFORM.axes, sensor_height_m=height_m), (warning,)


def read_raw_cloud(path: Path, *, columns: Columns | None = None) -> RawCloud:
    """Read one scan as stored, without scaling intensity; raises as ``load_point_cloud`` does."""
    names = None if columns is None else parse_columns(columns)
    if path.is_dir():
        raise DataError(f"{path}: this is a folder. Read its files, which find_point_clouds lists.")
    if not path.exists():
        raise DataError(f"{path}: no such file. Check the path.")
    suffix = _supported_suffix(path)
    if suffix in _NAMED_READERS:
        return _NAMED_READERS[suffix](path)
    return _TABLE_READERS[suffix](path, names)


def save_point_cloud(path: str | Path, cloud: PointCloud) -> None:
    """Write one scan; the suffix chooses the format. ``.pcd`` and ``.ply`` are binary; LAS is not written.

    Files keep x, y, z and intensity as float32, but neither frame, timestamp nor source.

    Raises:
        DataError: the suffix is unknown, or writing failed.
    """
    path = Path(path)
    writer = _WRITERS.get(_supported_suffix(path))
    if writer is None:
        raise DataError(f"{path}: {path.suffix} files can only be read. Write one of {', '.join(_WRITERS)}.")
    try:
        with replacing(path, durable=False) as temporary:
            writer(temporary, cloud.points)
    except OSError as error:
        raise DataError(f"{path}: writing failed ({error.strerror}). Check the folder.") from error


def find_point_clouds(paths: Iterable[str | Path]) -> list[Path]:
    """Find the scans in files and folders, each once.

    Args:
        paths: files, and folders whose supported files follow in sorted order, without subfolders.

    Raises:
        DataError: no path was given, a path does not exist, a file has an unknown suffix, or a folder holds
            no scan.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        found.update(dict.fromkeys(_scans_in(path)))
    if not found:
        raise DataError(f"No point cloud was given. Name {known_suffixes()} files, or folders of them.")
    return list(found)


def _scans_in(path: Path) -> list[Path]:
    if path.is_dir():
        scans = sorted(filter(is_point_cloud, path.iterdir()))
        # Text files next to other scans describe them, even if they look like points.
        scans = [scan for scan in scans if scan.suffix.lower() not in _TEXT] or scans
        if not scans:
            below = (entry for depth in ("*/*", "*/*/*") for entry in path.glob(depth))
            inner = sorted({entry.parent for entry in below if is_point_cloud(entry)})
            where = f", such as {' or '.join(map(str, inner[:3]))}" if inner else ""
            raise DataError(
                f"{path}: no {known_suffixes()} file in this folder. Name the folder with the scans{where}."
            )
        return scans
    if not path.exists():
        raise DataError(f"{path}: no such file or folder. Check the path.")
    _supported_suffix(path)
    return [path]


def is_point_cloud(path: Path) -> bool:
    """Return True for an existing file of a supported suffix; text must look like points."""
    suffix = path.suffix.lower()
    known = suffix in SUPPORTED_SUFFIXES and path.is_file()
    return known and (suffix not in _TEXT or looks_like_points(path))


def _supported_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUPPORTED_SUFFIXES:
        raise DataError(
            f"{path}: unknown format {suffix or '(no suffix)'!r}. Convert the file to {known_suffixes()}."
        )
    return suffix


def known_suffixes() -> str:
    """Return the supported suffixes as text."""
    return ", ".join(SUPPORTED_SUFFIXES[:-1]) + f" or {SUPPORTED_SUFFIXES[-1]}"
