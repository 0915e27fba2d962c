"""Choice of a memory to drive to, and of the pose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memory.questions.answers import DrivePose
from memory.questions.meaning import Meanings, Target
from memory.questions.whereabouts import LATEST_SEEN
from memory.types import AWAY, Memory, check_numbers
from memory.wording.words import STATE_WORDS, duration, listed, moment, name, plural

#: Standard deviation of a position without covariance, in metres.
SIGMA_M = 0.3


def pose_to(
    meanings: Meanings,
    meant: Target,
    *,
    distance_m: float,
    coming_from: tuple[float, ...] | None,
    half_life_s: float,
) -> DrivePose:
    """Choose a memory and a pose in front of it; see :meth:`memory.questions.Questions.pose_to`."""
    here = meant._replace(filter=replace(meant.filter, states=("present", "unknown")))
    found = meanings.memories(here, newest_first=True, limit=LATEST_SEEN)
    here_now = [memory for memory in found if memory.state not in AWAY]
    there = [memory for memory in here_now if memory.position is not None]
    if here_now and not there:
        where = listed([f"the position of {name(memory)} is not known" for memory in here_now])
        return DrivePose(meant.words, None, None, None, reason=where)
    if not there:
        left = meanings.memories(meant, newest_first=True, limit=LATEST_SEEN)
        away = listed([f"{name(memory)} is {STATE_WORDS[memory.state]}" for memory in left]) if left else ""
        return DrivePose(meant.words, None, None, None, reason=away)
    best = most_trusted(there, half_life_s)
    away_m = 0.0 if best.kind == "place" else distance_m
    position, yaw = standing_off(best, away_m, coming_from)
    old = (max(each.last_sight_ns for each in there) - best.last_sight_ns) / 1e9
    reason = (
        f"the most certain and recent of {plural(len(there), 'memory', 'memories')}: confidence"
        f" {best.confidence:.2f}, seen on {moment(best.last_sight_ns)}"
        + (f", {duration(old)} before the newest" if old > 0.0 else "")
    )
    return DrivePose(meant.words, best, position, yaw, best.covariance, away_m, reason)


def most_trusted(memories: Sequence[Memory], half_life_s: float) -> Memory:
    """Return the memory with the highest confidence, discounted by age and position uncertainty."""
    newest = max(each.last_sight_ns for each in memories)

    def trust(memory: Memory) -> float:
        age_s = (newest - memory.last_sight_ns) / 1e9
        return float(memory.confidence * 0.5 ** (age_s / half_life_s) / (1.0 + sigma_m(memory)))

    return max(memories, key=trust)


def sigma_m(memory: Memory) -> float:
    """Return the largest standard deviation of the position in the plane, in metres."""
    if memory.covariance is None:
        return SIGMA_M / math.sqrt(memory.count)
    return math.sqrt(max(float(np.linalg.eigvalsh(memory.covariance[:2, :2])[-1]), 0.0))


def standing_off(
    memory: Memory, distance_m: float, start: tuple[float, ...] | None
) -> tuple[tuple[float, float, float], float]:
    """Return position and yaw at a distance from an object, facing it."""
    if start is not None:
        start = check_numbers("coming_from", start, 3 if len(start) > 2 else 2)
    x, y, z = memory.place
    height = start[2] if start is not None and len(start) == 3 else z
    if memory.kind == "place":
        return (x, y, height), memory.yaw
    bearing = memory.yaw  # Direction from the object to the robot.
    if start is not None and math.hypot(start[0] - x, start[1] - y) > 1e-9:
        bearing = math.atan2(start[1] - y, start[0] - x)
    yaw = math.remainder(bearing + math.pi, 2.0 * math.pi)
    position = (x + distance_m * math.cos(bearing), y + distance_m * math.sin(bearing), height)
    return position, math.pi if yaw == -math.pi else yaw
