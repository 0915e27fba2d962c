"""Which robots a store has memories of, how far they are believed, and how their maps lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.persistence.database import Database

#: Memories that are looked at at a time.
_PORTION = 5000


@dataclass
class Robot:
    """What a store has of a robot.

    Attributes:
        name: as which its memories came.
        trust: from 0 to 1.
        memories: of what it saw.
        alone: of these, those that nobody else saw.
        sights: how many, its own.
        first_ns, last_ns: of these, by its clock; ``None`` where there are none.
        ahead_ns: nanoseconds that the clock of what sends its memories is ahead of the store's computer, less
            the way, when it last sent; ``None`` where it did not.
        frames: by map, how its map lies in the store's, where that was said.
    """

    name: str
    trust: float = 1.0
    memories: int = 0
    alone: int = 0
    sights: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    ahead_ns: int | None = None
    frames: Mapping[str, Motion] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "frames": {name: frame._asdict() for name, frame in self.frames.items()}}


def robots_of(database: Database) -> list[Robot]:
    """All of which there is a memory, or of which something was said, by name; every memory is looked at."""
    trust, frames = database.trusts(), database.frames()
    found: dict[str, Robot] = {}
    ids = database.ids()
    for at in range(0, len(ids), _PORTION):
        for memory in database.present(ids[at : at + _PORTION].tolist(), vectors=False):
            shares = seen_by(memory)
            for name, share in shares.items():
                robot = found.setdefault(name, Robot(name))
                robot.memories += 1
                robot.alone += len(shares) == 1
                robot.sights += share.sights
                first, last = robot.first_ns, robot.last_ns
                robot.first_ns = share.first_ns if first is None else min(first, share.first_ns)
                robot.last_ns = share.last_ns if last is None else max(last, share.last_ns)
    ahead = {
        entry.detail["robot"]: entry.detail["sent_ns"] - entry.time_ns
        for entry in database.log(operation="sync")
    }
    for name in {*trust, *ahead, *(robot for robot, _ in frames)}:
        found.setdefault(name, Robot(name))
    for name, robot in found.items():
        robot.trust = trust.get(name, 1.0)
        robot.ahead_ns = ahead.get(name)
        robot.frames = {map_id: frame for (of, map_id), frame in sorted(frames.items()) if of == name}
    return [found[name] for name in sorted(found)]
