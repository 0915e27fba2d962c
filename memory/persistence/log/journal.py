"""Tables of the log: reading and writing operations, changes and earlier images."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError, UndoError
from memory.persistence import meta
from memory.persistence.checksums import LOG, LOG_POSE, LOG_ROW, NO_NUMBER, text_of
from memory.persistence.engine import engine_of
from memory.persistence.ids import chunks, concat, distinct
from memory.persistence.rows import Image, Slot
from memory.persistence.slots import read_slots
from memory.persistence.sql import Connection
from memory.wording.reasons import in_words

What = Literal["removed", "changed", "restored"]
INSERT_LOG = (
    "INSERT INTO log (generation, time_ns, first_id, next_id, undoes, token, operation, detail, crc)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass
class Counters:
    """State of the file that the writer keeps between transactions.

    Attributes:
        generation: number of the last operation.
        next_id: id of the next memory.
        placed: last id in the place index.
        slots: slots by name.
    """

    generation: int = 0
    next_id: int = 1
    placed: int = 0
    slots: dict[str, Slot] = field(default_factory=dict)

    def read(self, connection: Connection) -> None:
        """Read the counters from the file, after opening and after a rollback.

        Raises:
            CorruptStoreError: the last operation of the log has no numbers.
        """
        sql = "SELECT generation, next_id FROM log ORDER BY generation DESC LIMIT 1"
        last = connection.execute(sql).fetchone() or (0, 1)
        if not all(isinstance(number, int) for number in last):
            raise CorruptStoreError(
                f"the log is damaged: its last operation reads {tuple(last)}. Run recall check --repair"
            )
        self.generation, self.next_id = last
        self.placed = meta.read_number(connection, meta.PLACED)
        self.slots = read_slots(connection)


class LogEntry(NamedTuple):
    """An operation.

    Attributes:
        generation: number from 1, without gaps.
        time_ns: time by the computer's clock.
        operation: name given by the caller, such as ``"add"``, ``"remove"`` or ``"merge"``.
        added: ids of new memories.
        undoes: operation that it undid, or ``None``.
        detail: values given by the caller; reasons are as in :mod:`memory.wording.reasons`.
    """

    generation: int
    time_ns: int
    operation: str
    added: range
    undoes: int | None
    detail: dict[str, Any]

    def readable_detail(self) -> dict[str, Any]:
        """Return ``detail`` with ``reason``, ``kept`` and ``reasons`` as text."""
        found = dict(self.detail)
        if "reason" in found:
            found["reason"] = in_words(found["reason"])
        if isinstance(found.get("kept"), list):
            found["kept"] = [in_words(each) for each in found["kept"]]
        if isinstance(found.get("reasons"), dict):
            found["reasons"] = {id: in_words(each) for id, each in found["reasons"].items()}
        return found


class Changes(NamedTuple):
    """Changes since an earlier generation; no id is in two of the first three sets.

    Attributes:
        generation: present generation.
        added: (n,) int64 rising ids that are new.
        removed: (n,) int64 rising ids that are gone.
        changed: (n,) int64 rising ids with any change, perhaps of place or vector.
        moved: (n,) int64 rising ids of ``changed`` with only new poses, which vector indexes can ignore.
    """

    generation: int
    added: NDArray[np.int64]
    removed: NDArray[np.int64]
    changed: NDArray[np.int64]
    moved: NDArray[np.int64]

    @property
    def revised(self) -> NDArray[np.int64]:
        """(n,) int64 rising ids of ``changed`` with more than a new pose, perhaps a new vector."""
        if not len(self.moved):
            return self.changed
        return np.setdiff1d(self.changed, self.moved, assume_unique=True)


def write_entry(
    connection: Connection,
    counters: Counters,
    operation: str,
    detail: Mapping[str, Any],
    *,
    added: int = 0,
    undoes: int | None = None,
) -> int:
    """Log an operation, assign its ids, and return its generation."""
    row = new_entry(counters, operation, detail, added=added, undoes=undoes)
    connection.execute(INSERT_LOG, row)
    return counters.generation


def new_entry(
    counters: Counters, operation: str, detail: Mapping[str, Any], *, added: int, undoes: int | None = None
) -> tuple[Any, ...]:
    """Number an operation, assign its ids, and return its row for ``INSERT_LOG``."""
    counters.generation += 1
    first = counters.next_id
    counters.next_id += added
    text = json.dumps(detail) if detail else "{}"
    generation, now, following, token = counters.generation, time.time_ns(), counters.next_id, new_token()
    undone = NO_NUMBER if undoes is None else undoes
    crc = LOG.sum((generation, now, first, following, undone, token), "\0".join((operation, text)).encode())
    return generation, now, first, following, undoes, token, operation, text, crc


def new_token() -> int:
    """Return a random number that identifies an operation among all stores and copies."""
    return int.from_bytes(os.urandom(8), "little") >> 2


def read_identity(connection: Connection, generation: int) -> str | None:
    """Return the identity of the history up to an operation, or ``None`` if it does not exist."""
    if generation == 0:
        return f"{meta.read(connection, meta.STORE)}-0"
    row = connection.execute("SELECT token FROM log WHERE generation = ?", (generation,)).fetchone()
    return None if row is None else f"{meta.read(connection, meta.STORE)}-{row[0]}"


def write_rows(
    connection: Connection,
    generation: int,
    what: What,
    ids: Sequence[int],
    images: Sequence[Image] | None,
) -> None:
    """Log which memories an operation touched, with their earlier images unless that is ``None``."""
    before = [None] * len(ids) if images is None else [image.dump() for image in images]
    insert_log_rows(
        connection, [(None, generation, id, what, text) for id, text in zip(ids, before, strict=True)]
    )


def insert_log_rows(
    connection: Connection, rows: Sequence[tuple[int | None, int, int, str, str | None]]
) -> None:
    """Insert rows of ``log_row``; those without a number follow the last one."""
    if not rows:
        return
    (last,) = connection.execute(engine_of(connection).last_log_row).fetchone()
    numbered = [(last + at if row[0] is None else row[0], *row[1:]) for at, row in enumerate(rows, 1)]
    connection.executemany(
        "INSERT INTO log_row (row, generation, id, what, before, crc) VALUES (?, ?, ?, ?, ?, ?)",
        [(*row, LOG_ROW.sum(row[:3], text_of(*row[3:]))) for row in numbered],
    )


def read_entries(
    connection: Connection,
    *,
    after: int = 0,
    until: int | None = None,
    limit: int | None = None,
    operation: str | None = None,
) -> list[LogEntry]:
    """Return the operations after a generation in order, optionally of one name."""
    named, names = ("", ()) if operation is None else (" AND operation = ?", (operation,))
    rows = connection.execute(
        "SELECT generation, time_ns, operation, first_id, next_id, undoes, detail FROM log"
        f" WHERE generation > ? AND generation <= ?{named} ORDER BY generation LIMIT ?",
        (after, 2**62 if until is None else until, *names, 2**62 if limit is None else limit),
    )
    return [
        LogEntry(generation, time_ns, operation, range(first, following), undoes, json.loads(detail))
        for generation, time_ns, operation, first, following, undoes, detail in rows
    ]


def read_history(connection: Connection, id: int) -> list[LogEntry]:
    """Return the operations that touched a memory, in order, without counted observations."""
    added = creation_of(connection, id)
    touched = connection.execute(
        "SELECT generation FROM log_row WHERE id = ? AND what != 'seen'", (id,)
    ).fetchall()
    posed = connection.execute(
        "SELECT generation, ids FROM log_pose WHERE ? BETWEEN first_id AND last_id", (id,)
    )
    found = {generation for (generation,) in touched}
    found |= {generation for generation, ids in posed if (np.frombuffer(ids, "<i8") == id).any()}
    if added is not None:
        found.add(added)
    return [read_entries(connection, after=generation - 1, limit=1)[0] for generation in sorted(found)]


def creation_of(connection: Connection, id: int) -> int | None:
    """Return the operation that added a memory, or ``None``, by bisection; ids rise with generations."""
    sql = "SELECT first_id, next_id FROM log WHERE generation = ?"
    low, high = 1, connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0]
    while low <= high:
        middle = (low + high) // 2
        first, following = connection.execute(sql, (middle,)).fetchone()
        if first <= id < following:
            return int(middle)
        low, high = (middle + 1, high) if id >= following else (low, middle - 1)
    return None


def read_changes(connection: Connection, after: int) -> Changes:
    """Return the changes between a generation and now."""
    latest = connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0]
    if not 0 <= after <= latest:
        raise ValueError(f"after must be a generation from 0 to {latest}, got {after}")
    spans = connection.execute(
        "SELECT first_id, next_id FROM log WHERE generation > ? AND next_id > first_id ORDER BY generation",
        (after,),
    )
    born = concat([np.arange(first, following) for first, following in spans])
    rows = connection.execute(
        "SELECT id, what FROM log_row WHERE generation > ? ORDER BY generation, row", (after,)
    ).fetchall()
    touched = np.array([id for id, _ in rows], dtype=np.int64)
    what = np.array([what for _, what in rows], dtype=np.str_)
    ids, first = np.unique(touched, return_index=True)
    last = len(touched) - 1 - np.unique(touched[::-1], return_index=True)[1]
    # The creation of a memory precedes everything else that happens to it.
    before = (what[first] != "restored") & ~np.isin(ids, born)
    now = what[last] != "removed"
    blobs = connection.execute("SELECT ids FROM log_pose WHERE generation > ?", (after,))
    posed = distinct(concat([np.frombuffer(blob, "<i8") for (blob,) in blobs]))
    moved = posed[~np.isin(posed, ids) & ~np.isin(posed, born)] if len(ids) + len(born) else posed
    return Changes(
        int(latest),
        added=distinct(concat([born[~np.isin(born, ids)], ids[~before & now]])),
        removed=ids[before & ~now],
        changed=distinct(concat([ids[before & now], moved])),
        moved=moved,
    )


def is_little(connection: Connection, after: int, most: int) -> bool:
    """Return True if the operations since a generation changed few memories and moved none."""
    new, changed, moved = connection.execute(
        "SELECT (SELECT coalesce(sum(next_id - first_id), 0) FROM log WHERE generation > ?),"
        " (SELECT count(*) FROM (SELECT 1 FROM log_row WHERE generation > ? LIMIT ?)),"
        " EXISTS (SELECT 1 FROM log_pose WHERE generation > ?)",
        (after, after, most + 1, after),
    ).fetchone()
    return not moved and int(new) + int(changed) <= most


def read_before(connection: Connection, generation: int) -> list[tuple[int, What, Image | None]]:
    """Return the memories that an operation touched with their earlier images; ``None`` if not kept."""
    rows = connection.execute(
        "SELECT id, what, before FROM log_row WHERE generation = ? AND what != 'seen' ORDER BY row",
        (generation,),
    )
    return [(id, what, None if text is None else Image.load(text)) for id, what, text in rows]


def check_undoable(connection: Connection, generation: int) -> LogEntry:
    """Return the entry, or raise :class:`UndoError` if it is unknown, undone, or depended on."""
    found = read_entries(connection, after=generation - 1, limit=1)
    if not found or found[0].generation != generation:
        raise UndoError(f"there is no operation {generation}. recall undo without a number lists them")
    if is_undone(connection, generation):
        raise UndoError(f"operation {generation} ({found[0].operation}) is already undone")
    touched = touched_by(connection, found[0])
    kept = np.setdiff1d(touched, _added_or_removed(connection, found[0]))
    undone = undone_after(connection, generation)
    later = connection.execute(
        "SELECT DISTINCT generation FROM (SELECT generation, id FROM log_row WHERE generation > ?"
        " AND what != 'seen'"
        " UNION ALL SELECT generation, NULL FROM log_pose WHERE generation > ?) ORDER BY generation",
        (generation, generation),
    ).fetchall()
    for (other,) in later:
        entry = read_entries(connection, after=other - 1, limit=1)[0]
        # A later operation and its undo cancel each other, so only operations still in effect are in the way.
        cancels = entry.undoes is not None and entry.undoes > generation
        if not cancels and other not in undone:
            # Memories that this operation adds or removes do not depend on where they lie.
            in_the_way = kept if entry.operation == "align" else touched
            shared = np.intersect1d(in_the_way, touched_by(connection, entry))
            if len(shared):
                raise UndoError(
                    f"operation {other} ({entry.operation}) changed memory {shared[0]} after operation"
                    f" {generation}. Undo {other} first"
                )
    return found[0]


def is_undone(connection: Connection, generation: int) -> bool:
    """Return True if an operation is undone, and its undo is not undone in turn."""
    known = connection.execute("SELECT 1 FROM log WHERE undoes = ?", (generation,)).fetchone()
    return known is not None and generation in undone_after(connection, generation - 1)


def undone_after(connection: Connection, generation: int, until: int = 2**62) -> set[int]:
    """Return the operations after one that were undone as of another, and not redone."""
    found: set[int] = set()
    rows = connection.execute(
        "SELECT generation, undoes FROM log WHERE undoes > ? AND generation <= ? ORDER BY generation DESC",
        (generation, until),
    )
    for other, undoes in rows:  # Newest first, because a later undo decides about earlier ones.
        if other not in found:
            found.add(undoes)
    return found


def touched_by(connection: Connection, entry: LogEntry) -> NDArray[np.int64]:
    """Return the ids that an operation added, removed or changed; counted observations are not changes."""
    rows = connection.execute(
        "SELECT id FROM log_row WHERE generation = ? AND what != 'seen'", (entry.generation,)
    ).fetchall()
    blobs = connection.execute("SELECT ids FROM log_pose WHERE generation = ?", (entry.generation,))
    parts = [np.frombuffer(blob, "<i8") for (blob,) in blobs]
    parts += [np.arange(entry.added.start, entry.added.stop), np.array([id for (id,) in rows], np.int64)]
    return concat(parts)


def _added_or_removed(connection: Connection, entry: LogEntry) -> NDArray[np.int64]:
    """Return the (n,) int64 ids that an operation added, removed or restored."""
    rows = connection.execute(
        "SELECT id FROM log_row WHERE generation = ? AND what IN ('removed', 'restored')", (entry.generation,)
    ).fetchall()
    return concat(
        [np.arange(entry.added.start, entry.added.stop), np.array([id for (id,) in rows], np.int64)]
    )


def redact(connection: Connection, ids: Sequence[int]) -> None:
    """Erase earlier images and poses of memories from the log; their ids stay."""
    engine = engine_of(connection)
    for chunk in chunks(ids):
        one_of = engine.one_of("id", chunk)
        sql = f"UPDATE log_row SET before = NULL WHERE {one_of.sql} RETURNING row"
        rows = connection.execute(sql, one_of.parameters).fetchall()
        engine.renew(connection, LOG_ROW, [row for (row,) in rows])
    gone = np.array(ids, dtype=np.int64)
    for row, blob in connection.execute("SELECT row, ids FROM log_pose").fetchall():
        hit = np.isin(np.frombuffer(blob, "<i8"), gone)
        if hit.any():
            blank(connection, row, "poses", hit)
            blank(connection, row, "covariances", hit)
            engine.renew(connection, LOG_POSE, [row])


def blank(connection: Connection, row: int, column: str, hit: NDArray[np.bool_]) -> None:
    """Replace some of a row's logged numbers by NaN."""
    (blob,) = connection.execute(f"SELECT {column} FROM log_pose WHERE row = ?", (row,)).fetchone()
    if blob is not None:
        table = np.frombuffer(blob, "<f8").reshape(len(hit), -1).copy()
        table[hit] = np.nan
        connection.execute(f"UPDATE log_pose SET {column} = ? WHERE row = ?", (table.tobytes(), row))
