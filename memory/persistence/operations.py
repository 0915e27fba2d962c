"""What changes the truth: each function is one operation within the caller's transaction, and logs itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import UndoError, UnknownMemoryError
from memory.persistence.journal import (
    Counters,
    check_undoable,
    read_before,
    redact,
    write_entry,
    write_rows,
)
from memory.persistence.records import Image, Prepared, clamp_sql
from memory.persistence.tables import (
    UPDATE_PLACE,
    chunks,
    delete_images,
    insert_images,
    insert_prepared,
    place_of,
    read_images,
    replace_images,
)

#: Columns of a logged pose: x, y, z, yaw and the covariance row by row, NaN where there is none.
POSE_COLUMNS = 13
#: Poses in one row of ``log_pose``.
POSE_PART = 65536


class Applied(NamedTuple):
    """An operation that is on the disk.

    Attributes:
        generation: its number.
        ids: of the memories that were added.
    """

    generation: int
    ids: list[int]


def apply(
    connection: sqlite3.Connection,
    counters: Counters,
    *,
    operation: str,
    detail: Mapping[str, Any],
    add: Prepared,
    remove: Sequence[int] = (),
    update: Mapping[int, Prepared] | None = None,
    secure: bool = False,
) -> Applied:
    """Add, remove and change memories as one operation.

    Raises:
        UnknownMemoryError: an id to remove or change is not there.
    """
    update = update or {}
    gone = read_images(connection, remove)
    before = read_images(connection, list(update))
    added = len(add.scalars)
    first = counters.next_id
    generation = write_entry(connection, counters, operation, detail, added=added)
    if gone:
        write_rows(connection, generation, "removed", remove, None if secure else gone)
        delete_images(connection, gone)
        if secure:
            redact(connection, remove)
            connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('scrub', 1)")
    if before:
        write_rows(connection, generation, "changed", list(update), before)
        after = [image_of(old, update[old.id]) for old in before]
        replace_images(connection, counters.slots, before, after)
    if added:
        insert_prepared(connection, counters.slots, add, first)
    return Applied(generation, list(range(first, first + added)))


def image_of(old: Image, prepared: Prepared) -> Image:
    """The image that an update of one row leads to."""
    vectors = {name: blobs[0] for name, (_, blobs, _) in prepared.vectors.items()}
    return Image(old.id, prepared.scalars[0], old.access, prepared.texts[0], vectors)


def undo(connection: sqlite3.Connection, counters: Counters, generation: int) -> Applied:
    """Take an operation back, as an operation of its own that can be undone too.

    Raises:
        UndoError: see :func:`memory.persistence.journal.check_undoable`; or what was there before is not
            known any more.
    """
    trimmed = connection.execute("SELECT value FROM meta WHERE name = 'trimmed'").fetchone()
    if trimmed and 0 < generation <= trimmed[0]:
        raise UndoError(f"operation {generation} is too old: the log was trimmed up to {trimmed[0]}")
    entry = check_undoable(connection, generation)
    removed: list[Image] = []
    changed: list[Image] = []
    born = list(entry.added)
    for id, what, image in read_before(connection, generation):
        if what == "restored":
            born.append(id)
        elif image is None:
            raise UndoError(f"memory {id} was erased for good: operation {generation} cannot be undone")
        else:
            (removed if what == "removed" else changed).append(image)
    gone = read_images(connection, born)
    now = read_images(connection, [image.id for image in changed])
    done = write_entry(connection, counters, "undo", {}, undoes=generation)
    write_rows(connection, done, "removed", born, gone)
    delete_images(connection, gone)
    write_rows(connection, done, "restored", [image.id for image in removed], None)
    insert_images(connection, counters.slots, removed)
    write_rows(connection, done, "changed", [image.id for image in now], now)
    replace_images(connection, counters.slots, now, changed)
    sql = "SELECT ids, poses FROM log_pose WHERE generation = ?"
    parts = [
        (np.frombuffer(ids, "<i8"), np.frombuffer(poses, "<f8").reshape(-1, POSE_COLUMNS))
        for ids, poses in connection.execute(sql, (generation,))
    ]
    for ids, poses in parts:
        write_poses(connection, done, ids, poses)
    if parts:
        move_places(connection, np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
    return Applied(done, [])


def repose(
    connection: sqlite3.Connection,
    counters: Counters,
    ids: NDArray[np.int64],
    poses: NDArray[np.float64],
    detail: Mapping[str, Any],
) -> Applied:
    """Give memories new poses, (n, ``POSE_COLUMNS``) float64."""
    generation = write_entry(connection, counters, "repose", detail)
    for start in range(0, len(ids), POSE_PART):
        part = slice(start, start + POSE_PART)
        write_poses(connection, generation, ids[part], poses[part])
    move_places(connection, ids, poses)
    return Applied(generation, [])


def write_poses(
    connection: sqlite3.Connection, generation: int, ids: NDArray[np.int64], poses: NDArray[np.float64]
) -> None:
    """Log the poses that the memories have, then change them; the R*Tree is left to :func:`move_places`."""
    before = read_poses(connection, ids)
    connection.execute(
        "INSERT INTO log_pose (generation, ids, poses) VALUES (?, ?, ?)",
        (generation, ids.astype("<i8").tobytes(), before.astype("<f8").tobytes()),
    )
    blobs = [None if np.isnan(row[4]) else row[4:].astype("<f8").tobytes() for row in poses]
    connection.executemany(
        "UPDATE memory SET x = ?, y = ?, z = ?, yaw = ?, covariance = ? WHERE id = ?",
        [(*row[:4], blob, id) for row, blob, id in zip(poses.tolist(), blobs, ids.tolist(), strict=True)],
    )


def move_places(connection: sqlite3.Connection, ids: NDArray[np.int64], poses: NDArray[np.float64]) -> None:
    """Bring the R*Tree up to date after poses were written."""
    total = connection.execute("SELECT count(*) FROM memory").fetchone()[0]
    if 4 * len(ids) > total:
        rebuild_place(connection)  # Faster than moving most of its entries one by one.
        return
    moved = [(*place_of(x, y), id) for (x, y), id in zip(poses[:, :2].tolist(), ids.tolist(), strict=True)]
    connection.executemany(UPDATE_PLACE, moved)


def read_poses(connection: sqlite3.Connection, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, ``POSE_COLUMNS``) float64 of the memories.

    Raises:
        UnknownMemoryError: one is not there.
    """
    found = np.full((len(ids), POSE_COLUMNS), np.nan)
    at = 0
    sql = (
        "SELECT m.id, m.x, m.y, m.z, m.yaw, m.covariance FROM json_each(?) AS j"
        " LEFT JOIN memory AS m ON m.id = j.value ORDER BY j.key"
    )
    for chunk in chunks(ids.tolist()):
        for row in connection.execute(sql, (json.dumps(chunk),)):
            if row[0] is None:
                raise UnknownMemoryError(f"no memory has the id {int(ids[at])}")
            found[at, :4] = row[1:5]
            if row[5] is not None:
                found[at, 4:] = np.frombuffer(row[5], "<f8")
            at += 1
    return found


def rebuild_place(connection: sqlite3.Connection) -> None:
    """Make the R*Tree anew from the rows."""
    connection.execute("DROP TABLE place")
    connection.execute("CREATE VIRTUAL TABLE place USING rtree(id, x0, x1, y0, y1)")
    x, y = clamp_sql("x"), clamp_sql("y")
    connection.execute(f"INSERT INTO place SELECT id, {x}, {x}, {y}, {y} FROM memory")


def touch(connection: sqlite3.Connection, ids: Sequence[int], now_ns: int) -> None:
    """Count an access; not logged: nothing that is searched by changes. Unknown ids are passed over."""
    connection.executemany(
        "UPDATE memory SET access_count = access_count + 1, accessed_ns = ? WHERE id = ?",
        [(now_ns, id) for id in ids],
    )


def trim_log(connection: sqlite3.Connection, generation: int) -> None:
    """Drop what memories were before operations up to a generation: these cannot be undone any more."""
    connection.execute("UPDATE log_row SET before = NULL WHERE generation <= ?", (generation,))
    empty = np.full(0, np.nan).tobytes()
    connection.execute("UPDATE log_pose SET poses = ? WHERE generation <= ?", (empty, generation))
    connection.execute(
        "INSERT INTO meta (name, value) VALUES ('trimmed', ?)"
        " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        (generation,),
    )
