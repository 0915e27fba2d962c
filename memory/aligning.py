"""Maps of robots that differ are brought together: estimated, moved, and told."""

from __future__ import annotations

import math
from typing import NamedTuple

from memory.errors import AlignmentError
from memory.merging.alignment import Alignment, AlignOptions, estimate
from memory.merging.motion import Motion
from memory.merging.robots import only_robot
from memory.observer import AWAY
from memory.persistence.database import Database
from memory.query import Filter
from memory.types import Memory

#: Memories that are looked at at a time.
_PORTION = 5000


class Aligned(NamedTuple):
    """What an alignment did.

    Attributes:
        operation: that moved them, for :meth:`memory.store.MemoryStore.undo`.
        map_id: of the map.
        ids: of what moved.
        frame: from the robot's map into the store's, as it stands now.
        estimate: what it was found from: the motion is from where things lay before; ``None`` where the frame
            was given.
    """

    operation: int
    map_id: str
    ids: tuple[int, ...]
    frame: Motion
    estimate: Alignment | None = None


def align(
    database: Database,
    robot: str,
    map_id: str | None = None,
    options: AlignOptions | None = None,
    frame: Motion | None = None,
) -> Aligned:
    """See :meth:`memory.store.MemoryStore.align`."""
    if frame is not None and not all(map(math.isfinite, frame)):
        raise ValueError(f"a frame must be finite, got {tuple(frame)}")
    mine, others = _seen(database, robot, map_id)
    map_id = _one_map(mine, robot, map_id)
    found = None
    if frame is None:
        moved = [memory for memory in mine if memory.state not in AWAY]
        fixed = [memory for memory in others if memory.map_id == map_id and memory.state not in AWAY]
        if not fixed:
            raise AlignmentError(f"nobody else saw anything in map {map_id!r}")
        found = estimate(moved, fixed, options)
        frame = found.motion.after(database.frames().get((robot, map_id), Motion()))
    done = database.align(robot, map_id, frame, detail={"reason": _reason(robot, frame, found)})
    return Aligned(done.generation, map_id, tuple(done.ids), frame, found)


def _seen(database: Database, robot: str, map_id: str | None) -> tuple[list[Memory], list[Memory]]:
    """What a robot alone saw, and all else, of a map or of all."""
    ids = database.ids(Filter() if map_id is None else Filter(map_id=map_id))
    mine: list[Memory] = []
    others: list[Memory] = []
    for at in range(0, len(ids), _PORTION):
        for memory in database.present(ids[at : at + _PORTION].tolist()):
            (mine if only_robot(memory) == robot else others).append(memory)
    return mine, others


def _one_map(mine: list[Memory], robot: str, map_id: str | None) -> str:
    maps = sorted({memory.map_id for memory in mine})
    if not maps:
        where = "" if map_id is None else f" in map {map_id!r}"
        raise ValueError(f"there is nothing that {robot} alone saw{where}")
    if len(maps) > 1:
        raise ValueError(f"{robot} saw things in {len(maps)} maps ({', '.join(maps)}): name one")
    return maps[0]


def _reason(robot: str, frame: Motion, found: Alignment | None) -> str:
    """For the log."""
    if frame == Motion():
        return f"the map of {robot} lies as the store's"
    told = f"the map of {robot} is {frame}"
    return told if found is None else f"{told}; {found.things} things agree within {found.rms_m:.2f} m (RMS)"
