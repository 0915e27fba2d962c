"""Vectors in the lines of ``detections.jsonl``: rows of half precision in base 64.

``{"format": "float16", "dim": 128, "base64": "..."}``: rows of ``dim`` little-endian IEEE 754 numbers of 16
bits. A store keeps vectors in the same precision, so nothing is lost on the way.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FORMAT = "float16"


def dim_of(value: object, name: str) -> int:
    """How many numbers a row has.

    Raises:
        ValueError: not such an object; names the field.
    """
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise ValueError(f"{name} must be an object with format {FORMAT!r}, dim and base64")
    dim = value.get("dim")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"{name}: dim must be a whole number above 0, got {dim!r}")
    return dim


def rows_of(value: object, name: str, count: int | None = None) -> NDArray[np.float32]:
    """(N, dim) float32, finite.

    Args:
        value: of the JSON record.
        name: of the field, for messages.
        count: rows that there must be; any number by default.

    Raises:
        ValueError: not such an object, or other rows; names the field.
    """
    dim = dim_of(value, name)
    assert isinstance(value, Mapping)
    try:
        raw = base64.b64decode(value.get("base64", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{name}: base64 cannot be read ({error})") from error
    if len(raw) % (2 * dim):
        raise ValueError(f"{name}: {len(raw)} bytes are no rows of {dim} numbers of two bytes")
    rows = np.frombuffer(raw, "<f2").reshape(-1, dim).astype(np.float32)
    if count is not None and len(rows) != count:
        raise ValueError(f"{name} must have {count} rows, one a box, got {len(rows)}")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name} must be finite: {int((~np.isfinite(rows)).sum())} numbers are not")
    return rows
