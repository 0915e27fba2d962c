"""Labels of Supervisely's point clouds: ``ann/<scan>.json`` with figures ``cuboid_3d`` and their objects.

``dimensions`` x, y, z are width, length and height; rotation 0 about z points along +y; metres and radians.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from perception.data.own.formats.scan_names import frame_named
from perception.data.own.labels import Array, FileAFrame, WrittenLabels
from perception.data.own.parsing import (
    class_of,
    field_of,
    items_of,
    peek_json,
    read_json,
    table,
    text_of,
    vector_of,
)
from perception.errors import DataError


class SuperviselyLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "supervisely"
    tool = "Supervisely"

    def frame_of(self, path: Path) -> str:
        """Return the frame of a file: ``0001.pcd.json`` gives ``0001``."""
        return frame_named(path.stem)

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the cuboids of a file; other figures are skipped."""
        path = self.files[frame_id]
        told = read_json(path)
        if not isinstance(told, Mapping):
            raise DataError(
                f"{path}: not a Supervisely annotation, as 'figures' is missing. Export it again."
            )
        objects = items_of(str(path), "objects", field_of(str(path), told, "objects"))
        names = {text_of(str(path), item, "key"): class_of(str(path), item, "classTitle") for item in objects}
        rows, found, skipped = [], [], []
        for number, figure in enumerate(items_of(str(path), "figures", field_of(str(path), told, "figures"))):
            place = f"{path}: figure {number}"
            if figure.get("geometryType") != "cuboid_3d":
                skipped.append(f"a figure of type {figure.get('geometryType')!r:.40} instead of cuboid_3d")
                continue
            box = field_of(place, figure, "geometry")
            if not isinstance(box, Mapping):
                raise DataError(f"{place}: field geometry must have position, rotation and dimensions")
            centre, angles, size = (
                vector_of(f"{place}: geometry", box, name) for name in ("position", "rotation", "dimensions")
            )
            rows.append([*centre, *self.solid(size, angles)])
            key = text_of(place, figure, "objectKey")
            if key not in names:
                raise DataError(f"{place}: no object has the key {key[:80]!r}. Export the project again.")
            found.append(names[key])
        return WrittenLabels(table(rows), found, skipped=tuple(skipped))

    def solid(self, size: Array, rotation: Array) -> tuple[float, float, float, float]:
        """Return sizes and heading; unlike in other tools, the heading is the second horizontal axis."""
        across, along, height, angle = super().solid(size, rotation)
        # About y the right-hand rule turns x towards -z.
        return along, across, height, angle + (-math.pi / 2 if self.vertical == 1 else math.pi / 2)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if there are figures."""
        told = peek_json(path)
        return isinstance(told, Mapping) and {"figures", "objects"} <= told.keys()
