"""Labels of labelCloud as ``centroid_abs`` (degrees) or ``centroid_rel`` (radians), one JSON file per scan.

``{"filename", "objects": [{"name", "centroid": {x, y, z}, "dimensions": {length, width, height},
"rotations": {x, y, z}}]}``. Set ``labels.angles``, because the file does not name the unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import class_of, field_of, items_of, peek_json, read_json, table, vector_of
from perception.errors import DataError

_SIZES = ("length", "width", "height")


class LabelCloudLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "labelcloud"
    tool = "labelCloud"

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the boxes of a file."""
        path = self.files[frame_id]
        told = read_json(path)
        if not isinstance(told, Mapping):
            raise DataError(f"{path}: not a labelCloud file, as 'objects' is missing. Export it again.")
        rows, names = [], []
        for number, item in enumerate(items_of(str(path), "objects", field_of(str(path), told, "objects"))):
            place = f"{path}: object {number}"
            if "vertices" in item:
                raise DataError(
                    f"{place}: box corners are not supported. Export as centroid_rel or centroid_abs."
                )
            centre = vector_of(place, item, "centroid")
            size = vector_of(place, item, "dimensions", _SIZES)
            angles = vector_of(place, item, "rotations")
            rows.append([*centre, *self.solid(size, angles)])
            names.append(class_of(place, item, "name"))
        return WrittenLabels(table(rows), names)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if there is an object with a centroid."""
        told = peek_json(path)
        objects = told.get("objects") if isinstance(told, Mapping) else None
        return isinstance(objects, list) and any(
            isinstance(item, Mapping) and ("centroid" in item or "vertices" in item) for item in objects
        )
