"""Rows of numbers in the records of ``detections.jsonl``: half precision, in base 64.

``{"format": "float16", "dim": 128, "base64": "..."}`` holds rows of ``dim`` little-endian IEEE 754 numbers
of 16 bits, one after the other (docs/memory-format.md). The memory keeps unit vectors in the same precision,
so what is written is what is stored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT = "float16"


def packed(rows: npt.NDArray[np.float32]) -> dict[str, Any]:
    """(N, dim) float32 as a JSON object; numbers beyond half precision's 65504 are refused.

    Raises:
        ValueError: a number is not finite in half precision.
    """
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(rows, "<f2")
    if not np.isfinite(half).all():
        raise ValueError("numbers must be finite and at most 65504")
    return {"format": FORMAT, "dim": rows.shape[1], "base64": base64.b64encode(half.tobytes()).decode()}


def unpacked(value: object, name: str) -> npt.NDArray[np.float32]:
    """(N, dim) float32 of what :func:`packed` made.

    Args:
        value: of the JSON record.
        name: of the field, for messages.

    Raises:
        ValueError: not such an object; names the field.
    """
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise ValueError(f"{name} must be an object with format {FORMAT!r}, dim and base64")
    dim = value.get("dim")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"{name}: dim must be a whole number above 0, got {dim!r}")
    try:
        raw = base64.b64decode(value.get("base64", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{name}: base64 cannot be read ({error})") from error
    if len(raw) % (2 * dim):
        raise ValueError(f"{name}: {len(raw)} bytes are no rows of {dim} numbers of two bytes")
    return np.frombuffer(raw, "<f2").reshape(-1, dim).astype(np.float32)
