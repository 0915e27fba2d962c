"""Labels of OpenPCDet's layout for custom data: ``labels/<frame>.txt``, one object per line.

A line is ``x y z dx dy dz heading class`` (OpenPCDet, docs/CUSTOM_DATASET_TUTORIAL.md): centre, extents along
and across the heading and upwards, heading counter-clockwise from x, in metres and radians.
"""

from __future__ import annotations

from pathlib import Path

from perception.data.own.labels import FileAFrame, WrittenLabels
from perception.data.own.parsing import table
from perception.errors import DataError
from perception.io.text import parse_number, read_text

_FIELDS = ("x", "y", "z", "dx", "dy", "dz", "heading")
_EXPECTED = "one object per line: x y z dx dy dz heading class"


class OpenPcdetLabels(FileAFrame):
    """Reader of the format in the docstring of the module."""

    name = "openpcdet"
    tool = "OpenPCDet custom data"
    suffix = ".txt"

    def read(self, frame_id: str) -> WrittenLabels:
        """Read the lines of a file."""
        path, rows, names = self.files[frame_id], [], []
        for number, line in enumerate(read_text(path, _EXPECTED).splitlines(), 1):
            words = line.split()
            if not words:
                continue
            place = f"{path}: line {number}"
            if len(words) != len(_FIELDS) + 1:
                raise DataError(f"{place}: {len(words)} fields. Write {_EXPECTED}.")
            rows.append([parse_number(place, name, word) for name, word in zip(_FIELDS, words, strict=False)])
            names.append(words[-1])
        return WrittenLabels(table(rows), names)

    @classmethod
    def recognises_file(cls, path: Path) -> bool:
        """Return True if the first line has seven numbers and a name."""
        try:
            words = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].split()
        except OSError:
            return False
        return len(words) == 8 and all(map(_is_number, words[:7])) and not _is_number(words[7])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
