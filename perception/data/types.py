"""The protocol of data sets, which training, evaluation and the doctor use."""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import Self

from perception.data.camera import CameraCalibration, CameraObject
from perception.data.drives import DrivePlace, past_scans, track_velocities
from perception.data.images import assumed_image_size, read_image_size
from perception.errors import DataError
from perception.io.columns import Columns
from perception.io.point_cloud import load_point_cloud, read_raw_cloud, transform_of_name
from perception.io.raw import RawCloud, apply_transform
from perception.io.transform import ScanTransform
from perception.scans.finding import Finding
from perception.scans.sweeps import merge_scans
from perception.types import Boxes3D, FloatArray, PointCloud

#: Parts of a frame.
Part = Literal["scan", "labels", "scan or labels"]
#: Splits that must not share frames; others, such as ``trainval``, may combine them.
SEPARATE_SPLITS = ("train", "val", "test")
UNLABELLED = Finding(
    "info",
    "labels",
    "There is no label_2 folder, so only the scans were checked.",
    "For detection, do nothing. For training, add labels: label_2 and calib in KITTI's format, or another"
    " format that `perceive init` recognises.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """One frame of a data set.

    Scan, labels and calibration are read on first access and cached; ``DataError`` names a missing or damaged
    file. Kinds of data sets override ``truth`` and other properties.

    Attributes:
        frame_id: name of the frame in its data set.
        source: file of the scan; None if the frame has labels only.
        labelled: True if it has labels, even if they are empty.
        calibrated: True if it has a camera calibration.
        image: picture of the camera.
        track_ids: (M,) int64 identities, the same for an object in all frames of a sequence.
        pose: (4, 4) float64 world_from_lidar, metres.
        time_ns: time of the scan, nanoseconds since the epoch.
        columns: columns of the scan's file, if not recognised.
        transform: conversion of the scan's file to metres, x forward, y left, z up.
        skipped: a reason for each label entry that is not among the boxes.
        sweeps: number of past scans that ``cloud`` may hold; 0: the scan alone, without ages.
        drive: gives the frames of the drive around this one, nearest first; None: no other frames.
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
    sweeps: int = 0
    drive: DrivePlace | None = None

    @cached_property
    def cloud(self) -> PointCloud:
        """The scan in the LiDAR frame, with the points of past scans if ``sweeps`` is not 0."""
        if self.sweeps == 0:
            return self.alone
        if self.drive is None:
            return merge_scans(self.alone, ())
        return merge_scans(self.drive.frame.alone, past_scans(self, self.drive.past()))

    @cached_property
    def alone(self) -> PointCloud:
        """The scan in the LiDAR frame, without past scans."""
        if self.source is None:
            raise DataError(f"no scan for frame {self.frame_id!r}; add it, or take the frame out of the list")
        return load_point_cloud(self.source, columns=self.columns, transform=self.transform)

    def stored(self, columns: Columns | None, transform: ScanTransform) -> tuple[RawCloud, float | None]:
        """Return the scan in the LiDAR frame with unscaled intensity, and its sensor height.

        Args:
            columns, transform: corrections to those of the data set.
        """
        if self.source is None:
            raise DataError(f"no scan for frame {self.frame_id!r}; add it, or take the frame out of the list")
        whole, _ = transform_of_name(self.source, self.transform.then(transform))
        raw = apply_transform(read_raw_cloud(self.source, columns=columns or self.columns), whole)
        return raw, whole.sensor_height_m

    @cached_property
    def truth(self) -> Boxes3D:
        """Labelled boxes in the LiDAR frame."""
        return Boxes3D(np.zeros((0, 7), np.float32), [])

    @cached_property
    def velocities(self) -> FloatArray | None:
        """(M, 2) float32 velocities of the labelled boxes over the ground, m/s in the LiDAR frame.

        From the tracks of a drive with poses. NaN for boxes of unknown velocity; None without tracks.
        """
        if self.drive is None or self.pose is None or self.track_ids is None:
            return None
        return track_velocities(self, self.drive.before(), self.drive.after())

    @cached_property
    def calibration(self) -> CameraCalibration:
        """Calibration of the camera of ``objects``."""
        raise DataError(f"frame {self.frame_id!r} has no camera calibration. Add it to the data set.")

    @cached_property
    def objects(self) -> list[CameraObject]:
        """Labels in the camera image, with occlusion and truncation, for the KITTI protocol.

        Unlabelled regions are ``DONT_CARE``.
        """
        return []

    @cached_property
    def image_size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels; guessed from the calibration if missing."""
        return assumed_image_size(self.calibration) if self.image is None else read_image_size(self.image)

    def covered(self, positions: npt.ArrayLike) -> npt.NDArray[np.bool_] | None:
        """Return which positions the labels cover; None if they cover the whole scan.

        Training and evaluation ignore the rest.

        Args:
            positions: (M, 3 or more) x, y, z first, metres in the LiDAR frame.

        Returns:
            (M,) bool, or None.
        """
        return None

    @property
    def points(self) -> FloatArray:
        """(N, 4) float32 x, y, z in metres in the LiDAR frame, and intensity in [0, 1]."""
        return self.cloud.points

    @property
    def boxes(self) -> FloatArray:
        """(M, 7) float32 labelled boxes, see ``perception.types``."""
        return self.truth.boxes

    @property
    def labels(self) -> list[str]:
        """M class names."""
        return self.truth.labels


class DataSet(Sequence[Frame]):
    """Frames of one folder, in order; each access creates a new frame.

    Each kind of data set is a subclass. Arguments and errors are those of
    :func:`~perception.data.open_data_set`.

    Attributes:
        kind: name of the kind.
        layout: files that identify the kind, for messages.
        classes: class names of its labels.
        neighbours: similar class by class; training and evaluation ignore detections of it.
        evaluation: protocol for evaluation; None without labels.
        headings: False if labels have no headings; evaluation then compares boxes along the axes.
        has_sweeps: True if earlier scans can be merged into frames.
        sweeps: number of earlier scans per frame.
        max_age_s: earlier scans older than this are left out.
        frame_ids: names of the frames.
    """

    kind: ClassVar[str]
    layout: ClassVar[str]
    classes: tuple[str, ...] = ()
    neighbours: ClassVar[Mapping[str, str]] = {}
    evaluation: ClassVar[Literal["kitti", "nuscenes", "boxes"] | None] = None
    headings: bool = True
    has_sweeps: ClassVar[bool] = False
    max_age_s: float = math.inf

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
                f" ({', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''})."
                " Add them, or remove the frames from the list of the split."
            )
        if not self.frame_ids and having != "scan or labels":
            raise DataError(f"{folder}: no frames. Add one file with the {having} of each frame.")

    def __len__(self) -> int:
        return len(self.frame_ids)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        if isinstance(index, slice):
            return [self._in_drive(frame_id) for frame_id in self.frame_ids[index]]
        return self._in_drive(self.frame_ids[index])

    def _in_drive(self, frame_id: str) -> Frame:
        frame, names = self.frame(frame_id), self.drive_of(frame_id)
        if frame_id not in names:
            return replace(frame, sweeps=self.sweeps) if self.sweeps else frame
        if self.sweeps:
            frame = self._recent(frame_id)
        find = self._recent if self.sweeps else self.frame
        place = DrivePlace(frame, find, names, names.index(frame_id), self.sweeps, self.max_age_s)
        return replace(frame, sweeps=self.sweeps, drive=place)

    def _recent(self, frame_id: str) -> Frame:
        """Return a frame; the latest ones are kept, so that a drive in order reads each scan once."""
        kept: dict[str, Frame] = self.__dict__.setdefault("_kept", {})
        frame = kept.pop(frame_id, None) or self.frame(frame_id)
        kept[frame_id] = frame
        # Twice as many as a frame needs, because the next frame asks for them in another order.
        while len(kept) > 2 * (self.sweeps + 1):
            kept.pop(next(iter(kept)))
        return frame

    def with_sweeps(self, sweeps: int, max_age_s: float = math.inf) -> Self:
        """Return the data set with up to ``sweeps`` earlier scans merged into each frame.

        Kinds without ``has_sweeps`` stay as they are: their frames are single scans.
        """
        if not self.has_sweeps or (sweeps, max_age_s) == (self.sweeps, self.max_age_s):
            return self
        changed = copy.copy(self)
        changed.sweeps, changed.max_age_s = sweeps, max_age_s
        changed.__dict__.pop("_kept", None)
        return changed

    def drive_of(self, frame_id: str) -> Sequence[str]:
        """Return the names of the frames of a frame's drive in the order of time; empty if none are known."""
        return ()

    @classmethod
    @abstractmethod
    def recognises(cls, folder: Path) -> bool:
        """Return True if a folder looks like this kind."""

    @abstractmethod
    def frames_having(self, part: Part) -> Iterable[str]:
        """Return the names of the frames that have a part."""

    @abstractmethod
    def frame(self, frame_id: str) -> Frame:
        """Return a frame by name; raise ``DataError`` if it is unknown."""

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits."""
        return ()

    def split_ids(self, split: str) -> list[str]:
        """Return the frames of a split, in order; raise ``DataError`` if it is unknown."""
        raise DataError(
            f"{self.folder}: {self.kind} data has no split {split!r}. Use all frames (--split all; in Python"
            " split=None)."
        )

    def check_files(self) -> list[Finding]:
        """Find missing files, files without counterpart, and missing labels."""
        return [] if any(frame.labelled for frame in self) else [UNLABELLED]

    @classmethod
    def folder_above(cls, scans: Path) -> Path | None:
        """Return the folder of the data set of this kind that holds a resolved folder of scans, or None."""
        return None

    @classmethod
    def frame_beside(cls, folder: Path, scan: Path, opened: OpenDataSets) -> Frame | None:
        """Return the frame of a scan, or None.

        Args:
            folder: result of :meth:`folder_above` for the folder of the scan.
            scan: file of the scan.
            opened: opens the data set.
        """
        return None


_Kind = TypeVar("_Kind", bound=DataSet)


class _Opened(NamedTuple):
    """A data set, when it was opened, and when the folder of the scan had changed before."""

    data_set: DataSet
    opened_ns: int
    changed_ns: int


class OpenDataSets:
    """Data sets that stay open between scans, so that their tables and folders are not read for each scan.

    A data set is opened again after a file was added to the folder of the scan. Changes of other files, such
    as labels or the description of a data set, may not be noticed.
    """

    #: Data sets that stay open.
    _MOST = 4
    #: A folder may change again within this time and keep its time of change.
    _CLOCK_NS = 10**9

    def __init__(self) -> None:
        self._opened: dict[tuple[type[DataSet], Path, Path], _Opened] = {}
        self._above: dict[Path, list[tuple[type[DataSet], Path]]] = {}

    def above(self, scan: Path, kinds: Sequence[type[DataSet]]) -> list[tuple[type[DataSet], Path]]:
        """Return the kinds and folders of the data sets that hold the folder of a scan, in order."""
        scans = scan.resolve().parent if scan.is_symlink() else scan.parent
        if scans not in self._above:
            found = [(kind, kind.folder_above(scans.resolve())) for kind in kinds]
            self._above[scans] = [(kind, folder) for kind, folder in found if folder is not None]
        return self._above[scans]

    def open(self, kind: type[_Kind], folder: Path, scan: Path, *, having: Part = "scan") -> _Kind:
        """Return the data set in a folder.

        Args:
            kind: of the data set.
            folder: of the data set.
            scan: a scan in it, or a file next to its scans.
            having: what each frame must have.
        """
        key = (kind, folder, scan.parent)
        changed_ns = scan.parent.stat().st_mtime_ns
        known = self._opened.pop(key, None)
        if known is None or known.changed_ns != changed_ns or known.opened_ns < changed_ns + self._CLOCK_NS:
            known = _Opened(kind(folder, None, having, None), time.time_ns(), changed_ns)
        self._opened[key] = known
        while len(self._opened) > self._MOST:
            self._opened.pop(next(iter(self._opened)))
        assert isinstance(known.data_set, kind)
        return known.data_set
