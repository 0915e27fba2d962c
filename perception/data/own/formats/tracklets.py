"""``tracklet_labels.xml`` of KITTI's raw recordings, and as CVAT writes it ("Kitti Raw Format 1.0").

A tracklet has a class, a size, a first frame, and a pose for each frame from there on.

- KITTI (raw data development kit): ``l``, ``w``, ``h`` are length, width and height; ``tz`` is the bottom;
  frames are named by ten digits.
- CVAT: ``w``, ``h``, ``l`` are the extents along the box's x, y and z; ``tz`` is the centre;
  ``frame_list.txt`` names the frames; truncation 2 means that the object is absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple
from xml.etree import ElementTree

import numpy as np

from perception.data.own.formats.scan_names import frame_named
from perception.data.own.labels import LabelFormat, WrittenLabels
from perception.data.own.parsing import table
from perception.errors import DataError
from perception.io.text import parse_count, parse_number, read_text

_FRAME_LIST = "frame_list.txt"
_OUTSIDE = 2


class _Observation(NamedTuple):
    """One pose of a tracklet: box, class and number of the tracklet."""

    row: list[float]
    name: str
    track: int


class KittiTracklets(LabelFormat):
    """Tracklets of KITTI's raw recordings.

    Attributes:
        extents: fields with the extents along the box's x, y and z.
        bottom: True if poses are of the bottom of the box.
    """

    name = "kitti-tracklets"
    tool = "KITTI raw tracklets"
    extents: ClassVar[tuple[str, str, str]] = ("l", "w", "h")
    bottom: ClassVar[bool] = True

    @cached_property
    def _observations(self) -> dict[int, list[_Observation]]:
        found: dict[int, list[_Observation]] = {}
        for number, tracklet in enumerate(_tracklets(self.path)):
            place = f"{self.path}: tracklet {number}"
            size = np.array([_number(place, tracklet, name) for name in self.extents])
            first = _whole(place, tracklet, "first_frame")
            name = _text(place, tracklet, "objectType")
            for after, pose in enumerate(tracklet.iterfind("poses/item")):
                here = f"{place}: pose {after}"
                x, y, z = (_number(here, pose, field) for field in ("tx", "ty", "tz"))
                angles = np.array([_number(here, pose, field) for field in ("rx", "ry", "rz")])
                if not self.bottom and _whole(here, pose, "truncation") == _OUTSIDE:
                    continue
                solid = self.solid(size, angles)
                row = [x, y, z + solid[2] / 2 if self.bottom else z, *solid]
                found.setdefault(first + after, []).append(_Observation(row, name, number))
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Frame numbers by name."""
        return {f"{number:010d}": number for number in sorted(self._observations)}

    def frame_ids(self) -> Collection[str]:
        """Return the frames with a tracklet, or those listed."""
        return self._numbers

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the boxes of all tracklets in a frame."""
        found = self._observations.get(self._numbers[frame_id], [])
        tracks = np.array([one.track for one in found], np.int64)
        return WrittenLabels(table([one.row for one in found]), [one.name for one in found], tracks)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True for a file of this name."""
        return path.name == "tracklet_labels.xml" and path.is_file()


class CvatTracklets(KittiTracklets):
    """Tracklets of CVAT."""

    name = "cvat-tracklets"
    tool = "CVAT (Kitti Raw Format 1.0)"
    extents = ("w", "h", "l")
    bottom = False

    @cached_property
    def _numbers(self) -> dict[str, int]:
        path = self.path.parent / _FRAME_LIST
        found = {}
        for line, text in enumerate(read_text(path, "number and name of a frame per line").splitlines(), 1):
            number, _, scan = text.strip().partition(" ")
            if not text.strip():
                continue
            if parse_count(number) is None or not scan.strip():
                raise DataError(f"{path}: line {line} must be the number and the name of a frame")
            found[frame_named(scan.strip())] = int(number)
        return found

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True if there is a list of frames next to the file."""
        return super().recognises(path) and (path.parent / _FRAME_LIST).is_file()


def _tracklets(path: Path) -> Iterator[ElementTree.Element]:
    try:
        return ElementTree.fromstring(read_text(path, "tracklets as XML")).iterfind("tracklets/item")
    except ElementTree.ParseError as error:
        raise DataError(f"{path}: not valid XML ({error}). Export the labels again.") from error


def _text(place: str, holder: ElementTree.Element, name: str) -> str:
    text = (holder.findtext(name) or "").strip()
    if not text:
        raise DataError(f"{place}: field {name} is missing or empty. Export the labels again.")
    return text


def _number(place: str, holder: ElementTree.Element, name: str) -> float:
    return parse_number(place, name, _text(place, holder, name))


def _whole(place: str, holder: ElementTree.Element, name: str) -> int:
    number = _number(place, holder, name)
    if not number.is_integer():
        raise DataError(f"{place}: field {name} is {number}. Write a whole number.")
    return int(number)
