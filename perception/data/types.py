"""The protocol of a data set: all that training, evaluation and the doctor know of the frames they read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, overload

import numpy as np
import numpy.typing as npt

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.images import assumed_image_size, read_image_size
from perception.errors import DataError
from perception.io.columns import Columns
from perception.io.point_cloud import load_point_cloud, read_raw_cloud, transform_of_name
from perception.io.raw import RawCloud, apply_transform
from perception.io.transform import ScanTransform
from perception.scans.finding import Finding
from perception.types import Boxes3D, FloatArray, PointCloud

#: What a frame can have.
Part = Literal["scan", "labels", "scan or labels"]
#: Splits that must not share frames; others (``trainval``) may hold those of several.
SEPARATE_SPLITS = ("train", "val", "test")
UNLABELLED = Finding(
    "info",
    "labels",
    "There is no label_2 folder: only the scans were checked.",
    "Nothing to do for detection; for training add label_2 and calib, one .txt a frame.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """One moment of a data set.

    Scan, labels and calibration are read when they are first asked for, and then kept; ``DataError`` names a
    file that is missing or damaged. A kind of data set with labels overrides ``truth``, and what else it has.

    Attributes:
        frame_id: name of the frame in its data set.
        source: file of the scan; None where the frame has labels only.
        labelled: it has labels, if only to say that nothing is there.
        calibrated: it has a camera calibration.
        image: the picture of that camera.
        track_ids: (M,) int64, the same for an object in all frames of a sequence.
        pose: (4, 4) float64 world_from_lidar, metres.
        time_ns: time of the scan in nanoseconds since the epoch.
        columns: of the scan's file, where they are not recognised.
        transform: what makes of the scan's file one in metres, x forward, y left, z up.
        skipped: why an entry of the labels is not among the boxes, one sentence for each such entry.
    """

    frame_id: str
    source: Path | None
    labelled: bool = False
    calibrated: bool = False
    image: Path | None = None
    track_ids: npt.NDArray[np.int64] | None = None
    pose: npt.NDArray[np.float64] | None = None
    time_ns: int | None = None
    columns: Columns | None = None
    transform: ScanTransform = field(default_factory=ScanTransform)
    skipped: tuple[str, ...] = ()

    @cached_property
    def cloud(self) -> PointCloud:
        """The scan in the LiDAR frame."""
        if self.source is None:
            raise DataError(f"no scan for frame {self.frame_id!r}; add it, or take the frame out of the list")
        return load_point_cloud(self.source, columns=self.columns, transform=self.transform)

    def stored(self, columns: Columns | None, transform: ScanTransform) -> tuple[RawCloud, float | None]:
        """The scan in the LiDAR frame with intensity in the file's own range, and the height of its sensor.

        Args:
            columns, transform: as somebody says that the file is to be read, beyond what the data set says.
        """
        if self.source is None:
            raise DataError(f"no scan for frame {self.frame_id!r}; add it, or take the frame out of the list")
        whole, _ = transform_of_name(self.source, self.transform.then(transform))
        raw = apply_transform(read_raw_cloud(self.source, columns=columns or self.columns), whole)
        return raw, whole.sensor_height_m

    @cached_property
    def truth(self) -> Boxes3D:
        """The labelled boxes in the LiDAR frame."""
        return Boxes3D(np.zeros((0, 7), np.float32), [])

    @cached_property
    def velocities(self) -> FloatArray | None:
        """(M, 2) float32: of the labelled boxes, m/s along x and y of the LiDAR frame, over the ground.

        NaN where a box has none; None where the data set has none.
        """
        return None

    @cached_property
    def calibration(self) -> CameraCalibration:
        """The camera that ``objects`` are seen by."""
        raise DataError(f"frame {self.frame_id!r} has no camera calibration")

    @cached_property
    def objects(self) -> list[CameraObject]:
        """The labels as a camera sees them: what the KITTI evaluation counts and excuses by.

        Each says how far it is hidden or cut off; regions that were not labelled are ``DONT_CARE``.
        """
        return []

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the camera's picture in pixels; without one, as the calibration suggests."""
        return assumed_image_size(self.calibration) if self.image is None else read_image_size(self.image)

    @property
    def points(self) -> FloatArray:
        """(N, 4) float32: x, y, z in metres in the LiDAR frame, intensity in [0, 1]."""
        return self.cloud.points

    @property
    def boxes(self) -> FloatArray:
        """(M, 7) float32: the labelled boxes, see ``perception.types``."""
        return self.truth.boxes

    @property
    def labels(self) -> list[str]:
        """M class names."""
        return self.truth.labels


class DataSet(Sequence[Frame]):
    """Frames of one folder, in order; each is made when it is asked for and not kept.

    A kind of data set is a class that derives from this one; arguments and errors are those of
    :func:`~perception.data.open_data_set`.

    Attributes:
        kind: what the layout is called.
        layout: what makes a folder one of this kind, in words.
        classes: class names that its labels use.
        neighbours: class to the class that looks like it: in training and evaluation neither a find nor a
            false alarm.
        evaluation: the protocol that judges detections on it; None without labels.
        has_sweeps: scans between the frames can be added to them.
        sweeps: how many earlier ones each frame gets.
        frame_ids: names of the frames.
    """

    kind: ClassVar[str]
    layout: ClassVar[str]
    classes: tuple[str, ...] = ()
    neighbours: ClassVar[Mapping[str, str]] = {}
    evaluation: ClassVar[Literal["kitti", "nuscenes", "boxes"] | None] = None
    has_sweeps: ClassVar[bool] = False

    def __init__(
        self, folder: Path, split: str | None, having: Part, scans: str | None, sweeps: int = 0
    ) -> None:
        self.folder, self.scans, self.sweeps = folder, scans, sweeps
        there = set(self.frames_having(having))
        self.frame_ids = sorted(there) if split is None else self.split_ids(split)
        missing = [frame_id for frame_id in self.frame_ids if frame_id not in there]
        if missing:
            raise DataError(
                f"{folder}: no {having} for {len(missing)} of {len(self.frame_ids)} frames"
                f" ({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''});"
                " add them or take them out of the list of the split"
            )
        if not self.frame_ids and having != "scan or labels":
            raise DataError(f"{folder}: no frames; put one {having} file a frame there")

    def __len__(self) -> int:
        return len(self.frame_ids)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        if isinstance(index, slice):
            return [self.frame(frame_id) for frame_id in self.frame_ids[index]]
        return self.frame(self.frame_ids[index])

    @classmethod
    @abstractmethod
    def recognises(cls, folder: Path) -> bool:
        """Whether a folder looks like one of this kind."""

    @abstractmethod
    def frames_having(self, part: Part) -> Iterable[str]:
        """Names of the frames that have a part."""

    @abstractmethod
    def frame(self, frame_id: str) -> Frame:
        """One frame by its name; ``DataError`` where it is unknown."""

    @property
    def splits(self) -> Sequence[str]:
        """Names of the lists of frames."""
        return ()

    def split_ids(self, split: str) -> list[str]:
        """The frames of a split, in its order; ``DataError`` where there is none, with those that are."""
        raise DataError(f"{self.folder}: a {self.kind} has no splits such as {split!r}; take all frames")

    def check_files(self) -> list[Finding]:
        """What is wrong with the files as such: missing, without counterpart, no labels at all."""
        return [] if any(frame.labelled for frame in self) else [UNLABELLED]

    @classmethod
    def frame_beside(cls, scan: Path) -> Frame | None:
        """The frame of a scan that lies in a data set of this kind; None where it lies in none."""
        return None
