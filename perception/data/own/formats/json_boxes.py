"""Labels in our own JSON: one file per scan, or one file for all.

A file per scan contains a list of objects, or
``{"objects": [...], "pose": [16 numbers], "time_ns": N}``. One file for all contains these by frame name. An
object is ``{"class": "pallet", "box": [x, y, z, length, width, height, yaw], "track_id": 3}``, where
``track_id`` is optional. ``time_ns`` may also be an ISO 8601 date and time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import (
    class_of,
    field_of,
    identities,
    items_of,
    numbers_of,
    peek_json,
    read_json,
    table,
)
from perception.errors import DataError
from perception.io.times import parse_date


class JsonLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "json"
    tool = "own JSON"

    @cached_property
    def _together(self) -> Mapping[str, Any]:
        frames = read_json(self.path)
        if not isinstance(frames, Mapping):
            raise DataError(f"{self.path}: one file for all scans must be an object of labels by frame name")
        return frames

    def frame_ids(self) -> Collection[str]:
        """Return the frames of the files or of the one file."""
        return self._together if self.path.is_file() else self.files

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the objects of a frame."""
        if self.path.is_file():
            return _frame(f"{self.path}: {frame_id}", self._together[frame_id])
        path = self.files[frame_id]
        return _frame(str(path), read_json(path))

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True for a folder of such files, or one file with all frames."""
        if path.is_file():
            frames = peek_json(path) if path.suffix.lower() == ".json" else None
            return isinstance(frames, Mapping) and any(map(_has_boxes, frames.values()))
        return super().recognises(path)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if there is an object with a class and a box."""
        return _has_boxes(peek_json(path))


def _has_boxes(frame: Any) -> bool:
    objects = frame.get("objects") if isinstance(frame, Mapping) else frame
    return isinstance(objects, list) and any(
        isinstance(item, Mapping) and {"class", "box"} <= item.keys() for item in objects
    )


def _frame(place: str, frame: Any) -> WrittenLabels:
    told = frame if isinstance(frame, Mapping) else {"objects": frame}
    objects = items_of(place, "objects", field_of(place, told, "objects"))
    rows, names = [], []
    for number, item in enumerate(objects):
        here = f"{place}: object {number}"
        names.append(class_of(here, item, "class"))
        rows.append(numbers_of(here, "box", field_of(here, item, "box"), 7))
    pose, time_ns = told.get("pose"), told.get("time_ns")
    if isinstance(time_ns, str):
        time_ns = _date(place, time_ns)
    if time_ns is not None and (isinstance(time_ns, bool) or not isinstance(time_ns, int)):
        raise DataError(
            f"{place}: field time_ns must be nanoseconds or a date such as 2026-01-02T10:00:00Z, got"
            f" {time_ns!r:.80}"
        )
    return WrittenLabels(
        table(rows),
        names,
        identities([item.get("track_id") for item in objects]),
        pose=None if pose is None else np.array(numbers_of(place, "pose", pose, 16)).reshape(4, 4),
        time_ns=time_ns,
    )


def _date(place: str, text: str) -> int:
    try:
        return parse_date(text)
    except ValueError as error:
        raise DataError(f"{place}: field time_ns: {error}") from error
