"""Half-precision vectors as base64 in the records of ``detections.jsonl``.

``{"format": "float16", "dim": 128, "base64": "..."}`` holds consecutive rows of ``dim`` little-endian 16-bit
IEEE 754 numbers (docs/memory-format.md). The memory stores the same precision.
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
    """Return (N, dim) float32 rows as a JSON object.

    Raises:
        ValueError: a number is not finite in half precision.
    """
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(rows, "<f2")
    if not np.isfinite(half).all():
        raise ValueError("numbers must be finite and at most 65504")
    return {"format": FORMAT, "dim": rows.shape[1], "base64": base64.b64encode(half.tobytes()).decode()}


def unpacked(value: object, name: str) -> npt.NDArray[np.float32]:
    """Return the (N, dim) float32 rows of an object from :func:`packed`.

    Args:
        value: JSON object.
        name: name of the field in messages.

    Raises:
        ValueError: not an object of this format.
    """
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise ValueError(f"{name} must be an object with format {FORMAT!r}, dim and base64")
    dim = value.get("dim")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"{name}: dim must be a whole number above 0, got {dim!r}")
    try:
        raw = base64.b64decode(value.get("base64", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{name}: invalid base64 ({error})") from error
    if len(raw) % (2 * dim):
        raise ValueError(f"{name}: {len(raw)} bytes are not a multiple of {dim} numbers of two bytes")
    return np.frombuffer(raw, "<f2").reshape(-1, dim).astype(np.float32)
