"""New database of all intact rows of a damaged one."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memory.persistence import checksums, meta
from memory.persistence.ids import chunks
from memory.persistence.log import journal
from memory.persistence.log.journal import Counters, insert_log_rows, new_token, write_entry
from memory.persistence.poses import POSE, has_pose
from memory.persistence.rows import DEFAULT_SLOT, SLOTS, Slot
from memory.persistence.slots import add_slot
from memory.persistence.sqlite import places, poses, text_index
from memory.persistence.sqlite.connection import connect
from memory.persistence.sqlite.lock import Acknowledgement
from memory.persistence.sqlite.migrations import APPLICATION_ID, migrate
from memory.persistence.sqlite.repair.pages import Pages
from memory.persistence.sqlite.repair.sorter import take_rows
from memory.persistence.sqlite.tables import SELECT_VECTORS, note_parts, renew

#: Log names of a repair, and of lost operations.
OPERATION, LOST = "repair", "lost"


class SalvageReport(NamedTuple):
    """Result of salvaging a damaged database.

    Attributes:
        memories: number of memories in the new database.
        found: number of rows found, of any table.
        repaired: number of these in which one bit was corrected.
        lost: sentences about what is missing.
        quarantine: one JSON line per memory that was only partly readable, like ``log_row.before``, with its
            missing parts in ``lost``.
    """

    memories: int
    found: int
    repaired: int
    lost: list[str]
    quarantine: list[str]


def salvage(pages: Pages, file: Path, left: Acknowledgement | None = None) -> SalvageReport:
    """Write a new database of all readable rows.

    Args:
        pages: pages of the damaged one.
        file: new file; must not exist.
        left: acknowledged progress of the last writer, if known.
    """
    connection = connect(file, "rwc")
    try:
        connection.execute("PRAGMA synchronous = OFF")  # Synced as a whole before it gets its name.
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(connection, name=str(file))
        connection.execute("BEGIN")
        connection.execute("DELETE FROM meta")
        count, repaired = take_rows(connection, pages)
        found = _complete(connection, left)._replace(found=count, repaired=repaired)
        connection.execute("COMMIT")
        connection.execute("PRAGMA synchronous = FULL")
        return found
    finally:
        connection.close()


def _complete(connection: sqlite3.Connection, left: Acknowledgement | None) -> SalvageReport:
    """Complete the store: drop incomplete memories, and derive indexes."""
    lost = _mend_slots(connection)
    if left is None or meta.read(connection, meta.STORE) not in (None, left.store):
        left = Acknowledgement("", 0, 1)
    missing = _mend_log(connection, left)
    if missing:
        lost.append(f"operations {spans(missing, '')} of the log")
    counters = Counters()
    counters.read(connection)
    log = journal.read_changes(connection, 0).added.tolist()
    if not missing:
        # Removed memories must not come back from old copies of pages.
        _delete_all(connection, sorted(_known(connection) - set(log)))
    changed: set[int] = set()
    lost += _note_lost_parts(connection, changed)
    broken = _incomplete(connection)
    quarantine = [_remains(connection, id, missing) for id, missing in sorted(broken.items())]
    for name, ids in _by_part(broken).items():
        lost.append(f"the {name} of {spans(ids)}: no longer in the store, see the quarantine")
    _delete_all(connection, sorted(broken))
    there = {id for (id,) in connection.execute("SELECT id FROM memory")}
    gone = sorted(set(log) - there)
    nowhere = [id for id in gone if id not in broken]
    if nowhere:
        lost.append(f"{spans(nowhere)}: nothing of them is readable")
    generation = write_entry(connection, counters, OPERATION, {"lost": lost})
    rows: list[tuple[int | None, int, int, str, str | None]] = []
    rows += [(None, generation, id, "removed", None) for id in gone]
    # Caches must reload these.
    rows += [(None, generation, id, "changed", None) for id in sorted(changed & there & set(log))]
    rows += [(None, generation, id, "restored", None) for id in sorted(there - set(log))]
    insert_log_rows(connection, rows)
    text_index.rebuild(connection)
    places.rebuild(connection, counters.next_id - 1)
    if meta.read(connection, meta.STORE) is None:
        meta.write(connection, meta.STORE, f"{new_token():016x}{new_token():016x}")
    meta.write(connection, meta.SUMMED, 1)
    return SalvageReport(len(there), 0, 0, lost, quarantine)


def _mend_slots(connection: sqlite3.Connection) -> list[str]:
    """Give every vector an encoder, and create the default one."""
    lost = []
    known = dict(connection.execute("SELECT slot, dim FROM slot").fetchall())
    sizes = connection.execute(
        f"SELECT key % {SLOTS} AS slot, length(half) / 2, count(*) FROM vector GROUP BY 1, 2 ORDER BY 1, 3"
    ).fetchall()
    used = {slot: dim for slot, dim, _ in sizes}
    for slot in range(max([0, *known, *used]) + 1):
        if slot not in known:
            name = DEFAULT_SLOT if slot == 0 else f"{LOST} {slot}"
            dim = used.get(slot, 1)
            fake = {f"{number}": Slot(number, 1) for number in range(slot)}
            add_slot(connection, fake, name, dim)
            lost.append(f"the name of encoder {slot} with {dim} numbers, which is now {name!r}")
    return lost


def _mend_log(connection: sqlite3.Connection, left: Acknowledgement) -> list[int]:
    """Fill gaps of the log with lost operations, and return their generations."""
    rows = connection.execute("SELECT generation, first_id, next_id, time_ns FROM log ORDER BY 1").fetchall()
    touched = (
        "SELECT max(generation) FROM (SELECT generation FROM log_row UNION SELECT generation FROM log_pose)"
    )
    latest = max(
        left.generation, connection.execute(touched).fetchone()[0] or 0, *(row[0] for row in rows[-1:])
    )
    highest = connection.execute(
        f"SELECT max((SELECT coalesce(max(id), 0) FROM memory), (SELECT coalesce(max(id), 0) FROM body),"
        f" (SELECT coalesce(max(key) / {SLOTS}, 0) FROM vector), (SELECT coalesce(max(id), 0) FROM log_row),"
        " (SELECT coalesce(max(first_id), 1) - 1 FROM log))"
    ).fetchone()[0]
    posed = poses.scan(connection)[0]
    highest = max(highest, left.next_id - 1, int(posed[-1]) if len(posed) else 0)
    known = {generation: rest for generation, *rest in rows}
    missing = [generation for generation in range(1, latest + 1) if generation not in known]
    if latest in known or not latest:
        given = known[latest][1] - 1 if latest else 0
        if given < highest:
            missing.append(latest + 1)  # The end is lost, because higher ids were assigned.
    following = 1
    for generation in sorted({*known, *missing}):
        if generation in known:
            following = known[generation][1]
            continue
        later = [known[other][0] for other in known if other > generation]
        until = max(following, min(later) if later else highest + 1)
        time_ns = known[generation - 1][2] if generation - 1 in known else 0
        numbers = (generation, time_ns, following, until, None, new_token())
        connection.execute(
            "INSERT INTO log (generation, time_ns, first_id, next_id, undoes, token, operation, detail)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, '{}')",
            (*numbers, LOST),
        )
        renew(connection, checksums.LOG, [generation])
        known[generation] = [following, until, time_ns]
        following = until
    # Renumber the rows of the log, so that gaps close.
    for layout in (checksums.LOG_ROW, checksums.LOG_POSE):
        keys = [key for (key,) in connection.execute(f"SELECT row FROM {layout.table} ORDER BY row")]
        moved = [(at, key) for at, key in enumerate(keys, 1) if at != key]
        connection.executemany(f"UPDATE {layout.table} SET row = ? WHERE row = ?", moved)
        for part in chunks(at for at, _ in moved):
            renew(connection, layout, part)
    return missing


def _note_lost_parts(connection: sqlite3.Connection, touched: set[int]) -> list[str]:
    """Report missing vectors, visits and covariances, and correct the rows that record them.

    ``touched`` receives the ids of memories that lost vectors or visits.
    """
    vectors: dict[int, list[int]] = {}
    changed = []
    for id, had, has in connection.execute(f"{VECTORS_OF} WHERE had <> has").fetchall():
        changed.append(id)
        for slot in range(SLOTS):
            if (had & ~has) >> slot & 1:
                vectors.setdefault(slot, []).append(id)
    names = dict(connection.execute("SELECT slot, name FROM slot").fetchall())
    lost = [
        f"vectors of encoder {names.get(slot, slot)!r} of {spans(some)}" for slot, some in vectors.items()
    ]
    unseen = [id for (id,) in connection.execute(WITHOUT_VISITS)]
    if unseen:
        lost.append(f"visits of {spans(unseen)}")
    rows = [chunk for (chunk,) in connection.execute(WITHOUT_SPREAD)]
    if rows:
        first = (np.array(rows) * poses.CHUNK)[:, None] + np.arange(poses.CHUNK)
        lost.append(f"covariances, where they had some, of {spans(first.ravel().tolist())}")
    touched |= {*changed, *unseen}
    for layout, keys in ((checksums.MEMORY, [*changed, *unseen]), (checksums.POSE, rows)):
        for part in chunks(keys):
            note_parts(connection, layout, part)
            renew(connection, layout, part)
    return lost


#: Encoders of each memory as bits: those with a vector when it was stored, and now.
VECTORS_OF = (
    "SELECT id, had, has FROM (SELECT m.id AS id, m.vectors AS had, (SELECT coalesce(sum(1 << (key % 64)), 0)"
    " FROM vector WHERE key BETWEEN 64 * m.id AND 64 * m.id + 63) AS has FROM memory AS m)"
)
#: Memories with missing or unexpected visits, and rows of poses with such covariances.
WITHOUT_VISITS = "SELECT id FROM memory WHERE visits <> (id IN (SELECT id FROM visited))"
WITHOUT_SPREAD = "SELECT chunk FROM pose WHERE spread <> (chunk IN (SELECT chunk FROM spread))"


def _known(connection: sqlite3.Connection) -> set[int]:
    """Return the ids of which anything exists."""
    tables = (
        "SELECT id FROM memory UNION SELECT id FROM body UNION SELECT id FROM visited"
        f" UNION SELECT key / {SLOTS} FROM vector"
    )
    return {id for (id,) in connection.execute(tables)} | set(poses.scan(connection)[0].tolist())


def _incomplete(connection: sqlite3.Connection) -> dict[int, list[str]]:
    """Return the missing parts of incomplete memories, by id."""
    posed = set(poses.scan(connection)[0].tolist())
    rows = {id for (id,) in connection.execute("SELECT id FROM memory")}
    texts = {id for (id,) in connection.execute("SELECT id FROM body")}
    found: dict[int, list[str]] = {}
    for id in _known(connection):
        parts = (("row", rows), ("texts", texts), ("pose", posed))
        missing = [name for name, there in parts if id not in there]
        if missing:
            found[id] = missing
    return found


def _by_part(broken: dict[int, list[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for id, missing in sorted(broken.items()):
        found.setdefault(" and ".join(missing), []).append(id)
    return found


def _remains(connection: sqlite3.Connection, id: int, missing: Sequence[str]) -> str:
    """Return the remains of a memory as JSON."""

    def row(table: str) -> dict[str, Any] | None:
        cursor = connection.execute(f"SELECT * FROM {table} WHERE id = ?", (id,))
        values = cursor.fetchone()
        names = [column[0] for column in cursor.description]
        return None if values is None else {n: v for n, v in zip(names, values, strict=True) if n != "crc"}

    names = dict(connection.execute("SELECT slot, name FROM slot").fetchall())
    where = poses.read(connection, np.array([id]), spread=True)[0]
    seen = connection.execute("SELECT visits FROM visited WHERE id = ?", (id,)).fetchone()
    vectors = connection.execute(SELECT_VECTORS, (json.dumps([id]),)).fetchall()
    return json.dumps(
        {
            "id": id,
            "lost": list(missing),
            "memory": row("memory"),
            "pose": where[:POSE].tolist() if has_pose(where[None])[0] else None,
            "covariance": None if np.isnan(where[-1]) else where[POSE:].tolist(),
            "body": row("body"),
            "vectors": {str(names[key % SLOTS]): base64.b64encode(half).decode() for key, half, _ in vectors},
            "visits": None if seen is None else base64.b64encode(seen[0]).decode(),
        }
    )


def _delete_all(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Delete all rows of memories."""
    for part in chunks(ids):
        bound = (json.dumps(part),)
        some = "IN (SELECT value FROM json_each(?))"
        for table in ("memory", "body", "visited"):
            connection.execute(f"DELETE FROM {table} WHERE id {some}", bound)
        connection.execute(f"DELETE FROM vector WHERE key / {SLOTS} {some}", bound)
        poses.clear(connection, np.array(part, dtype=np.int64))
    lone = poses.spread_ids(connection)
    bare = lone[~has_pose(poses.read(connection, lone))]
    poses.clear(connection, bare)


def spans(ids: Iterable[int], what: str = "memory") -> str:
    """Return rising numbers as text: ``memories 3, 5 to 9``."""
    found: list[list[int]] = []
    for id in sorted(ids):
        if found and found[-1][1] == id - 1:
            found[-1][1] = id
        else:
            found.append([id, id])
    text = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in found)
    if not what:
        return text
    return f"{what} {text}" if len(found) == 1 and found[0][0] == found[0][1] else f"memories {text}"
