"""Labels as CSV: ``class,x,y,z,length,width,height,yaw``, per scan, or with ``frame`` in one file.

A column ``track_id`` is optional; others are skipped. The first line names the columns, in any order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import identities, table
from perception.errors import DataError
from perception.io.text import parse_number, read_text

FIELDS = ("x", "y", "z", "length", "width", "height", "yaw")
_EXPECTED = "CSV whose first line is class,x,y,z,length,width,height,yaw"

#: Place of a line, and its values by column name.
_Row = tuple[str, dict[str, str]]


class CsvLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "csv"
    tool = "CSV"
    suffix = ".csv"

    @cached_property
    def _together(self) -> dict[str, list[_Row]]:
        found: dict[str, list[_Row]] = {}
        for place, row in _rows(self.path, "frame"):
            found.setdefault(row["frame"], []).append((place, row))
        return found

    def frame_ids(self) -> Collection[str]:
        """Return the frames of the files or of the column ``frame``."""
        return self._together if self.path.is_file() else self.files

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the lines of a frame."""
        rows = self._together[frame_id] if self.path.is_file() else _rows(self.files[frame_id])
        boxes = [[parse_number(place, name, row[name]) for name in FIELDS] for place, row in rows]
        names = [row["class"] for _, row in rows]
        return WrittenLabels(table(boxes), names, identities([row.get("track_id") for _, row in rows]))

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """The first line names the columns."""
        if path.is_file():
            return path.suffix.lower() == cls.suffix and cls.recognises_file(path)
        return super().recognises(path)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """The first line names the columns."""
        try:
            first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
        except OSError:
            return False
        return {"class", *FIELDS} <= {name.strip().lower() for name in first.split(",")}


def _rows(path: Path, *further: str) -> list[_Row]:
    reader = csv.reader(io.StringIO(read_text(path, _EXPECTED)))
    header = [name.strip().lower() for name in next(reader, [])]
    missing = [name for name in (*further, "class", *FIELDS) if name not in header]
    if missing:
        raise DataError(f"{path}: line 1: no column {', '.join(missing)}. Write {_EXPECTED}.")
    rows = []
    for words in reader:
        place = f"{path}: line {reader.line_num}"
        if not words:
            continue
        if len(words) != len(header):
            raise DataError(f"{place}: {len(words)} values. Write {len(header)}, as in line 1.")
        row = dict(zip(header, (word.strip() for word in words), strict=True))
        for name in further:
            if not row[name]:
                raise DataError(f"{place}: field {name} is empty. Write a name.")
        rows.append((place, row))
    return rows
