"""Text files with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from memory.errors import DataError


class Line(NamedTuple):
    """A line of a file, or a row of a table.

    Attributes:
        number: from 1.
        raw: its bytes, without the end of the line.
    """

    number: int
    raw: bytes


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                yield Line(number, raw.rstrip(b"\r\n"))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error


def parse_object(path: Path, line: Line) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        DataError: names file and line.
    """
    place = f"{path}:{line.number}"
    try:
        found = json.loads(line.raw.decode("utf-8"), parse_constant=_reject)
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: no JSON ({error})") from error
    if not isinstance(found, dict):
        raise DataError(f"{place}: expected a JSON object, got {type(found).__name__}")
    return found


def _reject(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")
