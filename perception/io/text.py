"""Text files of numbers, with errors that name file, line and field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from sparse_core.common.files import write_file

_MOST_DIGITS = 18


def read_text(path: Path, expected: str) -> str:
    """Read a text file; raise ``DataError``, which names the ``expected`` content, if that fails."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: reading failed ({error.strerror}). It must contain {expected}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file in UTF-8; expected {expected}.") from error


def read_rows(path: Path, expected: str) -> list[tuple[int, str]]:
    """Read the rows of a file with one row per scan.

    Comments (``#``) do not count. An empty line is the row of a scan without a value.

    Returns:
        Line number, from 1, and stripped text of each row.

    Raises:
        DataError: see :func:`read_text`.
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
        raise DataError(f"{path}: writing failed ({error.strerror}). Check the folder.") from error


def parse_count(word: str) -> int | None:
    """Parse a whole number of at most 18 digits, or return None.

    Python raises an error for numbers of thousands of digits, which damaged files may hold.
    """
    return int(word) if len(word) <= _MOST_DIGITS and word.isascii() and word.isdigit() else None


def parse_number(place: str, name: str, word: str) -> float:
    """Parse a finite number; ``place`` and ``name`` are file, line and field for the message.

    Raises:
        DataError: the word is not a finite number.
    """
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{place}: field {name} is {word[:80]!r}; expected a finite number")
    return value


def parse_table(
    path: Path, rows: Sequence[tuple[int, bytes]], columns: Mapping[str, int]
) -> npt.NDArray[np.float64]:
    """Parse some columns of rows of words as (N, C) numbers, which may be NaN or infinite.

    Args:
        path: the file, for messages.
        rows: line number and line of each row, with enough words.
        columns: index of each column by its name.

    Raises:
        DataError: a word is not a number.
    """
    if not rows or not columns:
        return np.zeros((len(rows), len(columns)))
    lines = (line.decode("ascii", errors="replace") for _, line in rows)
    try:
        return np.loadtxt(lines, usecols=tuple(columns.values()), comments=None, ndmin=2)
    except ValueError as error:
        for number, line in rows:
            words = line.decode("ascii", errors="replace").split()
            for name, column in columns.items():
                try:
                    float(words[column])
                except ValueError:
                    raise DataError(
                        f"{path}: line {number}: field {name} is {words[column][:40]!r}, not a number."
                        " Correct the line."
                    ) from error
        raise DataError(
            f"{path}: not rows of numbers ({str(error)[:200]}). Export the file again."
        ) from error
