"""Operations that change a store; each runs within the caller's transaction and logs itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import UndoError
from memory.merging.motion import Motion
from memory.persistence import meta, poses
from memory.persistence.checksums import LOG_POSE, MEMORY
from memory.persistence.engine import engine_of
from memory.persistence.log import alignment, observations
from memory.persistence.log.images import image_of, moved_image
from memory.persistence.log.journal import (
    INSERT_LOG,
    Counters,
    check_undoable,
    insert_log_rows,
    new_entry,
    read_before,
    redact,
    write_entry,
    write_rows,
)
from memory.persistence.log.observations import Observations
from memory.persistence.rows import SCALARS, Image, PreparedRows, join, poses_of
from memory.persistence.sql import Connection

#: Columns of ``memory`` that counted observations change.
SEEN = ("count", "first_seen_ns", "last_seen_ns")
TIME = SCALARS.index("time_ns")
#: Poses per row of ``log_pose``.
POSE_PART = 65536


class Addition(NamedTuple):
    """An operation that only adds."""

    rows: PreparedRows
    operation: str
    detail: Mapping[str, Any]


class OperationResult(NamedTuple):
    """A durable operation.

    Attributes:
        ids: ids of the added memories.
    """

    generation: int
    ids: list[int]


def apply(
    connection: Connection,
    counters: Counters,
    *,
    operation: str,
    detail: Mapping[str, Any],
    add: PreparedRows,
    remove: Sequence[int] = (),
    update: Mapping[int, PreparedRows] | None = None,
    secure: bool = False,
    seen: Observations | None = None,
    before: Mapping[int, Image] | None = None,
) -> OperationResult:
    """Add, remove and change memories and count observations as one operation.

    Args:
        secure: keep nothing of the removed memories.
        before: current images of removed and changed memories, if read within this transaction.

    Raises:
        UnknownMemoryError: an id to remove or change does not exist.
    """
    update = update or {}
    if before is None:
        images = engine_of(connection).read_images(connection, [*remove, *update])
        before = {image.id: image for image in images}
    gone, old = [before[id] for id in remove], [before[id] for id in update]
    added = add.size
    first = counters.next_id
    generation = write_entry(connection, counters, operation, detail, added=added)
    if gone:
        write_rows(connection, generation, "removed", remove, None if secure else gone)
        engine_of(connection).delete_images(connection, gone)
        if secure:
            redact(connection, remove)
            meta.write(connection, meta.ERASURE, 1)
    if old:
        write_rows(connection, generation, "changed", list(update), old)
        after = [image_of(image, update[image.id]) for image in old]
        engine_of(connection).replace_images(connection, counters.slots, old, after)
    if added:
        engine_of(connection).insert_prepared(connection, counters.slots, add, first)
    if seen:
        observations.see(connection, generation, seen)
    update_places(connection, counters)
    return OperationResult(generation, list(range(first, first + added)))


def add_all(
    connection: Connection, counters: Counters, additions: Sequence[Addition]
) -> list[OperationResult]:
    """Run several operations that only add, with the statements of one."""
    first = counters.next_id
    done, entries = [], []
    for rows, operation, detail in additions:
        start = counters.next_id
        entries.append(new_entry(counters, operation, detail, added=rows.size))
        done.append(OperationResult(counters.generation, list(range(start, counters.next_id))))
    connection.executemany(INSERT_LOG, entries)
    rows = additions[0].rows if len(additions) == 1 else join([addition.rows for addition in additions])
    if rows.size:
        engine_of(connection).insert_prepared(connection, counters.slots, rows, first)
        update_places(connection, counters, moved=False)
    return done


def update_places(connection: Connection, counters: Counters, *, moved: bool = True) -> None:
    """Update the place index if much is waiting."""
    last_id = counters.next_id - 1
    engine = engine_of(connection)
    counters.placed = engine.update_places(connection, last_id, counters.placed, moved=moved)


def undo(connection: Connection, counters: Counters, generation: int) -> OperationResult:
    """Undo an operation, as an operation that can be undone too.

    Raises:
        UndoError: see :func:`memory.persistence.log.journal.check_undoable`, or the earlier state is not
            known any more.
    """
    trimmed = meta.read_number(connection, meta.TRIMMED)
    if 0 < generation <= trimmed:
        raise UndoError(f"operation {generation} is too old to undo: the log was trimmed up to {trimmed}")
    entry = check_undoable(connection, generation)
    alignment.check_frame(connection, entry)
    removed: list[Image] = []
    changed: list[Image] = []
    born = list(entry.added)
    for id, what, image in read_before(connection, generation):
        if what == "restored":
            born.append(id)
        elif image is None:
            raise UndoError(f"memory {id} was erased, so operation {generation} cannot be undone")
        else:
            (removed if what == "removed" else changed).append(image)
    if removed:
        was = alignment.read_frames(connection, generation)
        removed = alignment.realign(removed, was, alignment.read_frames(connection))
    gone = engine_of(connection).read_images(connection, born)
    now = engine_of(connection).read_images(connection, [image.id for image in changed])
    changed = [
        with_sights_of(there, image)
        if observations.has_observations_after(connection, image.id, generation)
        else image
        for there, image in zip(now, changed, strict=True)
    ]
    done = write_entry(connection, counters, "undo", {}, undoes=generation)
    write_rows(connection, done, "removed", born, gone)
    engine_of(connection).delete_images(connection, gone)
    write_rows(connection, done, "restored", [image.id for image in removed], None)
    write_rows(connection, done, "changed", [image.id for image in now], now)
    try:
        engine_of(connection).insert_images(connection, counters.slots, removed)
        engine_of(connection).replace_images(connection, counters.slots, now, changed)
    except ValueError as error:
        raise UndoError(f"the vectors of operation {generation} no longer fit: {error}") from error
    observations.uncount(connection, generation, done)
    if entry.operation == "merge" and removed:
        # Later observations of the merged memory belong to the object of its sources.
        latest = max(removed, key=lambda image: (image.scalars[TIME], image.id)).id
        later = [
            visit for id in born for part in observations.counted_since(connection, id) for visit in part
        ]
        observations.see(connection, done, {latest: [visit for visit in later if visit.sights > 0]})
    sql = "SELECT ids, poses, covariances FROM log_pose WHERE generation = ?"
    parts = connection.execute(sql, (generation,)).fetchall()
    if parts:
        ids = np.concatenate([np.frombuffer(part[0], "<i8") for part in parts])
        tables = [np.concatenate([np.frombuffer(part[1], "<f8") for part in parts]).reshape(-1, poses.POSE)]
        if parts[0][2] is not None:
            spreads = np.concatenate([np.frombuffer(part[2], "<f8") for part in parts])
            tables.append(spreads.reshape(-1, poses.SPREAD))
        move(connection, counters, done, ids, np.hstack(tables))
    update_places(connection, counters)
    return OperationResult(done, [])


def with_sights_of(there: Image, image: Image) -> Image:
    """Return an image with count, times and visits of another, because undo keeps observations."""
    values = dict(zip(SCALARS, image.scalars, strict=True))
    values |= {name: there.scalars[SCALARS.index(name)] for name in SEEN}
    return image._replace(scalars=tuple(values.values()), visits=there.visits)


def mark(
    connection: Connection,
    counters: Counters,
    ids: Sequence[int],
    state: str,
    detail: Mapping[str, Any],
) -> OperationResult:
    """Set the state of memories; everything else stays.

    Raises:
        UnknownMemoryError: an id does not exist.
    """
    before = engine_of(connection).read_images(connection, ids)
    was = {str(image.id): image.scalars[SCALARS.index("state")] for image in before}
    generation = write_entry(connection, counters, "mark", {**detail, "state": state, "was": was})
    write_rows(connection, generation, "changed", ids, before)
    connection.executemany("UPDATE memory SET state = ? WHERE id = ?", [(state, id) for id in ids])
    engine_of(connection).renew(connection, MEMORY, ids)
    return OperationResult(generation, [])


def repose(
    connection: Connection,
    counters: Counters,
    ids: NDArray[np.int64],
    table: NDArray[np.float64],
    detail: Mapping[str, Any],
) -> OperationResult:
    """Set poses as prepared by :func:`memory.persistence.poses.check_poses`."""
    generation = write_entry(connection, counters, "repose", detail)
    move(connection, counters, generation, ids, table)
    update_places(connection, counters)
    return OperationResult(generation, [])


def align(
    connection: Connection,
    counters: Counters,
    robot: str,
    map_id: str,
    frame: Motion,
    detail: Mapping[str, Any],
) -> OperationResult:
    """Move what one robot alone saw in a map by a frame, now and for later memories; times as well.

    Args:
        frame: motion from the robot's map into the store's; it replaces an earlier one.

    Returns:
        The operation and the ids that moved.
    """
    motion = frame.after(alignment.read_frames(connection).get((robot, map_id), Motion()).inverse())
    images = alignment.seen_alone(connection, robot, map_id, vectors=motion.clock_ns != 0)
    logged = {**detail, "robot": robot, "map": map_id, "frame": list(frame)}
    generation = write_entry(connection, counters, alignment.OPERATION, logged)
    ids = [image.id for image in images]
    if motion.clock_ns:
        after = [moved_image(image, motion) for image in images]
        write_rows(connection, generation, "changed", ids, images)
        engine_of(connection).replace_images(connection, counters.slots, images, after)
    elif ids:
        table = poses_of([motion.memory(image.memory()) for image in images])
        move(connection, counters, generation, np.array(ids, dtype=np.int64), table)
    update_places(connection, counters)
    return OperationResult(generation, ids)


def move(
    connection: Connection,
    counters: Counters,
    generation: int,
    ids: NDArray[np.int64],
    table: NDArray[np.float64],
) -> None:
    """Log the current poses, then change them."""
    engine = engine_of(connection)
    found = engine.read_poses(connection, ids, spread=table.shape[1] > poses.POSE)
    before = poses.check_known(ids, found)
    for start in range(0, len(ids), POSE_PART):
        part = slice(start, start + POSE_PART)
        covariances = before[part, poses.POSE :]
        inserted = connection.execute(
            "INSERT INTO log_pose (generation, first_id, last_id, ids, poses, covariances)"
            " VALUES (?, ?, ?, ?, ?, ?) RETURNING row",
            (
                generation, int(ids[part][0]), int(ids[part][-1]), ids[part].astype("<i8").tobytes(),
                before[part, : poses.POSE].astype("<f8").tobytes(),
                covariances.astype("<f8").tobytes() if covariances.shape[1] else None,
            ),
        ).fetchall()  # fmt: skip
        engine_of(connection).renew(connection, LOG_POSE, [row for (row,) in inserted])
    if engine.move(connection, ids, table, counters.next_id - 1):
        counters.placed = counters.next_id - 1


def touch(connection: Connection, counts: Mapping[int, int], now_ns: int) -> None:
    """Count accesses by id; not logged, because searches do not depend on it. Unknown ids are skipped."""
    connection.executemany(
        "UPDATE memory SET access_count = access_count + ?, accessed_ns = ? WHERE id = ?",
        [(count, now_ns, id) for id, count in counts.items()],
    )
    engine_of(connection).renew(connection, MEMORY, sorted(counts))


class TrimReport(NamedTuple):
    """Result of trimming the log.

    Attributes:
        generation: last operation that can no longer be undone, or 0.
        operations: number of operations that could be undone before, by age.
        bytes: size of the dropped images.
    """

    generation: int
    operations: int
    bytes: int


def trim_log(connection: Connection, generation: int) -> TrimReport:
    """Drop the undo data of operations up to a generation."""
    start = meta.read_number(connection, meta.TRIMMED)
    if generation <= start:
        return TrimReport(start, 0, 0)
    span = (start, generation)
    size = 0
    for sql in (
        "SELECT sum(length(before)) FROM log_row WHERE generation > ? AND generation <= ? AND what != 'seen'",
        "SELECT sum(length(poses) + coalesce(length(covariances), 0)) FROM log_pose"
        " WHERE generation > ? AND generation <= ?",
    ):
        size += connection.execute(sql, span).fetchone()[0] or 0
    # Delete and insert the rows: rows that only shrink would leave nearly empty pages that cannot be reused.
    engine = engine_of(connection)
    rows = connection.execute(
        f"SELECT row, generation, id, what, CASE what WHEN 'seen' THEN {engine.without_was} END"
        " FROM log_row WHERE generation > ? AND generation <= ? ORDER BY row",
        span,
    ).fetchall()
    connection.execute("DELETE FROM log_row WHERE generation > ? AND generation <= ?", span)
    insert_log_rows(connection, rows)
    sql = (
        "UPDATE log_pose SET poses = NULL, covariances = NULL WHERE generation > ? AND generation <= ?"
        " RETURNING row"
    )
    engine.renew(connection, LOG_POSE, [row for (row,) in connection.execute(sql, span).fetchall()])
    meta.write(connection, meta.TRIMMED, generation)
    return TrimReport(generation, generation - start, size)


def last_trimmable(connection: Connection, before_ns: int | None, keep_operations: int, until: int) -> int:
    """Return the last operation older than a time and not among the newest ones, or 0.

    Args:
        before_ns: time by the computer's clock; ``None``: any age.
        keep_operations: number of newest operations to keep.
        until: last operation to consider.
    """
    latest = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0]
    most = min(latest - keep_operations, until)
    if before_ns is None or most <= 0:
        return max(int(most), 0)
    # The computer's clock may have been set back, so what precedes an older operation counts as older too.
    sql = "SELECT generation FROM log WHERE generation <= ? AND time_ns < ? ORDER BY generation DESC LIMIT 1"
    return int((connection.execute(sql, (most, before_ns)).fetchone() or (0,))[0])
