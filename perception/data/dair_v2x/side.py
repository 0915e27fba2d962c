"""One side of DAIR-V2X as a data set: the scans of the vehicle or of the roadside post.

Labels cover only what the side's camera sees, although the vehicle's LiDAR looks all around.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from perception.data.camera import CameraCalibration
from perception.data.dair_v2x.files import INFO, PAIRS, ROADSIDE, SCANS, VEHICLE, SideFiles
from perception.data.own.check import check_files
from perception.data.own.labels import WrittenLabels, without_nameless
from perception.data.projection import in_image
from perception.data.types import DataSet, Frame, OpenDataSets, Part
from perception.errors import DataError
from perception.io.text import read_text
from perception.io.transform import ScanTransform
from perception.scans.finding import Finding
from perception.types import Boxes3D

#: Folder of lists of frames, which perceive init writes.
SPLITS = "splits"
#: Height of the vehicle's LiDAR above the road, measured on 46 scans. The virtual LiDAR of the post is as
#: high as the sensor of the training data of the weights.
_VEHICLE_HEIGHT_M = 1.96
_VIEW = Finding(
    "info",
    "view",
    "Only objects in the camera's picture are labelled. Training crops scans to it, and evaluation counts"
    " boxes only if their centre is in it.",
    "Nothing to do.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SideFrame(Frame):
    """A scan of one side.

    Attributes:
        files: files of the side.
        written: labels without boxes that have no volume, or the error of reading them; None without labels.
    """

    files: SideFiles
    written: WrittenLabels | DataError | None

    @cached_property
    def truth(self) -> Boxes3D:
        """Labels in the LiDAR frame."""
        if isinstance(self.written, DataError):
            raise self.written
        if self.written is None:
            return super().truth
        return Boxes3D(self.written.boxes.astype(np.float32), self.written.names)

    @cached_property
    def calibration(self) -> CameraCalibration:
        """Camera of the side."""
        return self.files.calibration(self.frame_id) if self.calibrated else super().calibration

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        return self.files.image_size(self.frame_id)

    def covered(self, positions: npt.ArrayLike) -> npt.NDArray[np.bool_] | None:
        """Return which positions the camera sees; None without a calibration."""
        return in_image(positions, self.calibration, self.image_size) if self.calibrated else None


class DairV2xSide(DataSet):
    """The frames of ``vehicle-side`` or ``infrastructure-side``, named by their scans."""

    kind = "DAIR-V2X side"
    layout = f"{INFO}, {SCANS}/ and calib/lidar_to_camera/ or calib/virtuallidar_to_camera/"
    classes = (
        "Car", "Van", "Truck", "Bus", "Pedestrian", "Cyclist", "Tricyclist", "Motorcyclist", "Barrowlist",
        "Trafficcone",
    )  # fmt: skip
    neighbours: ClassVar[Mapping[str, str]] = {"Car": "Van", "Cyclist": "Motorcyclist"}
    evaluation = "boxes"
    has_sweeps: ClassVar[bool] = True

    @cached_property
    def files(self) -> SideFiles:
        """Files of the side."""
        found = SideFiles.found(self.folder)
        if found is None:
            names = f"{VEHICLE.folder}, {ROADSIDE.folder} or {PAIRS}"
            raise DataError(f"{self.folder}: several data sets. Name one of its folders: {names}.")
        return found

    @classmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True for the folder of a side, and for the folder of both."""
        both = all((folder / names.folder / INFO).is_file() for names in (VEHICLE, ROADSIDE))
        return both or SideFiles.found(folder) is not None

    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the frames that have a part, by file names."""
        if part == "scan":
            return self.files.scans
        if part == "labels" and not self.files.labelled:
            raise DataError(f"{self.files.labels.path}: no labels. Name a data set with labels.")
        return self.files.labelled if part == "labels" else {*self.files.scans, *self.files.labelled}

    def drive_of(self, frame_id: str) -> Sequence[str]:
        """Return all scans of the side; times tell gaps between drives."""
        return self._order

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self.files.scans)

    def frame(self, frame_id: str) -> SideFrame:
        """Return a frame that has a scan or labels."""
        files, labelled = self.files, frame_id in self.files.labelled
        if frame_id not in files.scans and not labelled:
            raise DataError(f"{self.folder}: no scan for frame {frame_id!r}. Check the frame id.")
        height_m = _VEHICLE_HEIGHT_M if files.names is VEHICLE else None
        written = _read_labels(files, frame_id) if labelled else None
        return SideFrame(
            frame_id=frame_id,
            source=files.scans.get(frame_id),
            labelled=labelled,
            calibrated=files.calibrated(frame_id),
            image=files.image(frame_id),
            pose=files.pose(frame_id),
            time_ns=files.times_ns.get(frame_id),
            transform=ScanTransform(sensor_height_m=height_m),
            skipped=written.skipped if isinstance(written, WrittenLabels) else (),
            files=files,
            written=written,
        )

    @cached_property
    def _lists(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted((self.folder / SPLITS).glob("*.txt"))}

    @property
    def splits(self) -> Sequence[str]:
        """Names of the lists in ``splits``."""
        return list(self._lists)

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a list in ``splits``."""
        if split not in self._lists:
            names = ", ".join(self._lists) or "none"
            raise DataError(
                f"{self.folder / SPLITS}: no list for split {split!r}; lists: {names}."
                f" Run `perceive init {self.folder}` to write lists, or use all frames (--split all; in"
                " Python split=None)."
            )
        return read_text(self._lists[split], "one frame id per line").split()

    def check_files(self) -> list[Finding]:
        """Find labels and listed frames without scan, scans without labels, and splits that share frames."""
        lists = {split: self.split_ids(split) for split in self.splits}
        return [*check_files(self.files.scans, self.files.labelled, lists), _VIEW]

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the folder of a side that holds a folder of scans, or None."""
        inside = scans.name == SCANS and SideFiles.found(scans.parent) is not None
        return scans.parent if inside else None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> SideFrame | None:
        """Return the frame of a scan in the folder of a side, or None."""
        scan = scan.resolve()
        data_set = opened.open(cls, folder, scan, having="scan or labels")
        return data_set.frame(scan.stem) if data_set.files.scans.get(scan.stem) == scan else None


def _read_labels(files: SideFiles, frame_id: str) -> WrittenLabels | DataError:
    try:
        return without_nameless(files.labels.read(frame_id))
    except DataError as error:
        # The scan is still usable; access to the boxes raises the error.
        return error
