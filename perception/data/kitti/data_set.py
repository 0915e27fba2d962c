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
from perception.data.kitti.files import read_calibration, read_objects
from perception.data.kitti.folder import PARTS, WHOLE_SCANS, KittiFolder
from perception.data.projection import boxes_from_objects
from perception.data.types import UNLABELLED, DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.text import read_text
from perception.scans.finding import Finding, with_frames
from perception.types import Boxes3D


def check_files(files: KittiFolder) -> list[Finding]:
    """Find listed frames and labels without scan, scans without label, and labels without calibration."""
    findings = []
    for name, path in files.lists.items():
        listed = path.read_text(encoding="utf-8", errors="replace").split()
        missing = tuple(frame_id for frame_id in listed if frame_id not in files.scans)
        message = f"ImageSets/{name}.txt names {len(missing)} frames without a scan."
        fix = "Add the scans, or remove the frames from the list."
        findings.append(Finding("error", "files", message, fix, missing))
    findings = with_frames(*findings)
    findings += _check_labels(files) if files.labels_folder.is_dir() else [UNLABELLED]
    if not (files.scans or files.labels):
        message, fix = "The data set has no frames.", "Put one scan per frame into velodyne/."
        findings.append(Finding("error", "empty", message, fix))
    return findings


def _check_labels(files: KittiFolder) -> list[Finding]:
    scans, labels = files.scans.keys(), files.labels.keys()
    orphans, unlabelled = tuple(sorted(labels - scans)), tuple(sorted(scans - labels))
    both = sorted(scans & labels)
    uncalibrated = tuple(frame_id for frame_id in both if not files.path("calib", frame_id).is_file())
    return with_frames(
        Finding("warning", "files", f"{len(orphans)} label files have no scan of the same name.",
                "Add the scans, or delete these label files. Names must match up to the suffix.", orphans),
        Finding("warning", "files", f"{len(unlabelled)} scans have no label file of the same name.",
                "Label them, or add an empty .txt file if they show no object.", unlabelled),
        Finding("error", "calibration", f"{len(uncalibrated)} labelled frames have no calibration file to"
                " convert their boxes to the LiDAR frame.",
                "Add calib/<frame>.txt. Without a camera, write one with"
                " perception.data.kitti.write_calibration(path, CameraCalibration.default()), and create the"
                " labels with objects_from_boxes and the same calibration.", uncalibrated),
    )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class KittiFrame(Frame):
    """A scan, labels and calibration of the same name."""

    files: KittiFolder

    @classmethod
    def of(cls, files: KittiFolder, frame_id: str, scan: Path | None) -> KittiFrame:
        """Create a frame with the files that exist."""
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
        """Calibration of LiDAR and left colour camera."""
        return read_calibration(self.files.path("calib", self.frame_id))

    @cached_property
    def objects(self) -> list[CameraObject]:
        """Labels; empty in data sets without labels, an error if only this file is missing."""
        path = self.files.path("label_2", self.frame_id)
        return read_objects(path) if path.parent.is_dir() else []

    @cached_property
    def truth(self) -> Boxes3D:
        """Labels in the LiDAR frame, without DontCare."""
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
        """Files of the folder."""
        return KittiFolder(self.folder, self.scans)

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True if one of KITTI's folders exists."""
        return any((folder / part).is_dir() for part in PARTS)

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the frames that have a part, by file names."""
        files = self.files
        if part == "labels":
            if not files.labels_folder.is_dir():
                raise DataError(f"{files.labels_folder}: no such folder. Name a data set with labels.")
            return files.labels
        if not files.scans_folder.is_dir():
            raise DataError(
                f"{files.folder}: no {WHOLE_SCANS} folder. Put one scan per frame into {WHOLE_SCANS}/, or"
                " name the folder that contains training/."
            )
        return files.scans if part == "scan" else files.scans | files.labels

    def frame(self, frame_id: str) -> KittiFrame:
        """Return a frame that has a scan or labels."""
        if frame_id not in self.files.scans and frame_id not in self.files.labels:
            raise DataError(f"{self.files.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        return KittiFrame.of(self.files, frame_id, self.files.scans.get(frame_id))

    @property
    def splits(self) -> Sequence[str]:
        """Names of the lists in ``ImageSets``."""
        return sorted(self.files.lists)

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a list in ``ImageSets``."""
        if split not in self.splits:
            names = ", ".join(map(repr, self.splits))
            raise DataError(
                f"{self.files.list_path(split)}: no list for split {split!r}; lists: {names or 'none'}."
                " Write one frame id per line, or use all frames (--split all; in Python split=None)."
            )
        return read_text(self.files.lists[split], "one frame id per line").split()

    def check_files(self) -> list[Finding]:
        """Find frames and labels without scan, and scans without label or calibration."""
        return check_files(self.files)

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the folder with calibrations that holds a folder of scans, or None."""
        return scans.parent if KittiFolder(scans.parent).holds_calibrations else None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> KittiFrame | None:
        """Return the frame of a scan whose data set has a calibration for it, or None."""
        frame = KittiFrame.of(KittiFolder(folder), scan.stem, scan)
        return frame if frame.calibrated else None
