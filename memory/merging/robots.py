"""Which robots saw a thing, when and how often: what a memory of many robots keeps of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory, saturated

#: Field of a payload: name of a robot -> its first nanosecond, its last and how many sights.
SEEN_BY = "seen_by"
#: What is trusted less than this share of the most trusted does not decide where they contradict each other.
BELIEVED = 0.5


class SeenBy(NamedTuple):
    """What one robot saw of a thing.

    Attributes:
        first_ns, last_ns: of its sights, by its clock.
        sights: how many.
    """

    first_ns: int
    last_ns: int
    sights: int


def seen_by(memory: Memory) -> dict[str, SeenBy]:
    """By robot; nothing where the payload says nothing, or something else by that name."""
    said = memory.payload.get(SEEN_BY)
    if not isinstance(said, Mapping):
        return {}
    return {
        str(robot): SeenBy(*numbers)
        for robot, numbers in said.items()
        if isinstance(numbers, list | tuple) and len(numbers) == 3 and all(type(at) is int for at in numbers)
    }


def only_robot(memory: Memory) -> str | None:
    """Who saw it, where that is one."""
    shares = seen_by(memory)
    return next(iter(shares)) if len(shares) == 1 else None


def trust_of(memory: Memory, trust: Mapping[str, float]) -> float:
    """How far a memory is believed: as the most trusted of those who saw it; 1 where nobody is named.

    Args:
        memory: whose parts were weighted by trust when it was merged.
        trust: from 0 to 1 by robot; 1 for those that are not there.
    """
    return max((trust.get(robot, 1.0) for robot in seen_by(memory)), default=1.0) if trust else 1.0


def weights_of(memories: Sequence[Memory], trust: Mapping[str, float]) -> NDArray[np.float64]:
    """(N,) float64: trust beside that of the most trusted; 1 for all where none is trusted at all."""
    found = np.array([trust_of(memory, trust) for memory in memories], dtype=np.float64)
    most = found.max(initial=0.0)
    return found / most if most > 0.0 else np.ones(len(found))


def share_of(memory: Memory) -> SeenBy:
    """All that a memory stands for, as that of whoever brought it."""
    return SeenBy(memory.first_sight_ns, memory.last_sight_ns, int(memory.count))


def joined_robots(memories: Iterable[Memory]) -> dict[str, Any]:
    """The field of a memory that stands for several; nothing where nobody said who saw them."""
    shares: dict[str, SeenBy] = {}
    for memory in memories:
        for robot, share in seen_by(memory).items():
            known = shares.get(robot)
            shares[robot] = share if known is None else _added(known, share)
    return {SEEN_BY: {robot: list(shares[robot]) for robot in sorted(shares)}} if shares else {}


def _added(one: SeenBy, other: SeenBy) -> SeenBy:
    return SeenBy(
        min(one.first_ns, other.first_ns),
        max(one.last_ns, other.last_ns),
        saturated(one.sights + other.sights),
    )
