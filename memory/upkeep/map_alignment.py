"""Alignment of the maps and clocks of robots: estimate the motion, move the memories, log the reason."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from memory.errors import AlignmentError
from memory.merging.align_options import AlignOptions
from memory.merging.alignment import Alignment, estimate
from memory.merging.motion import Motion
from memory.merging.robots import only_robot
from memory.persistence.database import Database
from memory.query import Filter
from memory.types import AWAY, Memory, positions_of


class Shift(NamedTuple):
    """Distances over which an alignment moved memories.

    Attributes:
        x_m, y_m: mean shift.
        mean_m, largest_m: mean and largest distance.
    """

    x_m: float
    y_m: float
    mean_m: float
    largest_m: float

    def __str__(self) -> str:
        """Return a text for people."""
        return (
            f"by a mean of ({self.x_m:.2f}, {self.y_m:.2f}) m; mean distance {self.mean_m:.2f} m, largest"
            f" {self.largest_m:.2f} m"
        )


class AlignmentResult(NamedTuple):
    """Result of an alignment.

    Attributes:
        operation: operation that moved the memories, for :meth:`memory.store.MemoryStore.undo`.
        ids: memories that moved.
        frame: motion from the robot's map and clock into the store's, including earlier alignments.
        estimate: the estimate, whose motion starts from the previous positions; ``None`` if the frame was
            given.
        shift: how far the memories moved.
    """

    operation: int
    map_id: str
    ids: tuple[int, ...]
    frame: Motion
    estimate: Alignment | None = None
    shift: Shift | None = None


def align(
    database: Database,
    robot: str,
    map_id: str | None = None,
    options: AlignOptions | None = None,
    frame: Motion | None = None,
) -> AlignmentResult:
    """See :meth:`memory.store.MemoryStore.align`."""
    if frame is not None and not all(map(math.isfinite, frame)):
        raise ValueError(f"the frame must be finite, got {tuple(frame)}")
    mine, others = _seen(database, robot, map_id)
    map_id = _one_map(mine, robot, map_id)
    found, before = None, database.frames().get((robot, map_id), Motion())
    if frame is None:
        moved, fixed = (
            # Events have moved away too, but where they were at which time is known.
            [memory for memory in some if memory.state not in AWAY or memory.kind == "event"]
            for some in (mine, [memory for memory in others if memory.map_id == map_id])
        )
        if not fixed:
            raise AlignmentError(
                f"no other robot saw anything in map {map_id!r}. Align after another one has"
            )
        found = estimate(moved, fixed, options)
        frame = found.motion.after(before)
    shift = _shift_of(mine, frame.after(before.inverse()) if found is None else found.motion)
    done = database.align(robot, map_id, frame, detail={"reason": _reason(robot, frame, found, shift)})
    return AlignmentResult(done.generation, map_id, tuple(done.ids), frame, found, shift)


def _shift_of(memories: list[Memory], motion: Motion) -> Shift:
    """Return how far a motion moves memories; zero if none has a position."""
    points = positions_of([memory for memory in memories if memory.position is not None])
    if not len(points):
        return Shift(0.0, 0.0, 0.0, 0.0)
    apart = (motion.points(points) - points)[:, :2]
    x, y = apart.mean(axis=0).tolist()
    lengths = np.linalg.norm(apart, axis=1)
    return Shift(x, y, float(lengths.mean()), float(lengths.max()))


def _seen(database: Database, robot: str, map_id: str | None) -> tuple[list[Memory], list[Memory]]:
    """Return the memories that only this robot saw, and all others, of one map or of all."""
    ids = database.ids(Filter() if map_id is None else Filter(map_id=map_id))
    mine: list[Memory] = []
    others: list[Memory] = []
    for memory in database.stream(ids):
        (mine if only_robot(memory) == robot else others).append(memory)
    return mine, others


def _one_map(mine: list[Memory], robot: str, map_id: str | None) -> str:
    maps = sorted({memory.map_id for memory in mine})
    if not maps:
        where = "" if map_id is None else f" in map {map_id!r}"
        raise ValueError(f"{robot} has no memories of its own{where}. Check the names with recall robots")
    if len(maps) > 1:
        raise ValueError(f"{robot} has memories in {len(maps)} maps ({', '.join(maps)}). Choose one")
    return maps[0]


def _reason(robot: str, frame: Motion, found: Alignment | None, shift: Shift) -> str:
    """Return the reason for the log."""
    if frame == Motion():
        return f"map and clock of {robot} need no motion"
    text = f"the map of {robot} is {frame}; its memories moved {shift}"
    return text if found is None else f"{text}; {found.things} objects agree within {found.rms_m:.2f} m (RMS)"
