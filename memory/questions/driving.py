"""Which memory to drive to, and where to stand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memory.types import Memory, check_numbers

#: Standard deviation of a position that has no covariance, in metres.
SIGMA_M = 0.3


def most_trusted(memories: Sequence[Memory], half_life_s: float) -> Memory:
    """The one with the largest confidence, less for its age and for the uncertainty of its position.

    Confidence is halved for every ``half_life_s`` that a memory is older than the newest, and divided by one
    plus the standard deviation of the position in metres; of equals the first.
    """
    newest = max(each.last_sight_ns for each in memories)

    def trust(memory: Memory) -> float:
        age_s = (newest - memory.last_sight_ns) / 1e9
        return float(memory.confidence * 0.5 ** (age_s / half_life_s) / (1.0 + sigma_m(memory)))

    return max(memories, key=trust)


def sigma_m(memory: Memory) -> float:
    """The largest standard deviation of its position in the plane, in metres."""
    if memory.covariance is None:
        return SIGMA_M / math.sqrt(memory.count)
    return math.sqrt(max(float(np.linalg.eigvalsh(memory.covariance[:2, :2])[-1]), 0.0))


def standing_off(
    memory: Memory, distance_m: float, start: tuple[float, ...] | None
) -> tuple[tuple[float, float, float], float]:
    """Position and yaw at a distance before a thing, facing it.

    Raises:
        ValueError: the start has not two or three numbers, or it is not known where the thing is.
    """
    if start is not None:
        start = check_numbers("coming_from", start, 3 if len(start) > 2 else 2)
    x, y, z = memory.place
    height = start[2] if start is not None and len(start) == 3 else z
    if memory.kind == "place":
        return (x, y, height), memory.yaw
    bearing = memory.yaw  # Of the pose as the thing sees it.
    if start is not None and math.hypot(start[0] - x, start[1] - y) > 1e-9:
        bearing = math.atan2(start[1] - y, start[0] - x)
    yaw = math.remainder(bearing + math.pi, 2.0 * math.pi)
    position = (x + distance_m * math.cos(bearing), y + distance_m * math.sin(bearing), height)
    return position, math.pi if yaw == -math.pi else yaw
