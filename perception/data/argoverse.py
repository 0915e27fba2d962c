"""Argoverse 2 sensor data as a data set: scans, labels and poses in feather files (extra ``parquet``).

Source: the Argoverse 2 user guide (Wilson et al., NeurIPS Datasets and Benchmarks 2021). Files use the
vehicle's frame: x forward, y left, z up, origin between the rear wheels. Frames here have their origin at the
upper of the two LiDARs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.columns import Columns
from perception.io.raw import RawCloud
from perception.io.transform import ScanTransform
from perception.types import Boxes3D, PointCloud

Matrix = npt.NDArray[np.float64]

CLASSES = (
    "REGULAR_VEHICLE", "LARGE_VEHICLE", "BUS", "BOX_TRUCK", "TRUCK", "VEHICULAR_TRAILER", "TRUCK_CAB",
    "SCHOOL_BUS", "ARTICULATED_BUS", "MESSAGE_BOARD_TRAILER", "PEDESTRIAN", "WHEELED_RIDER", "BICYCLE",
    "BICYCLIST", "MOTORCYCLE", "MOTORCYCLIST", "WHEELED_DEVICE", "WHEELCHAIR", "STROLLER", "DOG",
    "CONSTRUCTION_CONE", "CONSTRUCTION_BARREL", "STOP_SIGN", "BOLLARD", "MOBILE_PEDESTRIAN_CROSSING_SIGN",
)  # fmt: skip
_SENSOR, _SCANS = "up_lidar", Path("sensors/lidar")
#: Height of the vehicle's origin above the ground, which is the radius of the wheels.
_ORIGIN_ABOVE_GROUND_M = 0.33


@dataclass(frozen=True, eq=False, kw_only=True)
class ArgoverseFrame(Frame):
    """A motion-corrected scan of both LiDARs.

    Attributes:
        known: labels.
        origin_m: (3,) float64, the upper LiDAR in the vehicle's frame.
        point_counts: (M,) int64, points inside each box, from the labels.
    """

    known: Boxes3D
    origin_m: Matrix
    point_counts: npt.NDArray[np.int64]

    @cached_property
    def cloud(self) -> PointCloud:
        """The scan in the LiDAR frame."""
        assert self.source is not None
        columns = _columns(self.source, ("x", "y", "z", "intensity"))
        points = np.stack([columns[name].astype(np.float32) for name in ("x", "y", "z", "intensity")], axis=1)
        points[:, :3] -= self.origin_m.astype(np.float32)
        points[:, 3] /= 255
        return PointCloud(
            points,
            timestamp_ns=self.time_ns,
            source=str(self.source),
            sensor_height_m=float(self.origin_m[2]) + _ORIGIN_ABOVE_GROUND_M,
        )

    @cached_property
    def truth(self) -> Boxes3D:
        """The labels."""
        return self.known

    def stored(self, columns: Columns | None, transform: ScanTransform) -> tuple[RawCloud, float | None]:
        """Return the scan by its calibration; the arguments are ignored."""
        return RawCloud(self.points[:, :3], self.points[:, 3]), self.cloud.sensor_height_m


class ArgoverseDataSet(DataSet):
    """The scans of a log, or of a folder of logs; a split is the name of a log."""

    kind = "Argoverse 2"
    layout = "city_SE3_egovehicle.feather next to sensors/lidar, or folders of these"
    classes = CLASSES
    evaluation = "boxes"

    @cached_property
    def _logs(self) -> dict[str, Path]:
        return {log.name: log for log in _logs(self.folder)}

    @cached_property
    def _scans(self) -> dict[str, Path]:
        return {
            f"{name}__{scan.stem}": scan
            for name, log in self._logs.items()
            for scan in sorted((log / _SCANS).glob("*.feather"))
        }

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True for a log or a folder of logs."""
        return next(iter(_logs(folder)), None) is not None

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the frames that have a part; in labelled logs all scans are labelled."""
        if part != "labels":
            return self._scans
        return [name for name, scan in self._scans.items() if _labels_of(scan).is_file()]

    @property
    def splits(self) -> Sequence[str]:
        """Names of the logs."""
        return sorted(self._logs)

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a log."""
        if split not in self._logs:
            raise DataError(f"{self.folder}: no log {split!r}. Choose one of: {', '.join(self.splits[:9])}")
        return [name for name in self._scans if name.startswith(f"{split}__")]

    def frame(self, frame_id: str) -> ArgoverseFrame:
        """Return the frame of a scan."""
        if frame_id not in self._scans:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        scan = self._scans[frame_id]
        log = _log(str(scan.parents[2]))
        try:
            time_ns = int(scan.stem)
        except ValueError as error:
            raise DataError(f"{scan}: the name is not a time in nanoseconds. Restore the name.") from error
        boxes, labels, identities, counts = log.labels(time_ns)
        boxes[:, :3] -= log.origin_m
        pose = log.pose(time_ns)
        if pose is not None:
            pose[:3, 3] += pose[:3, :3] @ log.origin_m
        return ArgoverseFrame(
            frame_id=frame_id,
            source=scan,
            labelled=_labels_of(scan).is_file(),
            track_ids=identities,
            pose=pose,
            time_ns=time_ns,
            known=Boxes3D(boxes.astype(np.float32), labels),
            origin_m=log.origin_m,
            point_counts=counts,
        )

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the log of a folder of scans, or None."""
        inside = scans.parts[-2:] == _SCANS.parts and cls.recognises(scans.parents[1])
        return scans.parents[1] if inside else None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> ArgoverseFrame | None:
        """Return the frame of a scan in a log, or None."""
        if scan.suffix != ".feather":
            return None
        return opened.open(cls, folder, scan).frame(f"{folder.name}__{scan.stem}")


class _Log:
    """Labels, poses and calibration of a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def origin_m(self) -> Matrix:
        """(3,) position of the upper LiDAR in the vehicle's frame."""
        path = self.folder / "calibration/egovehicle_SE3_sensor.feather"
        columns = _columns(path, ("sensor_name", "tx_m", "ty_m", "tz_m"))
        row = np.flatnonzero(columns["sensor_name"] == _SENSOR)
        if not len(row):
            raise DataError(f"{path}: no sensor {_SENSOR!r}. Copy the calibration again.")
        return np.array([float(columns[name][row[0]]) for name in ("tx_m", "ty_m", "tz_m")])

    @cached_property
    def _poses(self) -> dict[int, Matrix]:
        path = self.folder / "city_SE3_egovehicle.feather"
        columns = _columns(path, ("timestamp_ns", *_TURN, *_PLACE))
        made = np.tile(np.eye(4), (len(columns["timestamp_ns"]), 1, 1))
        if len(made):
            made[:, :3, :3] = _turns(path, columns).as_matrix()
            made[:, :3, 3] = np.stack([columns[name] for name in _PLACE], axis=1)
        return dict(zip(columns["timestamp_ns"].tolist(), made, strict=True))

    def pose(self, time_ns: int) -> Matrix | None:
        """Return (4, 4) city_from_vehicle, or None."""
        found = self._poses.get(time_ns)
        return None if found is None else found.copy()

    @cached_property
    def _labels(self) -> dict[str, npt.NDArray[Any]]:
        path = self.folder / "annotations.feather"
        names = ("timestamp_ns", "track_uuid", "category", "num_interior_pts", *_SIZE, *_TURN, *_PLACE)
        if not path.is_file():
            return {name: np.zeros(0) for name in names} | {
                "yaw": np.zeros(0),
                "identity": np.zeros(0, np.int64),
            }
        columns = _columns(path, names)
        forward = _turns(path, columns).as_matrix()[:, :, 0] if len(columns["category"]) else np.zeros((0, 3))
        columns["yaw"] = np.arctan2(forward[:, 1], forward[:, 0])
        columns["identity"] = np.unique(columns["track_uuid"].astype(str), return_inverse=True)[1].astype(
            np.int64
        )
        return columns

    def labels(self, time_ns: int) -> tuple[Matrix, list[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return boxes (M, 7) in the vehicle's frame, classes, identities and point counts of a scan."""
        columns = self._labels
        rows = np.flatnonzero(columns["timestamp_ns"] == time_ns)
        parts = [columns[name][rows].astype(np.float64) for name in (*_PLACE, *_SIZE, "yaw")]
        return (
            np.stack(parts, axis=1),
            [str(name) for name in columns["category"][rows]],
            columns["identity"][rows],
            columns["num_interior_pts"][rows].astype(np.int64),
        )


_TURN, _PLACE, _SIZE = ("qw", "qx", "qy", "qz"), ("tx_m", "ty_m", "tz_m"), ("length_m", "width_m", "height_m")


@lru_cache(maxsize=8)
def _log(folder: str) -> _Log:
    return _Log(Path(folder))


def _logs(folder: Path) -> Iterable[Path]:
    found = [folder] if (folder / "city_SE3_egovehicle.feather").is_file() else []
    found += sorted(path.parent for path in folder.glob("*/city_SE3_egovehicle.feather"))
    return [log for log in found if (log / _SCANS).is_dir()]


def _labels_of(scan: Path) -> Path:
    return scan.parents[2] / "annotations.feather"


def _turns(path: Path, columns: dict[str, npt.NDArray[Any]]) -> Rotation:
    w, x, y, z = (columns[name].astype(np.float64) for name in _TURN)
    try:
        return Rotation.from_quat(np.stack([x, y, z, w], axis=1))
    except ValueError as error:
        raise DataError(
            f"{path}: invalid quaternion qw, qx, qy, qz ({error}). Copy the file again."
        ) from error


def _columns(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    try:
        from pyarrow import ArrowException, feather
    except ImportError as error:
        raise DataError(f"{path} needs pyarrow: pip install 'sparsight[parquet]'") from error
    try:
        table = feather.read_table(path, columns=list(names))
    except (OSError, ArrowException) as error:
        raise DataError(
            f"{path}: reading columns {', '.join(names)} failed ({str(error)[:200]}). Copy the file again."
        ) from error
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}. Copy the file again.")
    return {name: table[name].to_numpy() for name in names}
