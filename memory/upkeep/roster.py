"""Robots of a store: their memories, trust, clocks and maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.merging.motion import Motion
from memory.merging.robots import seen_by
from memory.persistence.database import Database


@dataclass
class Robot:
    """Record of a robot in a store.

    Attributes:
        name: name under which its memories came.
        trust: from 0 to 1.
        memories: number of memories of what it saw.
        alone: number of these that no other robot saw.
        sights: number of its observations.
        first_ns, last_ns: times of the first and last one by its clock, or ``None``.
        ahead_ns: nanoseconds that the sender's clock was ahead of the store's at the last transfer, less the
            transfer time; ``None`` if it never sent.
        frames: by map, the motion from its map into the store's, if set.
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
        """Return plain values."""
        return {**vars(self), "frames": {name: frame._asdict() for name, frame in self.frames.items()}}


def robots_of(database: Database) -> list[Robot]:
    """Return all robots with a memory or a setting, by name; reads every memory."""
    trust, frames = database.trusts(), database.frames()
    found: dict[str, Robot] = {}
    for memory in database.stream(database.ids(), vectors=False):
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
