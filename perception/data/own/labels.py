"""Labels as written by a tool, and their conversion to the LiDAR frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.boxes import along_axes, wrap_angle
from perception.data.own.description import LabelPart
from perception.errors import DataError
from perception.io.transform import ScanTransform
from perception.types import Boxes3D

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WrittenLabels:
    """The labels of one frame as written.

    Attributes:
        boxes: (M, 7) float64 x, y, z, length along the heading, width, height, heading, in the scan's unit
            and axes. The heading turns about the scan's vertical axis by the right-hand rule, from x, or from
            y if x is vertical. About z it is yaw, about y it is KITTI's ``rotation_y``.
        names: M class names.
        track_ids: (M,) int64 identities, the same for an object in all frames, or None.
        pose: (4, 4) float64 world_from_lidar in metres, or None.
        time_ns: time of the scan, or None.
        skipped: a reason for each entry that is not among the boxes.
    """

    boxes: Array
    names: list[str]
    track_ids: npt.NDArray[np.int64] | None = None
    pose: Array | None = None
    time_ns: int | None = None
    skipped: tuple[str, ...] = ()


#: Why a label without a class name is skipped.
EMPTY_CLASS = "the class is empty"


def without_nameless(written: WrittenLabels) -> WrittenLabels:
    """Return the labels whose class has a name; the others are counted as skipped."""
    kept = np.array([bool(name) for name in written.names], bool)
    if kept.all():
        return written
    return replace(
        written,
        boxes=written.boxes[kept],
        names=[name for name in written.names if name],
        track_ids=None if written.track_ids is None else written.track_ids[kept],
        skipped=(*written.skipped, *[EMPTY_CLASS] * int((~kept).sum())),
    )


class LabelFormat(ABC):
    """Labels of a folder or file in the format of a tool.

    Args:
        path: folder or file.
        vertical: index of the scans' vertical axis.

    Attributes:
        name: name in ``dataset.yaml``.
        tool: name of the tool, for messages.
    """

    name: ClassVar[str]
    tool: ClassVar[str]

    def __init__(self, path: Path, vertical: int = 2) -> None:
        self.path, self.vertical = path, vertical

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Return True if a folder or file looks like this format."""

    @abstractmethod
    def frame_ids(self) -> Collection[str]:
        """Return the frames with labels, even empty ones."""

    @abstractmethod
    def read(self, frame_id: str) -> WrittenLabels:
        """Read the labels of a frame; raise ``DataError`` with file, object and field."""

    def solid(self, size: Array, rotation: Array) -> tuple[float, float, float, float]:
        """Return length, width, height and heading of a box from its extents and angles.

        Rotations about other axes than the vertical one are ignored.
        """
        along, across = [axis for axis in range(3) if axis != self.vertical]
        return (
            float(size[along]),
            float(size[across]),
            float(size[self.vertical]),
            float(rotation[self.vertical]),
        )


class FileAFrame(LabelFormat):
    """A format with one file per frame; ``suffix`` is the suffix of the files."""

    suffix: ClassVar[str] = ".json"

    @cached_property
    def files(self) -> dict[str, Path]:
        """Files by frame name."""
        if not self.path.is_dir():
            raise DataError(f"{self.path}: no such folder. Correct labels.path in dataset.yaml.")
        paths = sorted(self.path.iterdir())
        return {self.frame_of(path): path for path in paths if path.suffix.lower() == self.suffix}

    def frame_of(self, path: Path) -> str:
        """Return the frame name of a file."""
        return path.stem

    def frame_ids(self) -> Collection[str]:
        """Return the frames of the files."""
        return self.files

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True if one of the first files is of this format."""
        if not path.is_dir():
            return False
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == cls.suffix)[:_PEEKED]
        return any(cls.recognises_file(file) for file in files)

    @classmethod
    @abstractmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if a file is of this format."""


#: Number of files to check for a format, because the first ones may be empty.
_PEEKED = 50


def boxes_in_lidar(written: WrittenLabels, part: LabelPart, transform: ScanTransform) -> Array:
    """Convert labels to (M, 7) float64 boxes in the LiDAR frame: metres, x forward, yaw counter-clockwise."""
    boxes = written.boxes.copy()
    if part.angles == "degrees":
        boxes[:, 6] = np.radians(boxes[:, 6])
    if not transform.keeps_xyz:
        heading = boxes[:, 6]
        boxes[:, :3] = boxes[:, :3] @ transform.matrix.T
        boxes[:, 3:6] *= transform.scale
        turned = _headings(heading, vertical_axis(transform)) @ transform.matrix.T
        boxes[:, 6] = np.arctan2(turned[:, 1], turned[:, 0])
    if part.z == "bottom":
        boxes[:, 2] += boxes[:, 5] / 2
    if part.turn_deg:
        boxes[:, 6] = wrap_angle(boxes[:, 6] + np.radians(part.turn_deg))
    return boxes if part.headings else along_axes(boxes)


def vertical_axis(transform: ScanTransform) -> int:
    """Return the index of the scan's vertical axis."""
    return int(np.abs(transform.matrix[2]).argmax())


class ClassBoxes(NamedTuple):
    """Boxes of the classes in the LiDAR frame, and (M,) bool, which of the written boxes they are."""

    boxes: Boxes3D
    kept: npt.NDArray[np.bool_]


def truth_of(
    written: WrittenLabels, part: LabelPart, transform: ScanTransform, renamed: Mapping[str, str | None]
) -> ClassBoxes:
    """Convert labels to boxes of the classes; ``renamed`` maps names to classes, or to None to drop boxes."""
    named = [renamed.get(name, name) for name in written.names]
    kept = np.array([name is not None for name in named], bool)
    boxes = boxes_in_lidar(written, part, transform)[kept]
    return ClassBoxes(Boxes3D(boxes.astype(np.float32), [name for name in named if name is not None]), kept)


def _headings(angle: Array, vertical: int) -> Array:
    """Return (M, 3) directions of headings in the scan's axes."""
    along, across = [axis for axis in range(3) if axis != vertical]
    made = np.zeros((len(angle), 3))
    made[:, along] = np.cos(angle)
    # About y the right-hand rule turns x towards -z.
    made[:, across] = -np.sin(angle) if vertical == 1 else np.sin(angle)
    return made
