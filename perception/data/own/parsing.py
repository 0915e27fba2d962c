"""Parsing of JSON labels, with errors that name file, object and field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.text import read_text


def read_json(path: Path) -> Any:
    """Read a JSON file; raise ``DataError`` if it is missing or invalid."""
    try:
        return json.loads(read_text(path, "labels as JSON"))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: line {error.lineno}: not valid JSON ({error.msg}). Export the labels again."
        ) from error
    except (RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        # Nested too deeply, or integers of thousands of digits.
        raise DataError(f"{path}: unreadable JSON. Export the labels again.") from error


def peek_json(path: Path) -> Any:
    """Read a JSON file, or return None if it is invalid."""
    try:
        return read_json(path)
    except DataError:
        return None


def items_of(place: str, name: str, holder: Any) -> list[Mapping[str, Any]]:
    """Check that a value is a list of objects; raise ``DataError``, with place and name, if not."""
    if not isinstance(holder, list) or not all(isinstance(item, Mapping) for item in holder):
        raise DataError(f"{place}: {name} must be a list of objects, got {_short(holder)}")
    return holder


def field_of(place: str, holder: Mapping[str, Any], name: str) -> Any:
    """Return a field; raise ``DataError`` if it is missing."""
    if name not in holder:
        raise DataError(
            f"{place}: field {name} is missing; fields: {', '.join(holder)[:200] or 'none'}. Export the"
            " labels again."
        )
    return holder[name]


def text_of(place: str, holder: Mapping[str, Any], name: str) -> str:
    """Return a text field; raise ``DataError`` if it is missing, empty or not text."""
    value = field_of(place, holder, name)
    if not isinstance(value, str) or not value:
        raise DataError(f"{place}: field {name} must be a name, got {_short(value)}")
    return value


def class_of(place: str, holder: Mapping[str, Any], name: str) -> str:
    """Return a field with the class of an object; "" if it is empty or null, see ``without_nameless``."""
    return "" if field_of(place, holder, name) in ("", None) else text_of(place, holder, name)


def numbers_of(place: str, name: str, value: Any, count: int) -> list[float]:
    """Return the finite numbers of a list or of an object's values; raise ``DataError`` for others."""
    values = list(value.values()) if isinstance(value, Mapping) else value
    good = isinstance(values, list) and len(values) == count and all(map(_is_finite, values))
    if not good:
        raise DataError(f"{place}: field {name} must be {count} finite numbers, got {_short(value)}")
    return [float(number) for number in values]


def vector_of(
    place: str, holder: Mapping[str, Any], name: str, keys: Sequence[str] = ("x", "y", "z")
) -> npt.NDArray[np.float64]:
    """Return (3,) float64 of a field with named components; raise ``DataError`` for others."""
    value = field_of(place, holder, name)
    if not isinstance(value, Mapping):
        raise DataError(f"{place}: field {name} must have {', '.join(keys)}, got {_short(value)}")
    parts = [field_of(f"{place}: {name}", value, key) for key in keys]
    return np.array(numbers_of(place, name, parts, len(keys)))


def identities(values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Return (M,) int64 identities if all are integers, also as text; else None."""
    texts = [str(value) for value in values]
    whole = all(
        text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 18
        for text in texts
    )
    return np.array([int(text) for text in texts], np.int64) if texts and whole else None


def table(rows: Sequence[Sequence[float]], columns: int = 7) -> npt.NDArray[np.float64]:
    """Return rows as (M, columns) float64, also for no rows."""
    return np.array(rows, np.float64).reshape(-1, columns)


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _short(value: Any) -> str:
    return repr(value)[:80]
