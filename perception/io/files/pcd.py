"""Point Cloud Library ``.pcd`` files: ascii, binary and binary_compressed, organised or not.

Follows "The PCD file format" of the PCL documentation. VIEWPOINT is ignored, as in other readers. A field of
COUNT 0 has no bytes and no column; PCL pads point types with such fields, named ``_``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.files.lzf import decompress_lzf
from perception.io.raw import RawCloud, packed_columns, raw_from_fields, read_bytes, restore_bytes
from perception.io.text import parse_count, parse_table
from perception.types import FloatArray

_TYPES = {("F", 4), ("F", 8)} | {(kind, size) for kind in "IU" for size in (1, 2, 4, 8)}
_KEYS = ("VERSION", "FIELDS", "COLUMNS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "VIEWPOINT", "POINTS")


@dataclass(frozen=True)
class _Field:
    name: str
    dtype: np.dtype[Any]
    count: int

    @property
    def width_bytes(self) -> int:
        return self.dtype.itemsize * self.count


@dataclass(frozen=True)
class _PcdHeader:
    fields: tuple[_Field, ...]
    points: int
    encoding: str
    data_line: int  #: number, from 1, of the first line after the header
    data_offset: int

    @property
    def row_bytes(self) -> int:
        return sum(field.width_bytes for field in self.fields)


def read_pcd(path: Path) -> RawCloud:
    """Read x, y, z and intensity (or i, reflectivity, ...) of any numeric type.

    Raises:
        DataError: the header or a field is invalid, data are truncated, or a value is not a number.
    """
    data = read_bytes(path)
    header = _parse_header(path, data)
    body = memoryview(data)[header.data_offset :]
    if header.encoding == "ascii":
        return raw_from_fields(path, _ascii_fields(path, header, bytes(body)))
    if header.encoding == "binary":
        fields = [(field.name, field.dtype, field.count) for field in header.fields]
        return raw_from_fields(path, packed_columns(path, body, fields, header.points))
    return raw_from_fields(path, _compressed_fields(path, header, body))


def write_pcd(path: Path, points: FloatArray) -> None:
    """Write (N, 4) float32 points as a binary, unorganised file."""
    count = len(points)
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS x y z intensity\nSIZE 4 4 4 4\n"
        f"TYPE F F F F\nCOUNT 1 1 1 1\nWIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\n"
        f"POINTS {count}\nDATA binary\n"
    )
    path.write_bytes(header.encode("ascii") + np.ascontiguousarray(points, "<f4").tobytes())


def _parse_header(path: Path, data: bytes) -> _PcdHeader:
    entries: dict[str, list[str]] = {}
    offset, line_number = 0, 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        end = len(data) if end < 0 else end
        line = data[offset:end].decode("ascii", errors="replace").strip()
        offset, line_number = end + 1, line_number + 1
        if not line or line.startswith("#"):
            continue
        key, *values = line.split()
        if key.upper() == "DATA":
            return _build_header(path, entries, values, line_number + 1, min(offset, len(data)))
        if key.upper() not in _KEYS:
            raise DataError(
                f"{path}: line {line_number}: unknown header entry {key[:40]!r}. The file is damaged or not"
                " PCD; export it again."
            )
        entries[key.upper()] = values
    raise DataError(f"{path}: no DATA line. The file is cut off or not PCD; export it again.")


def _build_header(
    path: Path, entries: dict[str, list[str]], encoding: list[str], data_line: int, data_offset: int
) -> _PcdHeader:
    if encoding not in (["ascii"], ["binary"], ["binary_compressed"]):
        raise DataError(
            f"{path}: line {data_line - 1}: DATA {' '.join(encoding)[:80]};"
            " expected ascii, binary or binary_compressed. Export the file again."
        )
    names = entries.get("FIELDS") or entries.get("COLUMNS") or []
    if not names:
        raise DataError(f"{path}: header entry FIELDS is missing. Add for example FIELDS x y z intensity.")
    sizes = _integers(path, entries, "SIZE", len(names), default=None)
    counts = _integers(path, entries, "COUNT", len(names), default=1)
    kinds = entries.get("TYPE", [])
    if len(kinds) != len(names):
        raise DataError(
            f"{path}: header entry TYPE has {len(kinds)} values for {len(names)} fields. Write one per field."
        )
    _check_coordinates(path, [name.lower() for name in names], counts)
    fields = tuple(
        _Field(name.lower(), _dtype(path, name, kind, size), count)
        for name, kind, size, count in zip(names, kinds, sizes, counts, strict=True)
        if count
    )
    return _PcdHeader(fields, _point_count(path, entries), encoding[0], data_line, data_offset)


def _check_coordinates(path: Path, names: list[str], counts: list[int]) -> None:
    """Refuse x, y or z of several numbers per point."""
    for name in ("x", "y", "z"):
        found = [count for field, count in zip(names, counts, strict=True) if field == name]
        if found and 1 not in found:
            raise DataError(
                f"{path}: field {name} has COUNT {found[0]}; expected COUNT 1, one coordinate per point."
                " Export the cloud again."
            )


def _integers(
    path: Path, entries: dict[str, list[str]], key: str, length: int, *, default: int | None
) -> list[int]:
    if key not in entries and default is not None:
        return [default] * length
    values = entries.get(key, [])
    numbers = [number for value in values if (number := parse_count(value)) is not None]
    if not len(numbers) == len(values) == length:
        raise DataError(
            f"{path}: header entry {key} is {' '.join(values)[:80] or 'missing'!r};"
            f" expected {length} whole number{'s' if length != 1 else ''}"
        )
    return numbers


def _dtype(path: Path, name: str, kind: str, size: int) -> np.dtype[Any]:
    if (kind.upper(), size) not in _TYPES:
        raise DataError(
            f"{path}: field {name[:40]} has TYPE {kind[:40]} and SIZE {size}; expected F 4|8, I or U 1|2|4|8"
        )
    return np.dtype(f"<{kind.lower()}{size}")


def _point_count(path: Path, entries: dict[str, list[str]]) -> int:
    if "WIDTH" not in entries:
        return _integers(path, entries, "POINTS", 1, default=None)[0]
    width = _integers(path, entries, "WIDTH", 1, default=None)[0]
    height = _integers(path, entries, "HEIGHT", 1, default=1)[0]
    points = _integers(path, entries, "POINTS", 1, default=width * height)[0]
    if points != width * height:
        raise DataError(
            f"{path}: POINTS {points} is not WIDTH {width} x HEIGHT {height}. Correct the header."
        )
    return points


def _ascii_fields(path: Path, header: _PcdHeader, body: bytes) -> dict[str, npt.NDArray[Any]]:
    columns = sum(field.count for field in header.fields)
    lines = enumerate(body.split(b"\n"), header.data_line)
    rows = [(number, line) for number, line in lines if line and not line.isspace()]
    for number, line in rows:
        count = len(line.split())
        if count != columns:
            raise DataError(
                f"{path}: line {number}: {count} values, expected {columns}. Export the file again."
            )
    if len(rows) != header.points:
        raise DataError(
            f"{path}: {len(rows)} points after DATA ascii, but the header promises {header.points}."
            " The file is cut off or POINTS is wrong; export it again."
        )
    places: dict[str, int] = {}
    dtypes = []
    column = 0
    for field in header.fields:
        if field.count == 1 and field.name != "_" and field.name not in places:
            places[field.name] = column
            dtypes.append(field.dtype)
        column += field.count
    table = parse_table(path, rows, places)
    return {
        name: restore_bytes(table[:, row], dtype)
        for row, (name, dtype) in enumerate(zip(places, dtypes, strict=True))
    }


def _compressed_fields(path: Path, header: _PcdHeader, body: memoryview) -> dict[str, npt.NDArray[Any]]:
    """Decompress the columns: two uint32 sizes, then LZF data, one whole column per field."""
    if len(body) < 8:
        raise DataError(f"{path}: truncated, the sizes of the compressed data are missing. Export it again.")
    compressed_size, size = struct.unpack("<II", body[:8])
    needed = header.points * header.row_bytes
    if size != needed:
        raise DataError(
            f"{path}: {size} uncompressed bytes, but the header promises {needed}. Export the file again."
        )
    if len(body) - 8 < compressed_size:
        missing = compressed_size - len(body) + 8
        raise DataError(f"{path}: truncated, {missing} compressed bytes are missing. Copy the file again.")
    try:
        data = decompress_lzf(bytes(body[8 : 8 + compressed_size]), size)
    except ValueError as error:
        raise DataError(f"{path}: damaged, {error}. Copy or export the file again.") from error
    fields: dict[str, npt.NDArray[Any]] = {}
    offset = 0
    for field in header.fields:
        if field.count == 1 and field.name != "_":
            column = np.frombuffer(data, field.dtype, count=header.points, offset=offset)
            fields.setdefault(field.name, column)
        offset += field.width_bytes * header.points
    return fields
