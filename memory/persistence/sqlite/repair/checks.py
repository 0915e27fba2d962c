"""Checks of the file and its indexes, and repair of what can be derived."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.config import StoreConfig
from memory.errors import CorruptStoreError, StoreError
from memory.persistence import meta, visits
from memory.persistence.checksums import (
    BODY,
    LAYOUTS,
    LOG,
    LOG_ROW,
    MEMORY,
    NO_TEXT,
    POSE,
    SPREAD,
    VECTOR,
    Layout,
)
from memory.persistence.log.journal import Counters, read_changes
from memory.persistence.poses import POSE as POSE_WIDTH
from memory.persistence.poses import SPREAD as SPREAD_WIDTH
from memory.persistence.reports import CheckReport
from memory.persistence.rows import SLOTS
from memory.persistence.sqlite import places, poses, text_index, upkeep
from memory.persistence.sqlite.migrations import BARE
from memory.persistence.sqlite.repair.salvage import VECTORS_OF, WITHOUT_SPREAD, WITHOUT_VISITS
from memory.persistence.sqlite.tables import selection

#: Most problems listed per category.
SHOWN = 20
#: Index of the JSON column in a selected row of a layout.
JSON_COLUMNS = {BODY: 2, LOG: 7, LOG_ROW: 4}


def report(
    connection: sqlite3.Connection,
    problems: Sequence[str],
    repaired: Sequence[str] = (),
    lost: Sequence[str] = (),
) -> CheckReport:
    """Return a report with the number of readable memories."""
    try:
        memories = int(connection.execute("SELECT count(*) FROM memory").fetchone()[0])
    except sqlite3.DatabaseError:
        memories = 0
    return CheckReport(memories, tuple(problems), tuple(repaired), tuple(lost))


def look(connection: sqlite3.Connection, folder: Path) -> CheckReport:
    """Return the findings of a reader."""
    return report(connection, flatten(find_problems(connection, folder, writer=False)))


def flatten(problems: dict[str, list[str]]) -> list[str]:
    """Return the sentences of all categories."""
    return [line for lines in problems.values() for line in lines]


def find_problems(connection: sqlite3.Connection, folder: Path, *, writer: bool) -> dict[str, list[str]]:
    """Return all problems as sentences by category.

    Args:
        writer: True to also compare the text index word by word, which needs a writing connection.
    """
    found: dict[str, list[str]] = {}
    for sort, look in SORTS.items():
        try:
            problems = look(connection, writer)
        except UNREADABLE as error:
            problems = [f"{sort}: cannot be read ({error or type(error).__name__})"]
        if problems:
            found[sort] = problems
    try:
        StoreConfig.load(folder, str(meta.read(connection, meta.SETTINGS) or StoreConfig().to_text()))
    except (ValueError, StoreError, sqlite3.DatabaseError) as error:
        found["settings"] = [f"settings: {error}"]
    return found


#: Errors of unreadable rows; an interruption is not one of them. SQLite runs out of memory where a damaged
#: length is huge.
UNREADABLE = (
    sqlite3.DatabaseError,
    CorruptStoreError,
    LookupError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
)


def check_pages(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Run SQLite's own check of the file, and check foreign keys."""
    rows = connection.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
    found = [f"file: {text}" for (text,) in rows if text != "ok"]
    foreign = connection.execute("PRAGMA foreign_key_check").fetchmany(SHOWN)
    return found + [f"table {table}: row {row} has no {parent}" for table, row, parent, _ in foreign]


def check_rows(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that every source row exists and is as stored, with readable JSON."""
    found = []
    summed = meta.read(connection, meta.SUMMED) is not None
    if not summed:
        found.append(f"file: {BARE}")
    for layout in LAYOUTS:
        wrong, bare, after = 0, 0, None
        try:
            for row in connection.execute(f"{selection(layout)} ORDER BY 1"):
                after = row[0]
                bare += row[-1] is None
                if row[-1] is None and not summed:
                    continue
                if not layout.fits(row) or not _is_json(layout, row):
                    wrong += 1
                    if wrong <= SHOWN:
                        found.append(f"{layout.table}: {name_of(layout, after)} is not what was stored")
        except sqlite3.DatabaseError as error:
            behind = "from the first row on" if after is None else f"after {name_of(layout, after)}"
            found.append(f"{layout.table}: cannot be read {behind} ({error})")
            found += [
                f"{layout.table}: {name_of(layout, key)} cannot be read"
                for key in _hidden(connection, layout)
            ]
        if wrong > SHOWN:
            found.append(f"{layout.table}: {wrong} rows are not what was stored, {bare} without a checksum")
    for name, value, checksum in connection.execute("SELECT name, value, crc FROM meta"):
        if meta.checksum(name, value) != checksum and (checksum is not None or summed):
            found.append(f"meta: {name} is not what was stored")
    return found


def _is_json(layout: Layout, row: Sequence[Any]) -> bool:
    """Return True if the JSON column of a row is valid, if it has one."""
    if layout not in JSON_COLUMNS:
        return True
    text = row[JSON_COLUMNS[layout]]
    if text in (b"{}", NO_TEXT):
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def name_of(layout: Layout, key: int) -> str:
    """Return the name of a row for the user."""
    if layout is VECTOR:
        return f"memory {key // SLOTS} (key {key})"
    if layout in (POSE, SPREAD):
        return f"row {key} (memories {poses.CHUNK * key} to {poses.CHUNK * (key + 1) - 1})"
    return f"memory {key}" if layout.key == "id" else f"row {key}"


def _hidden(connection: sqlite3.Connection, layout: Layout) -> list[int]:
    """Return some of the rows that cannot be read one by one, by the ids in the log."""
    if layout not in (MEMORY, BODY):
        return []
    found: list[int] = []
    for id in read_changes(connection, 0).added.tolist():
        try:
            connection.execute(f"{selection(layout)} WHERE t.{layout.key} = ?", (id,)).fetchone()
        except sqlite3.DatabaseError:
            found.append(id)
        if len(found) == SHOWN:
            break
    return found


def check_bodies(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that every memory has texts, and texts have a memory."""
    sql = "SELECT id FROM memory WHERE id NOT IN (SELECT id FROM body) LIMIT ?"
    found = [f"body: memory {id} has none" for (id,) in connection.execute(sql, (SHOWN,))]
    sql = "SELECT id FROM body WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    return found + [f"body: {id} has no memory" for (id,) in connection.execute(sql, (SHOWN,))]


def check_poses(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that every memory has a pose, poses have a memory, and covariances have a pose."""
    found = []
    for table, column, width in (("pose", "poses", POSE_WIDTH), ("spread", "covariances", SPREAD_WIDTH)):
        size = 8 * width * poses.CHUNK
        sql = f"SELECT chunk, length({column}) FROM {table} WHERE length({column}) <> ? LIMIT ?"
        for chunk, length in connection.execute(sql, (size, SHOWN)):
            found.append(f"{table}: row {chunk} has {length} bytes instead of {size}")
    if found:
        return found
    ids = memory_ids(connection)
    posed, values = poses.scan(connection)
    found += [f"pose: memory {id} has none" for id in absent(ids, posed)]
    found += [f"pose: {id} has no memory" for id in absent(posed, ids)]
    # The position of a memory without a known place is NaN as a whole.
    placed = np.isfinite(values[:, :3]).all(axis=1) | np.isnan(values[:, :3]).all(axis=1)
    wrong = posed[~(placed & np.isfinite(values[:, 3]))]
    found += [f"pose: the pose of memory {id} is not finite" for id in wrong[:SHOWN]]
    return found + [f"spread: {id} has no memory" for id in absent(poses.spread_ids(connection), ids)]


def absent(ids: NDArray[np.int64], known: NDArray[np.int64]) -> list[int]:
    """Return the first ids that are not among the known ones."""
    absent: list[int] = ids[~np.isin(ids, known)][:SHOWN].tolist()
    return absent


def memory_ids(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """Return all ids, rising."""
    rows = connection.execute("SELECT id FROM memory ORDER BY id").fetchall()
    return np.array([id for (id,) in rows], dtype=np.int64)


def check_log(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that the log has no gaps, ids are not reused, and the memories match the log."""
    highest = connection.execute("SELECT coalesce(max(id), 0) FROM memory").fetchone()[0]
    following = connection.execute("SELECT next_id FROM log ORDER BY generation DESC LIMIT 1").fetchone()
    following = 1 if following is None else following[0]
    found = [f"log: the next id is {following}, memory {highest} exists"] if highest >= following else []
    for table, key in (("log", "generation"), ("log_row", "row"), ("log_pose", "row")):
        count, last = connection.execute(f"SELECT count(*), coalesce(max({key}), 0) FROM {table}").fetchone()
        if count != last:
            found.append(f"log: {last - count} of {last} rows of {table} are missing")
    steps = (
        "SELECT l.generation FROM log AS l JOIN log AS n ON n.generation = l.generation + 1"
        " WHERE n.first_id < l.next_id OR l.next_id < l.first_id LIMIT ?"
    )
    found += [f"log: the ids of operation {at} overlap" for (at,) in connection.execute(steps, (SHOWN,))]
    ids, logged = memory_ids(connection), read_changes(connection, 0).added
    found += [f"memory: {id} is missing, the log has it" for id in absent(logged, ids)]
    found += [f"memory: {id} is not in the log" for id in absent(ids, logged)]
    loss = meta.read(connection, meta.LOSS)
    return found if loss is None else [*found, f"log: {loss}"]


def check_erasure(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that all erasures are finished."""
    return [f"file: {upkeep.WAITS}"] if upkeep.has_pending_erasure(connection) else []


def check_words(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that the text index matches the rows."""
    sql = (
        "SELECT id FROM memory WHERE id NOT IN (SELECT id FROM words_docsize) UNION ALL"
        " SELECT id FROM words_docsize WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    )
    found = [f"words: memory {id} does not match the table" for (id,) in connection.execute(sql, (SHOWN,))]
    if writer and not found:
        found += [
            f"words: memory {id} does not match the table"
            for id in text_index.find_mismatches(connection, SHOWN)
        ]
    if writer and not found:
        try:
            connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        except (sqlite3.DatabaseError, MemoryError) as error:
            found.append(f"words: the index does not match the table ({error or type(error).__name__})")
    return found


def check_place(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that the R*Tree holds the blocks, and every memory is in one or waits for it."""
    result = connection.execute("SELECT rtreecheck('main', 'place')").fetchone()[0]
    found = [] if result == "ok" else [f"place: {line}" for line in result.splitlines()[:SHOWN]]
    boxes = {row[0]: row[1:] for row in connection.execute("SELECT block, x0, x1, y0, y1 FROM place")}
    ids, points = [np.zeros(0, np.int64)], [np.zeros((0, 2))]
    for block, *blobs in connection.execute("SELECT block, ids, points FROM block"):
        if len(blobs[0]) % 8 or len(blobs[1]) != 2 * len(blobs[0]):
            found.append(f"place: block {block} has {len(blobs[0])} and {len(blobs[1])} bytes")
            continue
        part = places.unpack([(blobs[0], blobs[1])])
        x0, x1, y0, y1 = boxes.pop(block, (np.inf, -np.inf, np.inf, -np.inf))
        low, high = ([places.clamp(v) for v in edge] for edge in (part.points.min(0), part.points.max(0)))
        if low[0] < x0 or low[1] < y0 or high[0] > x1 or high[1] > y1:
            found.append(f"place: block {block} is not where its memories are")
        ids.append(part.ids)
        points.append(part.points)
    found += [f"place: block {block} is in the tree only" for block in boxes]
    known, where = poses.scan(connection)
    known = known[~np.isnan(where[:, 0])]  # Memories without a known place are in no block.
    waiting = np.isin(known, places.tail(connection))
    blocked, where = np.concatenate(ids), np.concatenate(points)
    right = (poses.read(connection, blocked)[:, :2] == where).all(axis=1)
    lost = known[~waiting & ~np.isin(known, blocked[right])]
    return (found + [f"place: memory {id} does not match the table" for id in lost.tolist()])[:SHOWN]


def check_vectors(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that vectors belong to a memory and a slot, have its length, and are unit vectors."""
    found = [
        f"vector: the vectors of memory {id} do not match its row"
        for id, _, _ in connection.execute(f"{VECTORS_OF} WHERE had <> has LIMIT ?", (SHOWN,))
    ]
    found += [
        f"visited: the visits of memory {id} do not match its row"
        for (id,) in connection.execute(WITHOUT_VISITS)
    ][:SHOWN]
    for (chunk,) in connection.execute(WITHOUT_SPREAD):
        found.append(f"spread: the covariances of {name_of(POSE, chunk)} do not match it")
    orphans = f"SELECT key FROM vector WHERE key / {SLOTS} NOT IN (SELECT id FROM memory) LIMIT ?"
    found += [f"vector: key {key} has no memory" for (key,) in connection.execute(orphans, (SHOWN,))]
    sizes = (
        f"SELECT key, length(half), dim FROM vector LEFT JOIN slot ON slot.slot = vector.key % {SLOTS}"
        " WHERE dim IS NULL OR length(half) <> 2 * dim LIMIT ?"
    )
    for key, size, dim in connection.execute(sizes, (SHOWN,)):
        wrong = "no encoder" if dim is None else f"{size} bytes instead of {2 * dim}"
        found.append(f"vector: key {key} has {wrong}")
    bad = 0
    with np.errstate(all="ignore"):
        for key, half in connection.execute("SELECT key, half FROM vector"):
            if len(half) % 2:
                continue
            numbers = np.frombuffer(half, "<f2").astype(np.float64)
            if not 0.98 < numbers @ numbers < 1.02:
                bad += 1
                if bad <= SHOWN:
                    found.append(f"vector: key {key} is not a unit vector")
    return found


def check_visits(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Check that visits belong to a memory, are readable, and match the times of their row."""
    orphans = "SELECT id FROM visited WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    found = [f"visited: {id} has no memory" for (id,) in connection.execute(orphans, (SHOWN,))]
    for id, first, last, blob in connection.execute("SELECT id, first_ns, last_ns, visits FROM visited"):
        try:
            kept = visits.unpack(id, blob)
        except CorruptStoreError as error:
            found.append(f"visited: {error}")
        else:
            if (kept[0].first_ns, kept[-1].last_ns) != (first, last):
                found.append(f"visited: the visits of memory {id} do not match the times of their row")
    return found[:SHOWN]


SORTS = {
    "file": check_pages,
    "rows": check_rows,
    "body": check_bodies,
    "pose": check_poses,
    "log": check_log,
    "words": check_words,
    "place": check_place,
    "vector": check_vectors,
    "visited": check_visits,
    "erasure": check_erasure,
}
#: Categories that a repair in place fixes, if nothing else is wrong.
DERIVED = {"words", "place", "erasure", "settings"}


def repair(connection: sqlite3.Connection, counters: Counters) -> list[str]:
    """Rebuild what is derived from the rows, within the caller's transaction; return the actions."""
    connection.execute("REINDEX")
    text_index.rebuild(connection)
    places.rebuild(connection, counters.next_id - 1)
    counters.placed = counters.next_id - 1
    return ["the indexes over time, labels, words and places were rebuilt"]
