"""Labels of CVAT's Datumaro export: ``annotations/<subset>.json`` with ``cuboid_3d`` annotations.

``{"categories": {"label": {"labels": [{"name"}]}}, "items": [{"id", "annotations": [{"type": "cuboid_3d",
"label_id", "position", "rotation", "scale"}]}]}``: centre, radians, extents along the box's own x, y, z.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from perception.data.own.formats.scan_names import frame_named
from perception.data.own.labels import LabelFormat, WrittenLabels
from perception.data.own.parsing import (
    field_of,
    identities,
    items_of,
    numbers_of,
    peek_json,
    read_json,
    table,
    text_of,
)
from perception.errors import DataError

_LABELLED = "categories.label.labels"


class DatumaroLabels(LabelFormat):
    """Reader of the format in the module's docstring; all subsets of a folder count."""

    name = "datumaro"
    tool = "CVAT (Datumaro 3D)"

    @cached_property
    def _items(self) -> dict[str, tuple[str, Mapping[str, Any], list[str]]]:
        """Place, item and class names by frame."""
        paths = [self.path] if self.path.is_file() else sorted(self.path.glob("*.json"))
        if not paths:
            raise DataError(f"{self.path}: no annotations/*.json. Correct labels.path in dataset.yaml.")
        found = {}
        for path in paths:
            told = read_json(path)
            if not isinstance(told, Mapping):
                raise DataError(f"{path}: not a Datumaro export, as 'items' is missing. Export it again.")
            names = _class_names(path, told)
            for item in items_of(str(path), "items", field_of(str(path), told, "items")):
                identity = text_of(str(path), item, "id")
                found[frame_named(identity)] = (f"{path}: item {identity}", item, names)
        return found

    def frame_ids(self) -> Collection[str]:
        """Return the frames of the items."""
        return self._items

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the cuboids of an item; other annotations are skipped."""
        place, item, classes = self._items[frame_id]
        rows, names, tracks, skipped = [], [], [], []
        for number, told in enumerate(items_of(place, "annotations", item.get("annotations", []))):
            if told.get("type") != "cuboid_3d":
                skipped.append(f"an annotation of type {told.get('type')!r:.40} instead of cuboid_3d")
                continue
            here = f"{place}: annotation {number}"
            centre, angles, size = (
                np.array(numbers_of(here, name, field_of(here, told, name), 3))
                for name in ("position", "rotation", "scale")
            )
            label = field_of(here, told, "label_id")
            if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < len(classes):
                raise DataError(
                    f"{here}: label_id is {label!r:.40}, but {_LABELLED} has {len(classes)} names. Export it"
                    " again."
                )
            rows.append([*centre, *self.solid(size, angles)])
            names.append(classes[label])
            attributes = told.get("attributes")
            tracks.append(attributes.get("track_id") if isinstance(attributes, Mapping) else None)
        return WrittenLabels(table(rows), names, identities(tracks), skipped=tuple(skipped))

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return True if there are items and categories."""
        files = [path] if path.is_file() else sorted(path.glob("*.json")) if path.is_dir() else []
        told = [peek_json(file) for file in files[:3] if file.suffix.lower() == ".json"]
        return any(isinstance(each, Mapping) and {"items", "categories"} <= each.keys() for each in told)


def _class_names(path: Path, told: Mapping[str, Any]) -> list[str]:
    holder: Any = told
    for name in ("categories", "label", "labels"):
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    return [text_of(f"{path}: {_LABELLED}", item, "name") for item in items_of(str(path), _LABELLED, holder)]
