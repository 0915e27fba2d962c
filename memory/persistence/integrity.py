"""Whether the file is sound and its indexes agree with its rows; what can be rebuilt is."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import numpy as np

from memory.persistence.operations import rebuild_place
from memory.persistence.records import SLOTS, clamp_sql

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
        except sqlite3.DatabaseError as error:
            found.append(f"{sort}: cannot be read ({error})")
    return found


def check_pages(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """SQLite's own check of the file, and foreign keys."""
    rows = connection.execute(f"PRAGMA integrity_check({SHOWN})").fetchall()
    found = [f"file: {text}" for (text,) in rows if text != "ok"]
    foreign = connection.execute("PRAGMA foreign_key_check").fetchmany(SHOWN)
    return found + [f"table {table}: row {row} has no {parent}" for table, row, parent, _ in foreign]


def check_bodies(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Every memory has its texts."""
    sql = "SELECT id FROM memory WHERE id NOT IN (SELECT id FROM body) LIMIT ?"
    return [f"body: memory {id} has none" for (id,) in connection.execute(sql, (SHOWN,))]


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
    """The R*Tree is sound, has the rows of the table, and holds their positions."""
    said = connection.execute("SELECT rtreecheck('main', 'place')").fetchone()[0]
    found = [] if said == "ok" else [f"place: {line}" for line in said.splitlines()[:SHOWN]]
    sql = (
        "SELECT m.id FROM memory AS m LEFT JOIN place AS p ON p.id = m.id WHERE p.id IS NULL"
        f" OR {clamp_sql('m.x')} NOT BETWEEN p.x0 AND p.x1"
        f" OR {clamp_sql('m.y')} NOT BETWEEN p.y0 AND p.y1 UNION ALL"
        " SELECT id FROM place WHERE id NOT IN (SELECT id FROM memory) LIMIT ?"
    )
    return found + [
        f"place: memory {id} is not as in the table" for (id,) in connection.execute(sql, (SHOWN,))
    ]


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


SORTS = {
    "file": check_pages,
    "body": check_bodies,
    "log": check_counter,
    "words": check_words,
    "place": check_place,
    "vector": check_vectors,
}


def repair(connection: sqlite3.Connection) -> list[str]:
    """Rebuild what is derived from the rows and drop what belongs to none, within the caller's transaction.

    Returns:
        What was done, in sentences. Damaged rows and vectors are left: only a backup has what they were.
    """
    connection.execute("REINDEX")
    connection.execute("INSERT INTO words (words) VALUES ('rebuild')")
    rebuild_place(connection)
    done = ["the indexes over time, labels, words and places were rebuilt"]
    keyless = f"DELETE FROM vector WHERE key / {SLOTS} NOT IN (SELECT id FROM memory)"
    for name, sql in (
        ("vectors", keyless),
        ("texts", "DELETE FROM body WHERE id NOT IN (SELECT id FROM memory)"),
    ):
        count = connection.execute(sql).rowcount
        if count:
            done.append(f"{count} {name} without a memory were dropped")
    return done
