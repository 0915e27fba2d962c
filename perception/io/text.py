"""Text files of numbers: reading, writing, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perception.errors import DataError
from sparse_core.common.files import write_file

_MOST_DIGITS = 18


def read_text(path: Path, expected: str) -> str:
    """The text of a file.

    Args:
        path: the file.
        expected: what should be there, for the message.

    Raises:
        DataError: the file is missing or no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot read the file ({error.strerror}); expected {expected}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file; expected {expected}") from error


def read_rows(path: Path, expected: str) -> list[tuple[int, str]]:
    """Read a file in which a row belongs to a scan by its place.

    Comments (``#``) are no rows. An empty line is an empty row: its scan has no value, and those of the scans
    after it stay theirs.

    Args:
        path: the file.
        expected: what should be there, for the message.

    Returns:
        Number of the line, from 1, and its text without white space at both ends.

    Raises:
        DataError: as for :func:`read_text`.
    """
    lines = enumerate(read_text(path, expected).splitlines(), 1)
    return [(number, line.strip()) for number, line in lines if not line.lstrip().startswith("#")]


def write_text(path: Path, text: str) -> None:
    """Write a text file.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        write_file(path, text, durable=False)
    except OSError as error:
        raise DataError(f"{path}: cannot write the file ({error.strerror}); check the folder") from error


def parse_count(word: str) -> int | None:
    """The whole number from 0 that a word stands for; None where it is none, or has over 18 digits.

    Python refuses to read, and to print, whole numbers of thousands of digits; none that counts something in
    a file has so many.
    """
    return int(word) if len(word) <= _MOST_DIGITS and word.isascii() and word.isdigit() else None


def parse_number(place: str, name: str, word: str) -> float:
    """The finite number that a word of a text file stands for.

    Args:
        place: file and line, for the message.
        name: the field, for the message.
        word: the text.

    Raises:
        DataError: the word is no finite number.
    """
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{place}: field {name} is {word[:80]!r}; expected a finite number")
    return value
