"""Robots that saw an object, when and how often, as the payload of a shared memory records it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory, saturated

#: Payload field: robot -> first nanosecond, last nanosecond, number of observations.
SEEN_BY = "seen_by"
#: A memory below this share of the highest trust does not decide contradictions.
BELIEVED = 0.5


class SeenBy(NamedTuple):
    """One robot's observations of an object.

    Attributes:
        first_ns, last_ns: times of the first and last one, by its clock.
        sights: their number.
    """

    first_ns: int
    last_ns: int
    sights: int


def seen_by(memory: Memory) -> dict[str, SeenBy]:
    """Return the observations by robot; empty if the payload field is missing or invalid."""
    field = memory.payload.get(SEEN_BY)
    if not isinstance(field, Mapping):
        return {}
    return {
        str(robot): SeenBy(*numbers)
        for robot, numbers in field.items()
        if isinstance(numbers, list | tuple) and len(numbers) == 3 and all(type(at) is int for at in numbers)
    }


def only_robot(memory: Memory) -> str | None:
    """Return the robot that saw it, if there is exactly one."""
    shares = seen_by(memory)
    return next(iter(shares)) if len(shares) == 1 else None


def trust_of(memory: Memory, trust: Mapping[str, float]) -> float:
    """Return the trust of a memory: that of the most trusted robot that saw it; 1 without robots.

    Args:
        memory: the memory; its parts were weighted by trust when they were merged.
        trust: from 0 to 1 by robot; others count as 1.
    """
    return max((trust.get(robot, 1.0) for robot in seen_by(memory)), default=1.0) if trust else 1.0


def weights_of(memories: Sequence[Memory], trust: Mapping[str, float]) -> NDArray[np.float64]:
    """Return (N,) float64 trust relative to the highest; 1 for all if the highest is 0."""
    found = np.array([trust_of(memory, trust) for memory in memories], dtype=np.float64)
    most = found.max(initial=0.0)
    return found / most if most > 0.0 else np.ones(len(found))


def share_of(memory: Memory) -> SeenBy:
    """Return all observations of a memory as those of the robot that sent it."""
    return SeenBy(memory.first_sight_ns, memory.last_sight_ns, int(memory.count))


def join_robots(memories: Iterable[Memory]) -> dict[str, Any]:
    """Return the payload field of a merged memory; empty if no robot is known."""
    shares: dict[str, SeenBy] = {}
    for memory in memories:
        for robot, share in seen_by(memory).items():
            known = shares.get(robot)
            shares[robot] = share if known is None else _add(known, share)
    return {SEEN_BY: {robot: list(shares[robot]) for robot in sorted(shares)}} if shares else {}


def _add(one: SeenBy, other: SeenBy) -> SeenBy:
    return SeenBy(
        min(one.first_ns, other.first_ns),
        max(one.last_ns, other.last_ns),
        saturated(one.sights + other.sights),
    )
