"""Labels of SUSTechPOINTS: ``label/<frame>.json``, a list of boxes with position, scale and rotation.

An object is ``{"obj_type", "obj_id", "psr": {"position", "scale", "rotation"}}``, each with x, y, z: centre,
extents along the box's axes, and angles in radians.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import (
    class_of,
    field_of,
    identities,
    items_of,
    peek_json,
    read_json,
    table,
    vector_of,
)
from perception.errors import DataError


class SustechPointsLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "sustechpoints"
    tool = "SUSTechPOINTS"

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the boxes of a file."""
        path = self.files[frame_id]
        told = read_json(path)
        # Newer versions wrap the list in an object.
        objects = items_of(str(path), "the file", told.get("objs") if isinstance(told, Mapping) else told)
        rows, names = [], []
        for number, item in enumerate(objects):
            place = f"{path}: object {number}"
            box = field_of(place, item, "psr")
            if not isinstance(box, Mapping):
                raise DataError(f"{place}: field psr must have position, scale and rotation")
            centre, size, angles = (
                vector_of(f"{place}: psr", box, name) for name in ("position", "scale", "rotation")
            )
            rows.append([*centre, *self.solid(size, angles)])
            names.append(class_of(place, item, "obj_type"))
        return WrittenLabels(table(rows), names, identities([item.get("obj_id") for item in objects]))

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if there is an object with ``psr``."""
        told = peek_json(path)
        objects = told.get("objs") if isinstance(told, Mapping) else told
        return isinstance(objects, list) and any(
            isinstance(item, Mapping) and "psr" in item for item in objects
        )
