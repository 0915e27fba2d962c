"""Alignment of robots' maps with the store's, as the log records it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory.errors import UndoError
from memory.merging.motion import Motion
from memory.merging.robots import only_robot
from memory.persistence.engine import engine_of
from memory.persistence.ids import concat
from memory.persistence.log.images import moved_image
from memory.persistence.log.journal import LogEntry, read_entries, undone_after
from memory.persistence.rows import Image
from memory.persistence.sql import Connection
from memory.types import Memory

#: Operation name in the log.
OPERATION = "align"
#: Motion from a robot's map into the store's, by robot and map; missing ones are the identity.
Frames: TypeAlias = Mapping[tuple[str, str], Motion]
#: Memories read at a time.
_PORTION = 5000


def read_frames(connection: Connection, until: int = 2**62) -> dict[tuple[str, str], Motion]:
    """Return the frames as of an operation."""
    entries = read_entries(connection, until=until, operation=OPERATION)
    undone = undone_after(connection, 0, until) if entries else set()
    return {
        (entry.detail["robot"], entry.detail["map"]): Motion(*entry.detail["frame"])
        for entry in entries
        if entry.generation not in undone
    }


def in_frame(memory: Memory, frames: Frames) -> Memory:
    """Move a memory that one robot alone saw into the store's map and clock; others stay."""
    robot = only_robot(memory) if frames else None
    return memory if robot is None else frames.get((robot, memory.map_id), Motion()).memory(memory)


def realign(images: list[Image], was: Frames, now: Frames) -> list[Image]:
    """Move restored memories to where they belong if maps were aligned since their removal."""
    if was == now:
        return images
    found = []
    for image in images:
        memory = image.memory()
        key = only_robot(memory) or "", memory.map_id
        motion = now.get(key, Motion()).after(was.get(key, Motion()).inverse())
        found.append(image if now.get(key) == was.get(key) else moved_image(image, motion))
    return found


def seen_alone(connection: Connection, robot: str, map_id: str, *, vectors: bool = False) -> list[Image]:
    """Return the images of what one robot alone saw in a map, by rising id."""
    rows = connection.execute("SELECT id FROM memory WHERE map_id = ? ORDER BY id", (map_id,)).fetchall()
    ids = [id for (id,) in rows]
    found = []
    for at in range(0, len(ids), _PORTION):
        part = engine_of(connection).read_images(connection, ids[at : at + _PORTION], vectors=vectors)
        found += [image for image in part if only_robot(image.memory()) == robot]
    return found


def ids_moved_by(connection: Connection, generation: int) -> NDArray[np.int64]:
    """Return the (n,) int64 ids whose poses or times an operation changed."""
    blobs = connection.execute("SELECT ids FROM log_pose WHERE generation = ?", (generation,)).fetchall()
    rows = connection.execute(
        "SELECT id FROM log_row WHERE generation = ? AND what = 'changed'", (generation,)
    ).fetchall()
    return concat([np.array(rows, np.int64).ravel(), *(np.frombuffer(blob, "<i8") for (blob,) in blobs)])


def check_frame(connection: Connection, entry: LogEntry) -> None:
    """Check that undoing an alignment moves everything that the robot alone saw; ignore other operations.

    Raises:
        UndoError: memories of the robot came since, and lie as that operation says.
    """
    first = entry
    while first.undoes is not None:
        (first,) = read_entries(connection, after=first.undoes - 1, limit=1)
    if first.operation != OPERATION:
        return
    robot, map_id = first.detail["robot"], first.detail["map"]
    there = {image.id for image in seen_alone(connection, robot, map_id)}
    if there - set(ids_moved_by(connection, entry.generation).tolist()):
        raise UndoError(
            f"memories of {robot} that came after operation {entry.generation} depend on it. Align the map"
            " again, or move everything back with recall align --reset"
        )
