"""Text files with one JSON object per line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from memory.errors import DataError

#: Longest line of a stream in bytes; a frame with thousands of boxes has a few million.
MOST_BYTES = 1 << 26


class Line(NamedTuple):
    """A line of a file, or a row of a table.

    Attributes:
        number: counted from 1.
        raw: its bytes without the line ending.
    """

    number: int
    raw: bytes


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, or raise ``DataError``."""
    try:
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                yield Line(number, raw.rstrip(b"\r\n"))
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror})") from error


class StreamLines:
    """One pass over the lines of a stream; only the first line is buffered.

    Raises:
        DataError: while reading, if a line exceeds ``MOST_BYTES`` or the stream fails.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._number = 0
        self._held: Line | None = None

    def first(self) -> Line | None:
        """Return the first non-empty line without consuming it, or ``None`` at the end of the stream."""
        if self._held is None:
            self._held = next((line for line in self if line.raw.strip()), None)
        return self._held

    def __iter__(self) -> Iterator[Line]:
        if self._held is not None:
            held, self._held = self._held, None
            yield held
        while raw := self._read():
            self._number += 1
            yield Line(self._number, raw.rstrip(b"\r\n"))

    def _read(self) -> bytes:
        try:
            raw = self._stream.readline(MOST_BYTES + 1)
        except OSError as error:
            raise DataError(f"{self._name}: cannot read the stream ({error.strerror})") from error
        if len(raw) > MOST_BYTES:
            raise DataError(f"{self._name}:{self._number + 1}: the line is longer than {MOST_BYTES} bytes")
        return raw


def parse_object(path: Path, line: Line) -> dict[str, Any]:
    """Return the JSON object of a line, or raise ``DataError``."""
    place = f"{path}:{line.number}"
    try:
        # Editors on Windows begin a file with a byte order mark.
        raw = line.raw.removeprefix(codecs.BOM_UTF8) if line.number == 1 else line.raw
        found = json.loads(raw.decode("utf-8"), parse_constant=_reject)
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON ({error})") from error
    if not isinstance(found, dict):
        fix = ". Write each object of the list on a line of its own" if isinstance(found, list) else ""
        raise DataError(f"{place}: expected one JSON object per line, got {type(found).__name__}{fix}")
    return found


def _reject(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
