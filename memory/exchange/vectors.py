"""Vectors in ``detections.jsonl``: half-precision rows in base 64.

``{"format": "float16", "dim": 128, "base64": "..."}`` holds rows of ``dim`` little-endian 16-bit floats. A
store uses the same precision, so the conversion is lossless.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

FORMAT = "float16"


def dim_of(value: object, name: str) -> int:
    """Return the length of a row, or raise ``ValueError``."""
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise ValueError(f"{name} must be an object with format {FORMAT!r}, dim and base64")
    dim = value.get("dim")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"{name}: dim must be a whole number above 0, got {dim!r}")
    return dim


def rows_of(value: object, name: str, count: int | None = None) -> NDArray[np.float32]:
    """Return the rows as finite float32 (N, dim).

    Args:
        count: required number of rows; any by default.

    Raises:
        ValueError: the value is not such an object, or has another number of rows.
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
        raise ValueError(f"{name} must have {count} rows, one per box, got {len(rows)}")
    if not np.isfinite(rows).all():
        raise ValueError(f"{name} must be finite: {int((~np.isfinite(rows)).sum())} numbers are not")
    return rows
