"""How the maps of robots lie in those of a store: all of that stands in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory.errors import UndoError
from memory.merging.motion import Motion
from memory.merging.robots import only_robot
from memory.persistence import poses
from memory.persistence.engine import engine_of
from memory.persistence.ids import joined
from memory.persistence.log.journal import LogEntry, read_entries, undone_after
from memory.persistence.rows import Image, poses_of
from memory.persistence.sql import Connection
from memory.types import Memory

#: Name of the operations in the log.
OPERATION = "align"
#: From the map of a robot into the store's, by robot and map; what is not there lies as the store's.
Frames: TypeAlias = Mapping[tuple[str, str], Motion]
#: Memories that are read at a time.
_PORTION = 5000


def read_frames(connection: Connection, until: int = 2**62) -> dict[tuple[str, str], Motion]:
    """As they stood after an operation."""
    entries = read_entries(connection, until=until, operation=OPERATION)
    undone = undone_after(connection, 0, until) if entries else set()
    return {
        (entry.detail["robot"], entry.detail["map"]): Motion(*entry.detail["frame"])
        for entry in entries
        if entry.generation not in undone
    }


def in_frame(memory: Memory, frames: Frames) -> Memory:
    """A memory that one robot alone saw, from its map into the store's; what several saw stays."""
    robot = only_robot(memory) if frames else None
    return memory if robot is None else frames.get((robot, memory.map_id), Motion()).memory(memory)


def carried(images: list[Image], was: Frames, now: Frames) -> list[Image]:
    """What comes back after it was gone, to where it lies where maps were aligned meanwhile."""
    if was == now:
        return images
    found = []
    for image in images:
        memory = image.memory()
        key = only_robot(memory) or "", memory.map_id
        motion = now.get(key, Motion()).after(was.get(key, Motion()).inverse())
        if now.get(key) != was.get(key):
            pose = tuple(poses_of([motion.memory(memory)])[0].tolist())
            image = image._replace(pose=pose[: poses.POSE], covariance=pose[poses.POSE :] or None)
        found.append(image)
    return found


def seen_alone(connection: Connection, robot: str, map_id: str) -> list[Memory]:
    """What one robot alone saw in a map, by rising id, without vectors."""
    rows = connection.execute("SELECT id FROM memory WHERE map_id = ? ORDER BY id", (map_id,)).fetchall()
    ids = [id for (id,) in rows]
    found = []
    for at in range(0, len(ids), _PORTION):
        part = engine_of(connection).read_images(connection, ids[at : at + _PORTION], vectors=False)
        found += [memory for memory in (image.memory() for image in part) if only_robot(memory) == robot]
    return found


def moved_by(connection: Connection, generation: int) -> NDArray[np.int64]:
    """(n,) int64: ids that an operation gave new poses."""
    blobs = connection.execute("SELECT ids FROM log_pose WHERE generation = ?", (generation,)).fetchall()
    return joined([np.frombuffer(blob, "<i8") for (blob,) in blobs])


def check_frame(connection: Connection, entry: LogEntry) -> None:
    """Whether taking an operation back moves all that a robot alone saw, where it is one of these.

    Raises:
        UndoError: something of the robot came since, and lies as that operation says.
    """
    first = entry
    while first.undoes is not None:
        (first,) = read_entries(connection, after=first.undoes - 1, limit=1)
    if first.operation != OPERATION:
        return
    robot, map_id = first.detail["robot"], first.detail["map"]
    there = {memory.id for memory in seen_alone(connection, robot, map_id)}
    if there - set(moved_by(connection, entry.generation).tolist()):
        raise UndoError(
            f"more of {robot} came after operation {entry.generation}, and lies as that says: align the map"
            " again, or recall align --reset, which moves all of it back"
        )
