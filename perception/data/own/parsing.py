"""JSON of labels, and errors that name file, object and field."""

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
    """What a JSON file holds.

    Raises:
        DataError: it is missing or no JSON; names the line.
    """
    try:
        return json.loads(read_text(path, "labels as JSON"))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: line {error.lineno}: not JSON ({error.msg}); export the labels again"
        ) from error
    except (RecursionError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        # Nested too deep, or whole numbers of thousands of digits.
        raise DataError(f"{path}: not JSON that can be read; export the labels again") from error


def peek_json(path: Path) -> Any:
    """What a JSON file holds; None where it is none."""
    try:
        return read_json(path)
    except DataError:
        return None


def items_of(place: str, name: str, holder: Any) -> list[Mapping[str, Any]]:
    """The objects of a list.

    Args:
        place: of the list, for messages.
        name: of the list, for messages.
        holder: what should be the list.

    Raises:
        DataError: it is none, or something in it is no object.
    """
    if not isinstance(holder, list) or not all(isinstance(item, Mapping) for item in holder):
        raise DataError(f"{place}: {name} must be a list of objects, got {_short(holder)}")
    return holder


def field_of(place: str, holder: Mapping[str, Any], name: str) -> Any:
    """A field that must be there.

    Raises:
        DataError: it is not.
    """
    if name not in holder:
        raise DataError(f"{place}: field {name} is missing among {', '.join(holder)[:200] or 'none'}")
    return holder[name]


def text_of(place: str, holder: Mapping[str, Any], name: str) -> str:
    """A field that must be text.

    Raises:
        DataError: it is missing, empty or something else.
    """
    value = field_of(place, holder, name)
    if not isinstance(value, str) or not value:
        raise DataError(f"{place}: field {name} must be a name, got {_short(value)}")
    return value


def numbers_of(place: str, name: str, value: Any, count: int) -> list[float]:
    """Finite numbers of a list, or of an object by ``x``, ``y``, ``z`` and the like in its order.

    Raises:
        DataError: other numbers than so many, or not finite.
    """
    values = list(value.values()) if isinstance(value, Mapping) else value
    good = isinstance(values, list) and len(values) == count and all(map(_is_finite, values))
    if not good:
        raise DataError(f"{place}: field {name} must be {count} finite numbers, got {_short(value)}")
    return [float(number) for number in values]


def vector_of(
    place: str, holder: Mapping[str, Any], name: str, keys: Sequence[str] = ("x", "y", "z")
) -> npt.NDArray[np.float64]:
    """(3,) float64 numbers of a field with named components.

    Raises:
        DataError: one is missing or not finite.
    """
    value = field_of(place, holder, name)
    if not isinstance(value, Mapping):
        raise DataError(f"{place}: field {name} must have {', '.join(keys)}, got {_short(value)}")
    parts = [field_of(f"{place}: {name}", value, key) for key in keys]
    return np.array(numbers_of(place, name, parts, len(keys)))


def identities(values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """(M,) int64 identities, where all are whole numbers, as numbers or text; else None."""
    texts = [str(value) for value in values]
    whole = all(
        text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 18
        for text in texts
    )
    return np.array([int(text) for text in texts], np.int64) if texts and whole else None


def table(rows: Sequence[Sequence[float]], columns: int = 7) -> npt.NDArray[np.float64]:
    """(M, columns) float64, also of no row."""
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
