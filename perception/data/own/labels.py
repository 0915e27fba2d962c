"""Labels as a tool wrote them, and the same in the LiDAR frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.boxes import wrap_angle
from perception.data.own.description import LabelPart
from perception.errors import DataError
from perception.io.transform import ScanTransform
from perception.types import Boxes3D

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WrittenLabels:
    """The labels of one frame as they are written.

    Attributes:
        boxes: (M, 7) float64 x, y, z, length along the heading, width across it, height, heading, in the
            scan's own unit and axes. The heading is an angle about the axis of the scan that is vertical, by
            the right-hand rule, from the scan's x axis (from y where x is vertical): about z this is a yaw
            counter-clockwise from x, about y it is KITTI's ``rotation_y``.
        names: M names of classes.
        track_ids: (M,) int64 identities, the same for an object in all frames; None where there are none.
        pose: (4, 4) float64 world_from_lidar, metres; None where it is not told.
        time_ns: of the scan; None where it is not told.
        skipped: why an entry of the file is not among the boxes, one sentence for each such entry.
    """

    boxes: Array
    names: list[str]
    track_ids: npt.NDArray[np.int64] | None = None
    pose: Array | None = None
    time_ns: int | None = None
    skipped: tuple[str, ...] = ()


class LabelFormat(ABC):
    """Labels of a folder or file in the format of a tool.

    Args:
        path: of folder or file.
        vertical: number of the scans' axis that points up or down.

    Attributes:
        name: in ``dataset.yaml``.
        tool: what writes it, in words.
    """

    name: ClassVar[str]
    tool: ClassVar[str]

    def __init__(self, path: Path, vertical: int = 2) -> None:
        self.path, self.vertical = path, vertical

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a folder or file looks like one of this format."""

    @abstractmethod
    def frame_ids(self) -> Collection[str]:
        """Names of the frames that have labels, if only to say that nothing is there."""

    @abstractmethod
    def read(self, frame_id: str) -> WrittenLabels:
        """The labels of a frame among ``frame_ids``; ``DataError`` names file, object and field."""

    def solid(self, size: Array, rotation: Array) -> tuple[float, float, float, float]:
        """Length, width, height and heading of a box given by its extents along its own x, y, z and angles.

        Tools turn boxes about all three axes; what is not about the vertical one is left out.
        """
        along, across = [axis for axis in range(3) if axis != self.vertical]
        return (
            float(size[along]),
            float(size[across]),
            float(size[self.vertical]),
            float(rotation[self.vertical]),
        )


class FileAFrame(LabelFormat):
    """A format with one file a frame.

    Attributes:
        suffix: of the files.
    """

    suffix: ClassVar[str] = ".json"

    @cached_property
    def files(self) -> dict[str, Path]:
        """The files by the frames' names."""
        if not self.path.is_dir():
            raise DataError(f"{self.path}: no such folder; correct labels.path in dataset.yaml")
        paths = sorted(self.path.iterdir())
        return {self.frame_of(path): path for path in paths if path.suffix.lower() == self.suffix}

    def frame_of(self, path: Path) -> str:
        """The name of the frame that a file belongs to."""
        return path.stem

    def frame_ids(self) -> Collection[str]:
        """Those of the files."""
        return self.files

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """The files say so, as far as they hold anything."""
        if not path.is_dir():
            return False
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == cls.suffix)[:_PEEKED]
        return any(cls.recognises_file(file) for file in files)

    @classmethod
    @abstractmethod
    def recognises_file(cls, path: Path) -> bool:
        """Whether a file that is not empty is one of this format."""


#: Files that are looked into to recognise a format: the first ones may hold no object.
_PEEKED = 50


def boxes_in_lidar(written: WrittenLabels, part: LabelPart, transform: ScanTransform) -> Array:
    """(M, 7) float64 boxes in the LiDAR frame: metres, x forward, y left, z up, yaw counter-clockwise.

    Args:
        written: in the unit and axes of the scan.
        part: how its numbers are meant.
        transform: of the scan.
    """
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
    return boxes


def vertical_axis(transform: ScanTransform) -> int:
    """Number of the scan's axis that points up or down."""
    return int(np.abs(transform.matrix[2]).argmax())


class Kept(NamedTuple):
    """Boxes of the classes in the LiDAR frame, and which of the M written ones they are: (M,) bool."""

    boxes: Boxes3D
    kept: npt.NDArray[np.bool_]


def truth_of(
    written: WrittenLabels, part: LabelPart, transform: ScanTransform, renamed: Mapping[str, str | None]
) -> Kept:
    """What counts of written labels.

    Args:
        written: in the unit and axes of the scan.
        part: how its numbers are meant.
        transform: of the scan.
        renamed: name in the labels to class, or to None for boxes that are left out; others stay.
    """
    named = [renamed.get(name, name) for name in written.names]
    kept = np.array([name is not None for name in named], bool)
    boxes = boxes_in_lidar(written, part, transform)[kept]
    return Kept(Boxes3D(boxes.astype(np.float32), [name for name in named if name is not None]), kept)


def _headings(angle: Array, vertical: int) -> Array:
    """(M, 3) directions of headings in the scan's own axes."""
    along, across = [axis for axis in range(3) if axis != vertical]
    made = np.zeros((len(angle), 3))
    made[:, along] = np.cos(angle)
    # About y the right-hand rule turns x towards -z.
    made[:, across] = -np.sin(angle) if vertical == 1 else np.sin(angle)
    return made
