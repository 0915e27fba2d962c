"""Sizes of objects, which say how close two of them can be."""

from __future__ import annotations

import math

from memory.types import Memory

#: Two solid objects cannot be in one place: centres within this share of half the shorter side are of one.
ONE_PLACE = 0.7


def size_of(memory: Memory) -> tuple[float, float, float] | None:
    """Return length, width and height of an object in metres from ``size_m`` of its payload, if valid."""
    size = memory.payload.get("size_m")
    if not isinstance(size, list | tuple) or len(size) != 3:
        return None
    if not all(isinstance(one, int | float) and math.isfinite(one) and one > 0 for one in size):
        return None
    length, width, height = (float(one) for one in size)
    return length, width, height
