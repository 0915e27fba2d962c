"""Whether the file is sound and its indexes agree with its rows; what can be rebuilt is."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError
from memory.persistence import places, poses, visits
from memory.persistence.journal import Counters
from memory.persistence.records import SLOTS

#: Problems that are listed of each sort.
SHOWN = 20


@dataclass(frozen=True)
class CheckReport:
    """What a check found.

    Attributes:
        memories: rows that were looked at.
        problems: sentences; after a repair those that remain.
        repaired: what was rebuilt or dropped.
    """

    memories: int
    problems: tuple[str, ...]
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing is wrong (any more)."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "ok": self.ok,
            "memories": self.memories,
            "problems": list(self.problems),
            "repaired": list(self.repaired),
        }

    def __str__(self) -> str:
        """One line for each finding."""
        lines = [f"{self.memories} memories: {'sound' if self.ok else f'{len(self.problems)} problems'}"]
        lines += [f"  repaired: {line}" for line in self.repaired]
        return "\n".join(lines + [f"  {line}" for line in self.problems])


def report(
    connection: sqlite3.Connection, problems: Sequence[str], repaired: Sequence[str] = ()
) -> CheckReport:
    """What was found, with the number of rows that could be looked at."""
    try:
        memories = int(connection.execute("SELECT count(*) FROM memory").fetchone()[0])
    except sqlite3.DatabaseError:
        memories = 0
    return CheckReport(memories, tuple(problems), tuple(repaired))


def find_problems(connection: sqlite3.Connection, *, writer: bool) -> list[str]:
    """Everything that is wrong, in sentences.

    Args:
        connection: to look through.
        writer: also compare the text index word by word, which only a connection that may write can ask for.
    """
    found = []
    for sort, look in SORTS.items():
        try:
            found += look(connection, writer)
        except (sqlite3.DatabaseError, CorruptStoreError) as error:
            found.append(f"{sort}: cannot be read ({error})")
    return found


def check_pages(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """SQLite's own check of the file, and foreign keys."""
    rows = connection.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
    found = [f"file: {text}" for (text,) in rows if text != "ok"]
    foreign = connection.execute("PRAGMA foreign_key_check").fetchmany(SHOWN)
    return found + [f"table {table}: row {row} has no {parent}" for table, row, parent, _ in foreign]


def check_bodies(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Every memory has its texts, and texts have a memory."""
    sql = "SELECT id FROM memory WHERE id NOT IN (SELECT id FROM body) LIMIT ?"
    found = [f"body: memory {id} has none" for (id,) in connection.execute(sql, (SHOWN,))]
    sql = "SELECT id FROM body WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    return found + [f"body: {id} has no memory" for (id,) in connection.execute(sql, (SHOWN,))]


def check_poses(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Every memory has its pose, poses have a memory, and covariances a pose."""
    found = []
    for table, column, width in (("pose", "poses", poses.POSE), ("spread", "covariances", poses.SPREAD)):
        size = 8 * width * poses.CHUNK
        sql = f"SELECT chunk, length({column}) FROM {table} WHERE length({column}) <> ? LIMIT ?"
        for chunk, length in connection.execute(sql, (size, SHOWN)):
            found.append(f"{table}: row {chunk} has {length} bytes instead of {size}")
    if found:
        return found
    ids = memory_ids(connection)
    posed, values = poses.scan(connection)
    found += [f"pose: memory {id} has none" for id in missing(ids, posed)]
    found += [f"pose: {id} has no memory" for id in missing(posed, ids)]
    wrong = posed[~np.isfinite(values).all(axis=1)]
    found += [f"pose: that of memory {id} is not finite" for id in wrong[:SHOWN]]
    return found + [f"spread: {id} has no memory" for id in missing(spread_ids(connection), ids)]


def missing(ids: NDArray[np.int64], known: NDArray[np.int64]) -> list[int]:
    """The first of the ids that are not among the known."""
    absent: list[int] = ids[~np.isin(ids, known)][:SHOWN].tolist()
    return absent


def memory_ids(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """All ids, rising."""
    rows = connection.execute("SELECT id FROM memory ORDER BY id").fetchall()
    return np.array([id for (id,) in rows], dtype=np.int64)


def spread_ids(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """The ids that have a covariance."""
    found = [np.zeros(0, np.int64)]
    for (chunk,) in connection.execute("SELECT chunk FROM spread").fetchall():
        spreads = poses.read_chunks(connection, "spread", np.array([chunk]))[0]
        found.append(poses.CHUNK * chunk + np.flatnonzero(~np.isnan(spreads).all(axis=1)))
    return np.concatenate(found)


def check_counter(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Ids are not about to be used again."""
    highest = connection.execute("SELECT coalesce(max(id), 0) FROM memory").fetchone()[0]
    following = connection.execute("SELECT next_id FROM log ORDER BY generation DESC LIMIT 1").fetchone()
    following = 1 if following is None else following[0]
    return [f"log: the next id is {following}, memory {highest} exists"] if highest >= following else []


def check_words(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """The text index has the rows of the table and their words."""
    sql = (
        "SELECT id FROM memory WHERE id NOT IN (SELECT id FROM words_docsize) UNION ALL"
        " SELECT id FROM words_docsize WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    )
    found = [f"words: memory {id} is not as in the table" for (id,) in connection.execute(sql, (SHOWN,))]
    if writer and not found:
        try:
            connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            found.append(f"words: not as in the table ({error})")
    return found


def check_place(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """The R*Tree is sound, holds the blocks, and every memory is in one or waits for it."""
    said = connection.execute("SELECT rtreecheck('main', 'place')").fetchone()[0]
    found = [] if said == "ok" else [f"place: {line}" for line in said.splitlines()[:SHOWN]]
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
    known, _ = poses.scan(connection)
    waiting = np.isin(known, places.tail(connection))
    blocked, where = np.concatenate(ids), np.concatenate(points)
    right = (poses.read(connection, blocked)[:, :2] == where).all(axis=1)
    lost = known[~waiting & ~np.isin(known, blocked[right])]
    return (found + [f"place: memory {id} is not as in the table" for id in lost.tolist()])[:SHOWN]


def check_vectors(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Vectors belong to a memory and a slot, have its length, and are unit vectors."""
    found = []
    orphans = f"SELECT key FROM vector WHERE key / {SLOTS} NOT IN (SELECT id FROM memory) LIMIT ?"
    found += [f"vector: key {key} has no memory" for (key,) in connection.execute(orphans, (SHOWN,))]
    sizes = (
        f"SELECT key, length(half), dim FROM vector LEFT JOIN slot ON slot.slot = vector.key % {SLOTS}"
        " WHERE dim IS NULL OR length(half) <> 2 * dim LIMIT ?"
    )
    for key, size, dim in connection.execute(sizes, (SHOWN,)):
        found.append(f"vector: key {key} has {size} bytes, its encoder {dim or 'no'} numbers")
    bad = 0
    for key, half in connection.execute("SELECT key, half FROM vector"):
        if (
            len(half) % 2 == 0
            and not 0.99 < np.linalg.norm(np.frombuffer(half, "<f2").astype(np.float64)) < 1.01
        ):
            bad += 1
            if bad <= SHOWN:
                found.append(f"vector: key {key} is no unit vector")
    return found


def check_visits(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Visits belong to a memory, can be read, and are of the time that their row says."""
    orphans = "SELECT id FROM visited WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    found = [f"visited: {id} has no memory" for (id,) in connection.execute(orphans, (SHOWN,))]
    for id, first, last, blob in connection.execute("SELECT id, first_ns, last_ns, visits FROM visited"):
        try:
            kept = visits.unpack(id, blob)
        except CorruptStoreError as error:
            found.append(f"visited: {error}")
        else:
            if (kept[0].first_ns, kept[-1].last_ns) != (first, last):
                found.append(f"visited: those of memory {id} are not of the time of their row")
    return found[:SHOWN]


SORTS = {
    "file": check_pages,
    "body": check_bodies,
    "pose": check_poses,
    "log": check_counter,
    "words": check_words,
    "place": check_place,
    "vector": check_vectors,
    "visited": check_visits,
}


def repair(connection: sqlite3.Connection, counters: Counters) -> list[str]:
    """Rebuild what is derived from the rows and drop what belongs to none, within the caller's transaction.

    Returns:
        What was done, in sentences. Damaged rows and vectors are left: only a backup has what they were.
    """
    connection.execute("REINDEX")
    connection.execute("INSERT INTO words (words) VALUES ('rebuild')")
    done = ["the indexes over time, labels, words and places were rebuilt"]
    try:
        posed = poses.distinct(np.concatenate([poses.scan(connection)[0], spread_ids(connection)]))
        lone = posed[~np.isin(posed, memory_ids(connection))]
        if len(lone):
            poses.clear(connection, lone)
            done.append(f"{len(lone)} poses without a memory were dropped")
        places.rebuild(connection, counters.next_id - 1)
        counters.placed = counters.next_id - 1
    except CorruptStoreError:
        done = ["the indexes over time, labels and words were rebuilt"]
    done += repair_visits(connection)
    keyless = f"DELETE FROM vector WHERE key / {SLOTS} NOT IN (SELECT id FROM memory)"
    for name, sql in (
        ("vectors", keyless),
        ("texts", "DELETE FROM body WHERE id NOT IN (SELECT id FROM memory)"),
        ("visits", "DELETE FROM visited WHERE id NOT IN (SELECT id FROM memory)"),
    ):
        count = connection.execute(sql).rowcount
        if count:
            done.append(f"{count} {name} without a memory were dropped")
    return done


def repair_visits(connection: sqlite3.Connection) -> list[str]:
    """Make the time of each row that of its visits, where these can be read."""
    wrong = {}
    for id, first, last, blob in connection.execute("SELECT id, first_ns, last_ns, visits FROM visited"):
        try:
            kept = visits.unpack(id, blob)
        except CorruptStoreError:
            continue
        if (kept[0].first_ns, kept[-1].last_ns) != (first, last):
            wrong[id] = kept
    visits.write(connection, wrong)
    return [f"the times of {len(wrong)} rows of visits were set right"] if wrong else []
