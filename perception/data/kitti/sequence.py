"""A KITTI sequence as a data set: scans of one drive, labels with identities, poses and times.

Labels follow the readme of KITTI's tracking development kit. Poses are 3x4 matrices, one per line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from perception.data.camera import DONT_CARE, CameraCalibration, CameraObject
from perception.data.kitti.data_set import KittiDataSet
from perception.data.kitti.files import parse_object, read_calibration
from perception.data.kitti.folder import CAMERA_SCANS, WHOLE_SCANS, KittiFolder
from perception.data.projection import boxes_from_objects
from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.text import parse_number, read_rows, read_text
from perception.io.times import ScanTimes
from perception.types import Boxes3D

Value = TypeVar("Value")
_LABELS, _CALIBRATION, _POSES, _TIMES = "labels.txt", "calib.txt", "poses.txt", "timestamps.txt"


@dataclass(frozen=True, eq=False, kw_only=True)
class KittiSequenceFrame(Frame):
    """A scan with its labels.

    Attributes:
        camera: calibration of the sequence.
        rows: labels, including DontCare.
    """

    camera: CameraCalibration
    rows: tuple[CameraObject, ...]

    @cached_property
    def calibration(self) -> CameraCalibration:
        """The camera of the sequence."""
        return self.camera

    @cached_property
    def objects(self) -> list[CameraObject]:
        """The labels."""
        return list(self.rows)

    @cached_property
    def truth(self) -> Boxes3D:
        """The labels in the LiDAR frame, without DontCare."""
        return boxes_from_objects(self.rows, self.camera)


class KittiSequence(DataSet):
    """The frames of a folder with ``labels.txt``, ``calib.txt`` and numbered scans.

    ``poses.txt`` (world_from_lidar) and ``timestamps.txt`` (seconds), one line per frame, and ``image_2`` are
    optional.
    """

    kind = "KITTI sequence"
    layout = f"{_LABELS} and {CAMERA_SCANS}/ or {WHOLE_SCANS}/"
    classes = KittiDataSet.classes
    neighbours: ClassVar[Mapping[str, str]] = KittiDataSet.neighbours
    evaluation = KittiDataSet.evaluation
    has_sweeps: ClassVar[bool] = True

    @cached_property
    def _scans(self) -> dict[str, Path]:
        return KittiFolder(self.folder, self.scans).scans

    @cached_property
    def _camera(self) -> CameraCalibration:
        return read_calibration(self.folder / _CALIBRATION)

    @cached_property
    def _labels(self) -> dict[int, list[tuple[int, CameraObject]]]:
        """Identity and object of each label, by frame number."""
        path = self.folder / _LABELS
        found: dict[int, list[tuple[int, CameraObject]]] = {}
        for number, line in enumerate(read_text(path, "the labels of the sequence").splitlines(), 1):
            if not line.strip():
                continue
            place = f"{path}: line {number}"
            words = line.split()
            if len(words) < 2:
                raise DataError(f"{place}: too few fields. Write frame, track id and the fields of a label.")
            frame, track = (
                _whole(place, name, word) for name, word in zip(("frame", "track id"), words, strict=False)
            )
            found.setdefault(frame, []).append((track, parse_object(place, words[2:])))
        return found

    @cached_property
    def _poses(self) -> list[npt.NDArray[np.float64] | None] | None:
        path = self.folder / _POSES
        if not path.is_file():
            return None
        return [
            _pose(f"{path}: line {number}", text) for number, text in read_rows(path, "one pose per line")
        ]

    @cached_property
    def _times(self) -> ScanTimes | None:
        path = self.folder / _TIMES
        return ScanTimes(path) if path.is_file() else None

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True if labels and scans exist."""
        scans = any((folder / name).is_dir() for name in (CAMERA_SCANS, WHOLE_SCANS))
        return scans and (folder / _LABELS).is_file()

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return all scans; one without labels has no objects."""
        return self._scans

    def drive_of(self, frame_id: str) -> Sequence[str]:
        """Return all scans: a sequence is one drive."""
        return self._order

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self._scans, key=int)

    def frame(self, frame_id: str) -> KittiSequenceFrame:
        """Return the frame of a scan."""
        if frame_id not in self._scans:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        scan = self._scans[frame_id]
        number = _whole(str(scan), "name", frame_id)
        rows = self._labels.get(number, [])
        return KittiSequenceFrame(
            frame_id=frame_id,
            source=scan,
            labelled=True,
            calibrated=True,
            image=KittiFolder(self.folder).image(frame_id),
            track_ids=np.array([track for track, item in rows if item.type != DONT_CARE], np.int64),
            pose=_line(self._poses, number, self.folder / _POSES),
            time_ns=None if self._times is None else self._times.find(frame_id, number),
            camera=self._camera,
            rows=tuple(item for _, item in rows),
        )

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the sequence of a folder of scans, or None."""
        return scans.parent if cls.recognises(scans.parent) else None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> KittiSequenceFrame:
        """Return the frame of a scan in a sequence."""
        return opened.open(cls, folder, scan).frame(scan.stem)


def _line(values: list[Value | None] | None, number: int, path: Path) -> Value | None:
    if values is None:
        return None
    if number >= len(values):
        raise DataError(
            f"{path}: {len(values)} lines, none for frame {number}. Write one line per frame, from 0."
        )
    return values[number]


def _pose(place: str, text: str) -> npt.NDArray[np.float64] | None:
    """Parse (4, 4) world_from_lidar; None for an empty line."""
    words = text.split()
    if len(words) not in (0, 12):
        raise DataError(f"{place}: {len(words)} numbers. Write 12, a 3x4 matrix row by row.")
    numbers = [parse_number(place, _POSES, word) for word in words]
    return np.vstack([np.reshape(numbers, (3, 4)), [0, 0, 0, 1]]) if numbers else None


def _whole(place: str, name: str, word: str) -> int:
    number = parse_number(place, name, word)
    if not number.is_integer():
        raise DataError(f"{place}: {name} is {word[:40]!r}. Write a whole number.")
    return int(number)
