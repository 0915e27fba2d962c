"""Labels of DAIR-V2X: ``label/lidar/<frame>.json``, a list of objects in the frame of the LiDAR.

An object has ``type``, ``3d_dimensions`` (l, w, h), ``3d_location`` (the centre) and ``rotation`` (yaw about
z, counter-clockwise from x). Numbers may be text. Objects that only the camera sees have a box without volume
(Yu et al., DAIR-V2X, CVPR 2022); they are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import class_of, field_of, items_of, peek_json, read_json, table
from perception.errors import DataError
from perception.io.text import parse_number

#: Folder of labels that were drawn in the picture.
_CAMERA = "camera"
_EMPTY = "a box without volume (visible in the camera only)"


class DairV2xLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "dair-v2x"
    tool = "DAIR-V2X"

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the boxes of a file."""
        path, rows, names, skipped = self.files[frame_id], [], [], []
        for number, item in enumerate(items_of(str(path), "the file", read_json(path))):
            place = f"{path}: object {number}"
            size = vector_of_text(place, item, "3d_dimensions", ("l", "w", "h"))
            if min(size) <= 0:
                skipped.append(_EMPTY)
                continue
            heading = number_of(place, "rotation", field_of(place, item, "rotation"))
            solid = self.solid(np.array(size), np.array([heading] * 3))
            rows.append([*vector_of_text(place, item, "3d_location", ("x", "y", "z")), *solid])
            names.append(class_of(place, item, "type"))
        return WrittenLabels(table(rows), names, skipped=tuple(skipped))

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True for a folder of such files, but not for boxes drawn in the picture."""
        return path.name != _CAMERA and super().recognises(path)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if there is an object with a size and a place in three dimensions."""
        told = peek_json(path)
        return isinstance(told, list) and any(
            isinstance(item, Mapping) and {"3d_dimensions", "3d_location", "rotation"} <= item.keys()
            for item in told
        )


def vector_of_text(place: str, item: Mapping[str, Any], name: str, keys: tuple[str, str, str]) -> list[float]:
    """Return numbers of a field with named components, which may be text; raise ``DataError`` for others."""
    holder = field_of(place, item, name)
    if not isinstance(holder, Mapping):
        raise DataError(f"{place}: field {name} must have {', '.join(keys)}, got {holder!r:.80}")
    return [number_of(place, f"{name}.{key}", field_of(f"{place}: {name}", holder, key)) for key in keys]


def number_of(place: str, name: str, value: Any) -> float:
    """Return a finite number that may be text; raise ``DataError`` for others."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DataError(f"{place}: field {name} must be a number, got {value!r:.80}")
    return parse_number(place, name, str(value))
