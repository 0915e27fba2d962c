"""nuScenes as a data set: key frames of the LiDAR, labels of the ten detection classes, poses, sweeps.

Frames have their origin at the sensor and the axes of the vehicle (x forward, y left, z up). Files use the
sensor's axes: x right, y forward, tilted by a few degrees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from perception.data.camera import CameraCalibration
from perception.data.nuscenes.classes import CLASSES
from perception.data.nuscenes.tables import CAMERA, LIDAR, Matrix, SensorReading, Tables, tables_of
from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.columns import Columns
from perception.io.point_cloud import load_point_cloud
from perception.io.raw import RawCloud
from perception.io.transform import ScanTransform
from perception.rigid_motion import moved_points
from perception.scans.sweeps import PastScan, merge_scans
from perception.types import Boxes3D, FloatArray, PointCloud

_VALIDATION = """
3 12 13 14 15 16 17 18 35 36 38 39 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110
221 268 269 270 271 272 273 274 275 276 277 278 329 330 331 332 344 345 346 519 520 521 522 523 524 552
553 554 555 556 557 558 559 560 561 562 563 564 565 625 626 627 629 630 632 633 634 635 636 637 638 770
771 775 777 778 780 781 782 783 784 794 795 796 797 798 799 800 802 904 905 906 907 908 909 910 911 912
913 914 915 916 917 919 920 921 922 923 924 925 926 927 928 929 930 931 962 963 966 967 968 969 971 972
1059 1060 1061 1062 1063 1064 1065 1066 1067 1068 1069 1070 1071 1072 1073
"""

VALIDATION = frozenset(f"scene-{int(number):04d}" for number in _VALIDATION.split())
#: Scenes by split of ``v1.0-mini``.
MINI = {
    "mini_train": frozenset(f"scene-{number:04d}" for number in (61, 553, 655, 757, 796, 1077, 1094, 1100)),
    "mini_val": frozenset({"scene-0103", "scene-0916"}),
}


_SUFFIX = ".pcd.bin"
_AS_STORED = ScanTransform(axes="x,y,z")


@dataclass(frozen=True, eq=False, kw_only=True)
class NuScenesFrame(Frame):
    """A key frame.

    Attributes:
        sample_token: token of the sample, as in result files.
        sensor_height_m: height of the LiDAR above the ground.
        parts: the scan and earlier sweeps: file, (4, 4) float64 frame_from_sensor in metres, and age in
            seconds.
        known: labels in the LiDAR frame.
        known_velocities: (M, 2) float32, m/s, axes of the frame; NaN if unknown.
        attributes: M names such as ``vehicle.parked``, or "".
        point_counts: (M,) int64 LiDAR and radar points inside each box, from the tables.
        camera: calibration of the front camera.
    """

    sample_token: str
    sensor_height_m: float
    parts: tuple[tuple[Path, Matrix, float], ...]
    known: Boxes3D
    known_velocities: FloatArray
    attributes: tuple[str, ...]
    point_counts: npt.NDArray[np.int64]
    camera: CameraCalibration | None

    @cached_property
    def cloud(self) -> PointCloud:
        """The scan, followed by the points of earlier sweeps if ``sweeps`` is not 0."""
        if self.sweeps == 0:
            return self.alone
        earlier = (
            PastScan(load_point_cloud(path, transform=_AS_STORED), change, age_s)
            for path, change, age_s in self.parts[1:]
        )
        return merge_scans(self.alone, earlier)

    @cached_property
    def alone(self) -> PointCloud:
        """The scan, without earlier sweeps."""
        path, change, _ = self.parts[0]
        return PointCloud(
            moved_points(load_point_cloud(path, transform=_AS_STORED).points, change),
            timestamp_ns=self.time_ns,
            source=str(self.source),
            sensor_height_m=self.sensor_height_m,
        )

    def stored(self, columns: Columns | None, transform: ScanTransform) -> tuple[RawCloud, float | None]:
        """Return the scan by its calibration; the arguments are ignored."""
        points = self.points
        return RawCloud(points[:, :3], points[:, 3]), self.sensor_height_m

    @cached_property
    def truth(self) -> Boxes3D:
        """Labels of the ten classes."""
        return self.known

    @cached_property
    def velocities(self) -> FloatArray:
        """(M, 2) float32, m/s."""
        return self.known_velocities

    @cached_property
    def calibration(self) -> CameraCalibration:
        """Front camera at the time of its picture."""
        return super().calibration if self.camera is None else self.camera


class NuScenesDataSet(DataSet):
    """The key frames of a folder with the tables of one version (``v1.0-mini`` …) and ``samples/LIDAR_TOP``.

    Frames are named by their scans, which sorts them by log and time. A split is an official one, one of
    ``splits.json`` next to the tables, or the name of a scene.
    """

    kind = "nuScenes"
    layout = "v1.0-*/sample.json"
    classes = CLASSES
    evaluation = "nuscenes"
    has_sweeps: ClassVar[bool] = True

    @cached_property
    def tables(self) -> Tables:
        """Tables of the data set."""
        return tables_of(_version(self.folder).resolve())

    @cached_property
    def _root(self) -> Path:
        return _version(self.folder).parent

    @cached_property
    def _frames(self) -> dict[str, str]:
        """Sample token by frame name."""
        found = {}
        for sample, channels in self.tables.key_sights.items():
            if LIDAR in channels:
                file = self.tables.sight(channels[LIDAR]).file
                found[_name(file)] = sample
        return found

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True if the tables exist."""
        return bool(_versions(folder))

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the frames with a scan, or all if only labels are needed."""
        if part == "labels" and not self.tables.labelled:
            raise DataError(f"{self.tables.folder}: this version has no labels. Use another version.")
        if part != "scan":
            return self._frames
        there = {_name(path.name) for path in (self._root / "samples" / LIDAR).glob(f"*{_SUFFIX}")}
        return [name for name in self._frames if name in there]

    def sample_token(self, frame_id: str) -> str:
        """Return the token of a frame's sample, as in tables and result files."""
        if frame_id not in self._frames:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        return self._frames[frame_id]

    def frame(self, frame_id: str) -> NuScenesFrame:
        """Return a key frame."""
        sample = self.sample_token(frame_id)
        sights = {name: self.tables.sight(token) for name, token in self.tables.key_sights[sample].items()}
        scan = sights[LIDAR]
        pose = _level(scan)
        inverse = np.linalg.inv(pose).astype(np.float64)
        labels = self.tables.labels(sample)
        centres = labels.centres @ inverse[:3, :3].T + inverse[:3, 3]
        headings = _turned(inverse[:3, :3], labels.rotations)
        boxes = np.column_stack([centres, labels.sizes, headings])
        image = self._root / sights[CAMERA].file if CAMERA in sights else None
        # The vehicle's origin is on the ground.
        height = float((np.linalg.inv(scan.global_from_ego) @ pose)[2, 3])
        return NuScenesFrame(
            frame_id=frame_id,
            source=self._root / scan.file,
            labelled=self.tables.labelled,
            calibrated=CAMERA in sights,
            image=image if image is not None and image.is_file() else None,
            track_ids=labels.instances,
            pose=pose,
            time_ns=scan.time_ns,
            sample_token=sample,
            sensor_height_m=height,
            parts=tuple(self._parts(scan, inverse)),
            known=Boxes3D(boxes.astype(np.float32), labels.classes),
            known_velocities=(labels.velocities @ inverse[:3, :3].T)[:, :2].astype(np.float32),
            attributes=tuple(labels.attributes),
            point_counts=labels.points,
            camera=_camera(sights[CAMERA], pose) if CAMERA in sights else None,
        )

    def _parts(self, scan: SensorReading, frame_from_global: Matrix) -> Iterable[tuple[Path, Matrix, float]]:
        """Yield the scan and earlier sweeps, as far as they are linked and exist."""
        sight: SensorReading | None = scan
        for number in range(self.sweeps + 1):
            if sight is None or not (number == 0 or (self._root / sight.file).is_file()):
                return
            age_s = (scan.time_ns - sight.time_ns) * 1e-9
            if age_s > self.max_age_s:
                return
            yield self._root / sight.file, frame_from_global @ sight.global_from_sensor, age_s
            sight = self.tables.sight(sight.before) if sight.before else None

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits and scenes."""
        return sorted(self._lists) + sorted(set(self.tables.scene_names.values()) - set(self._lists))

    @cached_property
    def _lists(self) -> dict[str, frozenset[str]]:
        """Existing scenes by split."""
        here = frozenset(self.tables.scene_names.values())
        lists = {"train": here - VALIDATION, "val": here & VALIDATION, **MINI}
        path = self.tables.folder / "splits.json"
        if path.is_file():
            try:
                own = json.loads(path.read_bytes())
                lists |= {str(name): frozenset(map(str, scenes)) for name, scenes in own.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise DataError(
                    f"{path}: not lists of scenes by split ({error}). Correct the file."
                ) from error
        return {name: scenes & here for name, scenes in lists.items() if scenes & here}

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a split or a scene."""
        names = self.tables.scene_names
        scenes = self._lists.get(split, frozenset({split}) & frozenset(names.values()))
        if not scenes:
            raise DataError(
                f"{self.tables.folder}: no split {split!r}. Choose one of: {', '.join(self.splits[:9])}"
                f"{', ...' if len(self.splits) > 9 else ''}"
            )
        samples = self.tables.samples
        rows = self.tables.sample_rows
        return sorted(
            name
            for name, sample in self._frames.items()
            if names.get(samples[rows[sample]]["scene_token"]) in scenes
        )

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the folder with tables above ``samples/LIDAR_TOP``, or None."""
        inside = scans.parts[-2:] == ("samples", LIDAR) and _versions(scans.parents[1])
        return scans.parents[1] if inside else None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> NuScenesFrame | None:
        """Return the key frame of a file in ``samples/LIDAR_TOP``, or None."""
        if not scan.name.endswith(_SUFFIX):
            return None
        data_set = opened.open(cls, folder, scan, having="scan or labels")
        name = scan.name.removesuffix(_SUFFIX)
        return data_set.frame(name) if name in data_set._frames else None


def _versions(folder: Path) -> list[Path]:
    if (folder / "sample.json").is_file() and (folder / "sample_data.json").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("v1.0-*/sample.json"))


def _version(folder: Path) -> Path:
    found = _versions(folder)
    if len(found) > 1:
        raise DataError(
            f"{folder}: tables of several versions: {', '.join(path.name for path in found)}. Name one, such"
            f" as {folder / found[0].name}."
        )
    return found[0]


def _name(file: str) -> str:
    return Path(file).name.removesuffix(_SUFFIX)


def _level(scan: SensorReading) -> Matrix:
    """Return (4, 4) global_from_frame of a scan."""
    pose: Matrix = scan.global_from_ego.copy()
    pose[:3, 3] = scan.global_from_sensor[:3, 3]
    return pose


def _turned(turn: Matrix, rotations: Matrix) -> Matrix:
    """Return (M,) headings in radians of turned quaternions x, y, z, w (M, 4)."""
    if not len(rotations):
        return np.zeros(0)
    forward = (Rotation.from_matrix(turn) * Rotation.from_quat(rotations)).as_matrix()[:, :, 0]
    headings: Matrix = np.arctan2(forward[:, 1], forward[:, 0])
    return headings


def _camera(picture: SensorReading, pose: Matrix) -> CameraCalibration:
    """Return the calibration of the camera at the time of its picture, from the frame of the scan."""
    assert picture.intrinsics is not None
    return CameraCalibration(
        image_from_camera=np.column_stack([picture.intrinsics, np.zeros(3)]),
        rectification=np.eye(3),
        camera_from_lidar_raw=(np.linalg.inv(picture.global_from_sensor) @ pose)[:3],
    )
