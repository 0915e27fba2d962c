"""Stanford ``.ply`` files: ascii, binary_little_endian and binary_big_endian.

Follows Greg Turk's "The PLY Polygon File Format". Only the element ``vertex`` is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.raw import RawCloud, packed_columns, raw_from_fields, read_bytes, restore_bytes
from perception.io.text import parse_count, parse_table
from perception.types import FloatArray

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1",
    "short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2",
    "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclass
class _Element:
    name: str
    count: int
    properties: list[tuple[str, str]] = field(default_factory=list)  #: name and NumPy type code
    has_list: bool = False

    def fields(self, order: str) -> list[tuple[str, np.dtype[Any], int]]:
        """Return name, type and count (1) of each property, for a byte order."""
        return [(name, np.dtype(order + code), 1) for name, code in self.properties]


@dataclass
class _PlyHeader:
    encoding: str = ""
    elements: list[_Element] = field(default_factory=list)
    data_line: int = 0
    data_offset: int = 0


def read_ply(path: Path) -> RawCloud:
    """Read the vertices' x, y, z and intensity (or scalar_intensity, reflectance, ...) of any numeric type.

    Raises:
        DataError: the header or a number is invalid, data are truncated, or a list property precedes or
            belongs to the vertices.
    """
    data = read_bytes(path)
    header = _parse_header(path, data)
    before, vertex = _split_at_vertex(path, header)
    body = data[header.data_offset :]
    if header.encoding == "ascii":
        return raw_from_fields(path, _ascii_fields(path, header, before, vertex, body))
    order = _ORDERS[header.encoding]
    start = sum(part.count * sum(dtype.itemsize for _, dtype, _ in part.fields(order)) for part in before)
    columns = packed_columns(path, memoryview(body), vertex.fields(order), vertex.count, start)
    return raw_from_fields(path, columns)


def write_ply(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points as a little-endian binary file."""
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n"
        "property float x\nproperty float y\nproperty float z\nproperty float intensity\nend_header\n"
    )
    path.write_bytes(header.encode("ascii") + np.ascontiguousarray(points, "<f4").tobytes())


def _parse_header(path: Path, data: bytes) -> _PlyHeader:
    header = _PlyHeader()
    offset, number = 0, 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        end = len(data) if end < 0 else end
        words = data[offset:end].decode("ascii", errors="replace").split()
        offset, number = end + 1, number + 1
        if number == 1:
            if words != ["ply"]:
                raise DataError(f"{path}: line 1 is not 'ply', so this is not a PLY file. Export it again.")
            continue
        if words == ["end_header"]:
            if not header.encoding:
                raise DataError(f"{path}: the format line is missing. Add for example 'format ascii 1.0'.")
            header.data_line, header.data_offset = number + 1, offset
            return header
        if words and words[0] not in ("comment", "obj_info"):
            _parse_header_line(f"{path}: line {number}", words, header)
    raise DataError(f"{path}: no end_header. The file is cut off or not PLY; export it again.")


def _parse_header_line(place: str, words: list[str], header: _PlyHeader) -> None:
    if words[0] == "format" and len(words) >= 2 and words[1] in _ORDERS:
        if header.encoding not in ("", words[1]):
            raise DataError(
                f"{place}: format {words[1]} after format {header.encoding}. Export the file again."
            )
        header.encoding = words[1]
    elif words[0] == "element" and len(words) == 3 and (count := parse_count(words[2])) is not None:
        header.elements.append(_Element(words[1], count))
    elif words[0] == "property" and len(words) == 5 and words[1] == "list" and header.elements:
        header.elements[-1].has_list = True
    elif words[0] == "property" and len(words) == 3 and words[1] in _TYPES and header.elements:
        header.elements[-1].properties.append((words[2].lower(), _TYPES[words[1]]))
    else:
        raise DataError(f"{place}: unknown header entry {' '.join(words)[:80]!r}. Export the file again.")


def _split_at_vertex(path: Path, header: _PlyHeader) -> tuple[list[_Element], _Element]:
    """Return the elements stored before the vertices, and the vertices."""
    names = [element.name for element in header.elements]
    if "vertex" not in names:
        raise DataError(
            f"{path}: no element vertex; elements: {', '.join(names) or 'none'}. Export a point cloud."
        )
    index = names.index("vertex")
    before, vertex = header.elements[:index], header.elements[index]
    blocking = [element for element in (*before, vertex) if element.has_list]
    if vertex.has_list or (blocking and header.encoding != "ascii"):
        raise DataError(
            f"{path}: element {blocking[0].name} has a list property in or before the vertices, which is not"
            " supported. Export the points without faces."
        )
    return before, vertex


def _ascii_fields(
    path: Path, header: _PlyHeader, before: list[_Element], vertex: _Element, body: bytes
) -> dict[str, npt.NDArray[Any]]:
    lines = [
        (number, line)
        for number, line in enumerate(body.split(b"\n"), header.data_line)
        if line and not line.isspace()
    ]
    start = sum(element.count for element in before)
    rows = lines[start : start + vertex.count]
    if len(rows) < vertex.count:
        raise DataError(
            f"{path}: truncated, {len(rows)} of {vertex.count} vertices are there. Export the file again."
        )
    count = len(vertex.properties)
    for number, line in rows:
        found = len(line.split())
        if found != count:
            raise DataError(
                f"{path}: line {number}: {found} values, expected {count}. Export the file again."
            )
    places: dict[str, int] = {}
    for column, (name, _) in enumerate(vertex.properties):
        places.setdefault(name, column)
    table = parse_table(path, rows, places)
    dtypes = {name: dtype for name, dtype, _ in reversed(vertex.fields(_ORDERS["ascii"]))}
    return {name: restore_bytes(table[:, row], dtypes[name]) for row, name in enumerate(places)}
