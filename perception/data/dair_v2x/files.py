"""Files of a side of DAIR-V2X: scans, labels, calibrations and the table ``data_info.json``.

The layout is that of github.com/AIR-THU/DAIR-V2X. Numbers may be text in all JSON files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.data.camera import CameraCalibration
from perception.data.images import find_image, read_image_size
from perception.data.own.formats.dair_v2x import DairV2xLabels, number_of
from perception.data.own.parsing import field_of, items_of, read_json, table
from perception.errors import DataError
from perception.io.point_cloud import SUPPORTED_SUFFIXES

Matrix = npt.NDArray[np.float64]

INFO, SCANS, PAIRS = "data_info.json", "velodyne", "cooperative"
#: Size of the pictures in pixels, for frames without one.
IMAGE_SIZE = (1920, 1080)


class SideNames(NamedTuple):
    """Folders of a side.

    Attributes:
        folder: usual name of the side's folder.
        lidar: name of the LiDAR in the names of folders below ``label`` and ``calib``.
        key: prefix of the side's paths in the table of pairs.
    """

    folder: str
    lidar: Literal["lidar", "virtuallidar"]
    key: str


VEHICLE = SideNames("vehicle-side", "lidar", "vehicle")
ROADSIDE = SideNames("infrastructure-side", "virtuallidar", "infrastructure")


class SideFiles:
    """The files of a side.

    Args:
        folder: folder of the side.
        names: names of its folders.
    """

    def __init__(self, folder: Path, names: SideNames) -> None:
        self.folder, self.names = folder, names

    @classmethod
    def found(cls, folder: Path) -> SideFiles | None:
        """Return the files of a folder that looks like a side, or None."""
        if not (folder / INFO).is_file() or not (folder / SCANS).is_dir():
            return None
        for names in (VEHICLE, ROADSIDE):
            if (folder / "calib" / f"{names.lidar}_to_camera").is_dir():
                return cls(folder, names)
        return None

    @cached_property
    def scans(self) -> dict[str, Path]:
        """Scans by frame name; ``.pcd`` files rather than copies in other formats."""
        paths = sorted((self.folder / SCANS).iterdir(), key=lambda path: path.suffix.lower() == ".pcd")
        return {path.stem: path for path in paths if path.suffix.lower() in SUPPORTED_SUFFIXES}

    @cached_property
    def labels(self) -> DairV2xLabels:
        """Reader of the labels in the frame of the LiDAR."""
        return DairV2xLabels(self.folder / "label" / self.names.lidar)

    @property
    def labelled(self) -> frozenset[str]:
        """Frames with labels."""
        return frozenset(self.labels.files) if self.labels.path.is_dir() else frozenset()

    @cached_property
    def times_ns(self) -> dict[str, int]:
        """Times of the scans by frame name, from the table; it counts microseconds."""
        path = self.folder / INFO
        rows = items_of(str(path), "the file", read_json(path))
        found = {}
        for number, row in enumerate(rows):
            place = f"{path}: entry {number}"
            time_us = number_of(place, "pointcloud_timestamp", field_of(place, row, "pointcloud_timestamp"))
            found[stem_of(place, row, "pointcloud_path")] = round(time_us) * 1000
        return found

    @cached_property
    def offsets(self) -> dict[str, Matrix]:
        """By roadside frame, (3,) metres to add to the position of the post in the world."""
        path = self.folder.parent / PAIRS / INFO
        if self.names is VEHICLE or not path.is_file():
            return {}
        found = {}
        for number, row in enumerate(items_of(str(path), "the file", read_json(path))):
            place = f"{path}: entry {number}"
            found[stem_of(place, row, "infrastructure_pointcloud_path")] = offset_of(place, row)
        return found

    def pose(self, frame_id: str) -> Matrix | None:
        """Return (4, 4) world_from_lidar in metres, or None without its files."""
        calib = self.folder / "calib"
        if self.names is VEHICLE:
            paths = [calib / name / f"{frame_id}.json" for name in ("novatel_to_world", "lidar_to_novatel")]
            if not all(path.is_file() for path in paths):
                return None
            world_from_vehicle, vehicle_from_lidar = map(read_transform, paths)
            return world_from_vehicle @ vehicle_from_lidar
        path = calib / "virtuallidar_to_world" / f"{frame_id}.json"
        if not path.is_file():
            return None
        pose = read_transform(path)
        pose[:3, 3] += self.offsets.get(frame_id, np.zeros(3))
        return pose

    def calibrated(self, frame_id: str) -> bool:
        """Return True if a frame has the calibration of its camera."""
        return all(path.is_file() for path in self._camera_files(frame_id))

    def calibration(self, frame_id: str) -> CameraCalibration:
        """Read the calibration of the camera; lens distortion is ignored."""
        camera, intrinsics = self._camera_files(frame_id)
        told = read_json(intrinsics)
        if not isinstance(told, Mapping):
            raise DataError(f"{intrinsics}: expected an object with cam_K. Copy the file again.")
        numbers = _numbers(str(intrinsics), "cam_K", field_of(str(intrinsics), told, "cam_K"), 9)
        return CameraCalibration(
            image_from_camera=np.column_stack([numbers.reshape(3, 3), np.zeros(3)]),
            rectification=np.eye(3),
            camera_from_lidar_raw=read_transform(camera)[:3],
        )

    def image(self, frame_id: str) -> Path | None:
        """Return the picture of a frame, or None."""
        return find_image(self.folder / "image", frame_id)

    def image_size(self, frame_id: str) -> tuple[int, int]:
        """Return width and height of the picture in pixels."""
        path = self.image(frame_id)
        return IMAGE_SIZE if path is None else read_image_size(path)

    def _camera_files(self, frame_id: str) -> tuple[Path, Path]:
        folders = (f"{self.names.lidar}_to_camera", "camera_intrinsic")
        camera, intrinsics = (self.folder / "calib" / name / f"{frame_id}.json" for name in folders)
        return camera, intrinsics


def read_transform(path: Path) -> Matrix:
    """Read a (4, 4) transform from ``rotation`` and ``translation``, at the top or below ``transform``."""
    told = read_json(path)
    told = told.get("transform", told) if isinstance(told, Mapping) else told
    if not isinstance(told, Mapping):
        raise DataError(f"{path}: expected rotation and translation. Copy the file again.")
    made = np.eye(4)
    for name, part in (("rotation", made[:3, :3]), ("translation", made[:3, 3])):
        part[...] = _numbers(str(path), name, field_of(str(path), told, name), part.size).reshape(part.shape)
    return made


def offset_of(place: str, row: Mapping[str, Any]) -> Matrix:
    """Return (3,) metres of ``system_error_offset``, the error of the roadside position; else zeros."""
    told = row.get("system_error_offset")
    if not isinstance(told, Mapping):
        return np.zeros(3)
    parts = [told.get(name, "") for name in ("delta_x", "delta_y")]
    return np.array([0.0 if part == "" else number_of(place, "system_error_offset", part) for part in parts]
                    + [0.0])  # fmt: skip


def stem_of(place: str, row: Mapping[str, Any], name: str) -> str:
    """Return the file name without suffix of a path in a table."""
    value = field_of(place, row, name)
    if not isinstance(value, str):
        raise DataError(f"{place}: field {name} must be a path, got {value!r:.80}")
    return PurePosixPath(value).stem


def _numbers(place: str, name: str, value: Any, count: int) -> Matrix:
    """Return numbers of nested lists, also written as text."""
    rows = value if isinstance(value, list) else []
    flat = [part for row in rows for part in (row if isinstance(row, list) else [row])]
    if len(flat) != count:
        raise DataError(f"{place}: field {name} must be {count} numbers, got {value!r:.80}")
    numbers: Matrix = table([[number_of(place, name, part) for part in flat]], count)[0]
    return numbers
