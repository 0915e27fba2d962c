"""Labels of Supervisely's point clouds: ``ann/<scan>.json``, figures ``cuboid_3d`` and the objects they show.

Supervisely's annotation format (point clouds): ``dimensions`` x, y, z are width, length and height, a
rotation of 0 about z looks along +y; metres and radians.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from perception.data.own.formats.scan_names import frame_named
from perception.data.own.labels import Array, FileAFrame, WrittenLabels
from perception.data.own.parsing import field_of, items_of, peek_json, read_json, table, text_of, vector_of
from perception.errors import DataError


class SuperviselyLabels(FileAFrame):
    """See the module."""

    name = "supervisely"
    tool = "Supervisely"

    def frame_of(self, path: Path) -> str:
        """``0001.pcd.json`` belongs to ``0001.pcd``, whose frame is ``0001``."""
        return frame_named(path.stem)

    def read(self, frame_id: str) -> WrittenLabels:
        """The cuboids of a file; other figures are skipped."""
        path = self.files[frame_id]
        told = read_json(path)
        if not isinstance(told, Mapping):
            raise DataError(f"{path}: not an annotation of Supervisely; expected an object with 'figures'")
        objects = items_of(str(path), "objects", field_of(str(path), told, "objects"))
        names = {text_of(str(path), item, "key"): text_of(str(path), item, "classTitle") for item in objects}
        rows, found, skipped = [], [], []
        for number, figure in enumerate(items_of(str(path), "figures", field_of(str(path), told, "figures"))):
            place = f"{path}: figure {number}"
            if figure.get("geometryType") != "cuboid_3d":
                skipped.append(f"a figure of type {figure.get('geometryType')!r:.40}, which is no cuboid")
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
                raise DataError(f"{place}: no object has the key {key[:80]!r}; export the project again")
            found.append(names[key])
        return WrittenLabels(table(rows), found, skipped=tuple(skipped))

    def solid(self, size: Array, rotation: Array) -> tuple[float, float, float, float]:
        """As of other tools, but the heading is the second axis of a box that is not vertical."""
        across, along, height, angle = super().solid(size, rotation)
        # About y the right-hand rule turns x towards -z.
        return along, across, height, angle + (-math.pi / 2 if self.vertical == 1 else math.pi / 2)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """There are figures."""
        told = peek_json(path)
        return isinstance(told, Mapping) and {"figures", "objects"} <= told.keys()
