"""KITTI object data as a data set.

File formats: the KITTI object development kit's readme (Geiger et al., CVPR 2012).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.kitti.check import check_files
from perception.data.kitti.files import read_calibration, read_objects
from perception.data.kitti.folder import PARTS, WHOLE_SCANS, KittiFolder
from perception.data.projection import boxes_from_objects
from perception.data.types import DataSet, Frame, Part
from perception.errors import DataError
from perception.io.text import read_text
from perception.scans.finding import Finding
from perception.types import Boxes3D


@dataclass(frozen=True, eq=False, kw_only=True)
class KittiFrame(Frame):
    """A scan, labels and calibration of the same name."""

    files: KittiFolder

    @classmethod
    def of(cls, files: KittiFolder, frame_id: str, scan: Path | None) -> KittiFrame:
        """The frame with what is there of it."""
        return cls(
            frame_id=frame_id,
            source=scan,
            labelled=files.path("label_2", frame_id).is_file(),
            calibrated=files.path("calib", frame_id).is_file(),
            image=files.image(frame_id),
            files=files,
        )

    @cached_property
    def calibration(self) -> CameraCalibration:
        """LiDAR and left colour camera."""
        return read_calibration(self.files.path("calib", self.frame_id))

    @cached_property
    def objects(self) -> list[CameraObject]:
        """The labels: none where no frame has any, an error where the file of this one is missing."""
        path = self.files.path("label_2", self.frame_id)
        return read_objects(path) if path.parent.is_dir() else []

    @cached_property
    def truth(self) -> Boxes3D:
        """The labels in the LiDAR frame, without DontCare."""
        return boxes_from_objects(self.objects, self.calibration) if self.objects else super().truth


class KittiDataSet(DataSet):
    """The frames of a KITTI object folder: the one that holds ``training/``, or ``training`` itself."""

    kind = "KITTI object"
    layout = "training/, velodyne/ or label_2/"
    classes = ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc")
    neighbours: ClassVar[Mapping[str, str]] = {"Car": "Van", "Pedestrian": "Person_sitting"}
    evaluation = "kitti"

    @cached_property
    def files(self) -> KittiFolder:
        """Where they lie."""
        return KittiFolder(self.folder, self.scans)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """One of KITTI's folders is there."""
        return any((folder / part).is_dir() for part in PARTS)

    def frames_having(self, part: Part) -> Iterable[str]:
        """By the names of the files."""
        files = self.files
        if part == "labels":
            if not files.labels_folder.is_dir():
                raise DataError(f"{files.labels_folder}: no such folder; name the folder with the labels")
            return files.labels
        if not files.scans_folder.is_dir():
            raise DataError(
                f"{files.folder}: no {WHOLE_SCANS} folder; put the scans into {WHOLE_SCANS}/, one a frame,"
                " or name the folder that holds training/"
            )
        return files.scans if part == "scan" else files.scans | files.labels

    def frame(self, frame_id: str) -> KittiFrame:
        """A frame that has a scan or labels."""
        if frame_id not in self.files.scans and frame_id not in self.files.labels:
            raise DataError(f"{self.files.folder}: no scan for frame {frame_id!r}; check the frame id")
        return KittiFrame.of(self.files, frame_id, self.files.scans.get(frame_id))

    @property
    def splits(self) -> Sequence[str]:
        """The names of the lists of ``ImageSets``."""
        return sorted(self.files.lists)

    def split_ids(self, split: str) -> list[str]:
        """A list of ``ImageSets``."""
        if split not in self.splits:
            names = ", ".join(map(repr, self.splits))
            there = f"there are {names}" if names else "there is no other list"
            raise DataError(
                f"{self.files.list_path(split)}: no list of the frames of split {split!r}; {there};"
                " write one frame id a line, or take all frames (--split all; in Python split=None)"
            )
        return read_text(self.files.lists[split], "one frame id a line").split()

    def check_files(self) -> list[Finding]:
        """Listed frames without scan, labels without scan, scans without label or calibration."""
        return check_files(self.files)

    @classmethod
    def frame_beside(cls, scan: Path) -> KittiFrame | None:
        """The frame of the folder that holds the folder of the scan; it must have a calibration."""
        files = KittiFolder(scan.resolve().parent.parent)
        frame = KittiFrame.of(files, scan.stem, scan)
        return frame if files.folder == files.root and frame.calibrated else None
