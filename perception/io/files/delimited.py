"""Points as text: ``.csv``, ``.txt`` and ``.xyz``, one point per line, with or without a header line.

Separators are commas, semicolons (then ``1,5`` is a decimal comma), tabs or spaces. Lines with ``#`` or
``//`` are comments, unless they name the columns. A single whole number before the points is their count, as
in ``.pts`` files and CloudCompare. Files are read in pieces to save memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.columns import parse_columns
from perception.io.files.headings import Headings, parse_headings
from perception.io.raw import RawCloud, as_float32, check_near_origin, intensity_names, pick_intensity
from perception.io.text import parse_count
from perception.types import FloatArray

#: Characters per piece, and the most lines before the first point.
_PIECE, _MOST_HEAD = 1 << 23, 200
_ADVICE = (
    "Name the columns, for example --columns x,y,z,intensity,_ (load_point_cloud(columns=...)), or add a"
    " header line."
)
#: Column names of boxes and poses, which points do not have.
_OF_BOXES = frozenset({"length", "width", "height", "yaw", "l", "w", "h", "rotation_y", "heading", "qw"})
#: Column counts of unnamed tables that are taken for points in folders.
_USUAL_COLUMNS = range(3, 8)


class _Layout(NamedTuple):
    """How a file writes its points.

    Attributes:
        separator: separator of numbers; None means white space.
        names: column names.
        metres: metres per unit of the coordinates.
        first_line: line of the first point, from 1.
        promised: number of points that the file declares, or None.
        quoted: True if numbers stand in quotes.
    """

    separator: str | None
    names: tuple[str, ...]
    metres: float
    first_line: int
    promised: int | None
    quoted: bool


def read_delimited(path: Path, columns: Sequence[str] | None = None) -> RawCloud:
    """Read x, y, z and intensity by column names or order; an empty file is an empty cloud.

    Without names, three columns are x, y, z and a fourth is intensity. Names may have a unit, such as
    ``X (mm)`` or ``y_cm``, which is converted to metres. ``columns`` overrides the names in the file.

    Raises:
        DataError: the file is not text, x, y or z is missing, a unit is unknown, a value is not a number,
            points are missing, or coordinates are of a map.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            return _read(path, file, columns)
    except OSError as error:
        raise DataError(f"{path}: reading failed ({error.strerror}). Check the path.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8; expected one point per line.") from error


def write_delimited(path: Path, points: FloatArray, separator: str = " ") -> None:
    """Write (N, 4) float32 points without loss, below a header line."""
    header = separator.join(("x", "y", "z", "intensity"))
    np.savetxt(path, points, fmt="%.9g", delimiter=separator, header=header, comments="", encoding="ascii")


def looks_like_points(path: Path) -> bool:
    """Return True if a text file begins with points, and not with boxes, poses or times."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = list(islice(iter(lambda: file.readline(_PIECE), ""), _MOST_HEAD))
        headings, row, _ = _head(path, head)
    except (OSError, UnicodeDecodeError, DataError):
        return False
    if headings is not None:
        return headings.complete and not _OF_BOXES & set(headings.names)
    return row is not None and len(_words(row, _separator(row))) in _USUAL_COLUMNS


def _read(path: Path, file: TextIO, columns: Sequence[str] | None) -> RawCloud:
    lines = file.readlines(_PIECE)
    if any("\0" in line for line in lines[:_MOST_HEAD]):
        raise DataError(f"{path}: not a text file, or UTF-16. Save it as UTF-8 with one point per line.")
    layout = _layout(path, lines, columns)
    if layout is None:
        return RawCloud(np.zeros((0, 3), np.float32), None)
    places = [layout.names.index(name) for name in ("x", "y", "z")]
    bright = intensity_names(layout.names)
    places += [layout.names.index(name) for name in bright]
    found: list[FloatArray] = []
    rest, at = lines[layout.first_line - 1 :], layout.first_line
    while rest:
        table = _table(path, rest, at, layout, places)
        if len(table):
            table[:, :3] *= layout.metres
            if not found:
                check_near_origin(path, table[:, :3])
            found.append(as_float32(table))
        at, rest = at + len(rest), file.readlines(_PIECE)
    points = np.concatenate(found) if found else np.zeros((0, len(places)), np.float32)
    if layout.promised not in (None, len(points)):
        raise DataError(
            f"{path}: {len(points)} points, but the first line promises {layout.promised}. Copy the file"
            " again."
        )
    fields = {name: points[:, place].copy() for place, name in enumerate(bright, 3)}
    return RawCloud(np.ascontiguousarray(points[:, :3]), pick_intensity(fields))


def _layout(path: Path, lines: list[str], columns: Sequence[str] | None) -> _Layout | None:
    """Recognise the layout of a file; None if it holds no point."""
    headings, row, promised = _head(path, lines, columns)
    if row is None:
        if headings is None and promised is None and any(line.strip() for line in lines):
            raise DataError(f"{path}: no line of numbers found. Write one point per line.")
        return None
    separator, metres = _separator(row), 1.0
    count = len(_words(row, separator))
    first = lines.index(row) + 1
    place = f"{path}: line {first}"
    if columns is not None:
        if len(columns) != count:
            raise DataError(f"{place}: {count} columns, but --columns names {len(columns)}. {_ADVICE}")
        names = tuple(columns)
    elif headings is not None:
        if len(headings.names) > count:
            raise DataError(
                f"{place}: {count} columns, but the header has {len(headings.names)} names. Correct the"
                " header."
            )
        names, metres = headings.names, headings.metres(path)
    elif count in (3, 4):
        names = parse_columns(count)
    else:
        raise DataError(f"{place}: {count} columns without names. {_ADVICE}")
    return _Layout(separator, names, metres, first, promised, '"' in row)


def _head(
    path: Path, lines: list[str], columns: Sequence[str] | None = None
) -> tuple[Headings | None, str | None, int | None]:
    """Return the column names, the first line of numbers, and the declared number of points."""
    headings, promised = None, None
    for number, line in enumerate(lines[:_MOST_HEAD], 1):
        bare = line.strip()
        if not bare:
            continue
        commented = bare.startswith(("#", "//"))
        words = _words(bare.lstrip("#/").strip(), _separator(bare))
        if not commented and len(words) == 1 and promised is None and headings is None:
            promised = parse_count(words[0])
            if promised is not None:
                continue
        if not commented and (headings is not None or _is_row(words, columns)):
            return headings, line, promised
        named = parse_headings(words)
        if named.complete:
            headings = named
        elif not commented and columns is None:
            named.check(f"{path}: line {number}")
    return headings, None, promised


def _is_row(words: list[str], columns: Sequence[str] | None) -> bool:
    """Return True if all words, or those of known x, y and z, are numbers."""
    if columns is not None and len(columns) == len(words):
        words = [words[columns.index(name)] for name in ("x", "y", "z")]
    return bool(words) and all(map(_is_number, words))


def _table(
    path: Path, lines: list[str], first: int, layout: _Layout, places: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Parse lines to (N, C) numbers; ``first`` is the number of the first line in the file."""
    if layout.separator == ";":
        lines = [line.replace(",", ".") for line in lines]
    if layout.quoted:
        lines = [line.replace('"', "") for line in lines]
    if not any(line.strip() and not line.startswith("#") for line in lines):
        return np.zeros((0, len(places)))
    try:
        return np.loadtxt(lines, delimiter=layout.separator, usecols=places, ndmin=2)
    except ValueError as error:
        for number, words in _rows(lines, first, layout.separator):
            for place in places:
                name = layout.names[place]
                if place >= len(words):
                    raise DataError(
                        f"{path}: line {number}: {len(words)} values, column {place + 1} ({name}) is missing."
                        " Complete or delete the line."
                    ) from error
                if not _is_number(words[place]):
                    raise DataError(
                        f"{path}: line {number}: column {name} is {words[place][:80]!r}. Write a number."
                    ) from error
        raise DataError(
            f"{path}: from line {first}: not rows of numbers ({str(error)[:200]}). Correct the lines."
        ) from error


def _rows(lines: list[str], first: int, separator: str | None) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, first):
        if bare := line.partition("#")[0].strip():
            yield number, [word.strip() for word in bare.split(separator)]


def _separator(line: str) -> str | None:
    return next((mark for mark in ";,\t" if mark in line), None)


def _words(line: str, separator: str | None) -> list[str]:
    """Split a line into words without quotes, and drop an empty last word."""
    words = [word.strip().strip('"') for word in line.strip().split(separator)]
    return words[:-1] if words and not words[-1] else words


def _is_number(word: str) -> bool:
    try:
        float(word.replace(",", "."))
    except ValueError:
        return False
    return "_" not in word
