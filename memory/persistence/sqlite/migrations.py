"""The schema of ``memory.db``, version by version.

Append only: a migration that was released is never edited, because stores were written with it. The number of
the last migration that ran is the file's ``PRAGMA user_version``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from memory.persistence import checksums, meta
from memory.persistence.sql import Migration, check_version
from memory.persistence.sqlite import tables, text_index
from memory.persistence.sqlite.connection import transaction

#: Rows that get their checksums in one transaction after a migration.
AT_ONCE = 20_000
#: Said while rows of an older store have no checksums.
BARE = "rows of before version 3 have no checksums yet, which are written when the store is opened with room"
#: "RCLL" in ASCII; ``PRAGMA application_id`` of every store.
APPLICATION_ID = 0x52434C4C


VERSION_1 = Migration(
    "first schema",
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        """CREATE TABLE memory (
            id INTEGER PRIMARY KEY,
            time_ns INTEGER NOT NULL,
            map_id TEXT NOT NULL,
            kind TEXT NOT NULL DEFAULT 'object',
            label TEXT NOT NULL,
            confidence REAL NOT NULL DEFAULT 1.0,
            reward REAL NOT NULL DEFAULT 0.0,
            marked INTEGER NOT NULL DEFAULT 0,
            count INTEGER NOT NULL DEFAULT 1,
            first_seen_ns INTEGER,
            last_seen_ns INTEGER,
            state TEXT NOT NULL DEFAULT 'present',
            importance REAL,
            access_count INTEGER NOT NULL DEFAULT 0,
            accessed_ns INTEGER
        )""",
        "CREATE INDEX memory_time ON memory (map_id, time_ns)",
        "CREATE INDEX memory_label ON memory (map_id, label, time_ns)",
        "CREATE INDEX memory_kind ON memory (kind, time_ns)",
        # Apart from ``memory``, so that scans stay small and a count is changed without rewriting a payload.
        """CREATE TABLE body (
            id INTEGER PRIMARY KEY,
            caption TEXT NOT NULL,
            payload TEXT NOT NULL DEFAULT '{}',
            evidence TEXT NOT NULL DEFAULT '',
            provenance TEXT NOT NULL DEFAULT ''
        )""",
        # Many ids in a row: after a loop closure a million of poses change at once.
        "CREATE TABLE pose (chunk INTEGER PRIMARY KEY, poses BLOB NOT NULL)",
        "CREATE TABLE spread (chunk INTEGER PRIMARY KEY, covariances BLOB NOT NULL)",
        "CREATE TABLE slot (slot INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL)",
        "CREATE TABLE vector (key INTEGER PRIMARY KEY, half BLOB NOT NULL)",
        """CREATE VIEW text_source AS
            SELECT memory.id AS id, memory.label AS label, body.caption AS caption
            FROM memory JOIN body ON body.id = memory.id""",
        """CREATE VIRTUAL TABLE words USING fts5(
            label, caption,
            content='text_source', content_rowid='id', tokenize='unicode61 remove_diacritics 2'
        )""",
        # Merged less often than by default: a third fewer pages are written for a memory that comes alone.
        "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
        # An R*Tree over blocks of memories that are near each other, and what is not in a block yet.
        "CREATE VIRTUAL TABLE place USING rtree(block, x0, x1, y0, y1)",
        "CREATE TABLE block (block INTEGER PRIMARY KEY, ids BLOB NOT NULL, points BLOB NOT NULL)",
        """CREATE TABLE run (
            run INTEGER PRIMARY KEY AUTOINCREMENT,
            large INTEGER NOT NULL,
            first_block INTEGER NOT NULL,
            next_block INTEGER NOT NULL
        )""",
        "CREATE TABLE loose (id INTEGER PRIMARY KEY)",
        """CREATE TABLE log (
            generation INTEGER PRIMARY KEY,
            time_ns INTEGER NOT NULL,
            operation TEXT NOT NULL,
            first_id INTEGER NOT NULL,
            next_id INTEGER NOT NULL,
            undoes INTEGER,
            detail TEXT NOT NULL
        )""",
        "CREATE INDEX log_undoes ON log (undoes) WHERE undoes IS NOT NULL",
        """CREATE TRIGGER log_keeps BEFORE DELETE ON log
            BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
        """CREATE TRIGGER log_stays BEFORE UPDATE ON log
            BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
        """CREATE TABLE log_row (
            row INTEGER PRIMARY KEY,
            generation INTEGER NOT NULL REFERENCES log (generation),
            id INTEGER NOT NULL,
            what TEXT NOT NULL,
            before TEXT
        )""",
        "CREATE INDEX log_row_generation ON log_row (generation)",
        "CREATE INDEX log_row_id ON log_row (id)",
        """CREATE TABLE log_pose (
            row INTEGER PRIMARY KEY,
            generation INTEGER NOT NULL REFERENCES log (generation),
            first_id INTEGER NOT NULL,
            last_id INTEGER NOT NULL,
            ids BLOB NOT NULL,
            poses BLOB,
            covariances BLOB
        )""",
        "CREATE INDEX log_pose_generation ON log_pose (generation)",
    ),
)

VERSION_2 = Migration(
    "visits of merged memories",
    (
        # Apart from ``memory``: one that is a single sight has no row here, and costs nothing.
        """CREATE TABLE visited (
            id INTEGER PRIMARY KEY,
            first_ns INTEGER NOT NULL,
            last_ns INTEGER NOT NULL,
            visits BLOB NOT NULL
        )""",
        "CREATE INDEX visited_span ON visited (first_ns, last_ns)",
    ),
)

_SUMMED = (
    "memory",
    "body",
    "pose",
    "spread",
    "visited",
    "vector",
    "slot",
    "log",
    "log_row",
    "log_pose",
    "meta",
)
VERSION_3 = Migration(
    "checksums of rows, and what tells one history of a store from another",
    (
        # Encoders that a memory has vectors of, a bit each, whether it has visits, and whether any pose of a
        # row has a covariance: so that what is lost is missed.
        "ALTER TABLE memory ADD COLUMN vectors INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE memory ADD COLUMN visits INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE pose ADD COLUMN spread INTEGER NOT NULL DEFAULT 0",
        # A random number: only the very same operation has it, whatever its number and the clock.
        "ALTER TABLE log ADD COLUMN token INTEGER",
        *(f"ALTER TABLE {table} ADD COLUMN crc INTEGER" for table in _SUMMED),
        "DROP TRIGGER log_stays",
        "UPDATE log SET token = abs(random() >> 1)",
        """CREATE TRIGGER log_stays
            BEFORE UPDATE OF generation, time_ns, operation, first_id, next_id, undoes, detail, token ON log
            BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END""",
        "INSERT INTO meta (name, value) VALUES ('store', lower(hex(randomblob(16))))",
    ),
)

#: No table is another: a release of before would show its readers the values as they lie in the log.
VERSION_4 = Migration("reasons of the log are values; those of before are sentences, and stay", ())

#: No table is another: a release of before would take such memories for lost.
VERSION_5 = Migration("positions may be unknown; those of before are kept as they are", ())

VERSION_6 = Migration(
    "words of every script: terms of what is not ASCII, and letters that differ in form only are one",
    (
        "DROP TABLE words",
        "DROP VIEW text_source",
        "CREATE TABLE folded (id INTEGER PRIMARY KEY, label TEXT NOT NULL, caption TEXT NOT NULL)",
        f"INSERT INTO folded (id, label, caption) {text_index.FOLD}",
        """CREATE VIEW text_source AS
            SELECT memory.id AS id, coalesce(folded.label, memory.label) AS label,
            coalesce(folded.caption, body.caption) AS caption
            FROM memory JOIN body ON body.id = memory.id LEFT JOIN folded ON folded.id = memory.id""",
        # Marks are parts of letters: vowels of Thai and Hindi are such.
        """CREATE VIRTUAL TABLE words USING fts5(
            label, caption, content='text_source', content_rowid='id',
            tokenize="unicode61 remove_diacritics 0 categories 'L* N* Co M*'"
        )""",
        "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
        "INSERT INTO words (words) VALUES ('rebuild')",
    ),
)

#: Version ``n`` is the state after the first ``n`` of them.
MIGRATIONS: tuple[Migration, ...] = (VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6)


def schema_version(connection: sqlite3.Connection) -> int:
    """The file's ``PRAGMA user_version``; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS, *, name: str = "the store"
) -> list[int]:
    """Run the migrations that the file has not seen, each in a transaction of its own.

    Args:
        connection: without a transaction; nobody else writes.
        migrations: the whole chain, oldest first.
        name: of the file, for errors.

    Returns:
        The versions that were reached, in order; empty when the file was up to date.

    Raises:
        StoreVersionError: the file is newer than the chain.
    """
    found = schema_version(connection)
    check_version(found, latest=len(migrations), name=name)
    text_index.teach(connection)
    reached = []
    for version, migration in enumerate(migrations[found:], start=found + 1):
        with transaction(connection):
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
        reached.append(version)
    return reached


def complete(connection: sqlite3.Connection) -> None:
    """Give the rows of a store of before version 3 their checksums; nothing where all have them.

    In many small transactions: it may be interrupted, and goes on at the next opening.
    """
    if meta.read(connection, meta.SUMMED) is not None:
        return
    for layout in checksums.LAYOUTS:
        for keys in _keys_without(connection, layout):
            with transaction(connection):
                tables.note_parts(connection, layout, keys)
                tables.renew(connection, layout, keys)
    with transaction(connection):
        meta.renew(connection)
        meta.write(connection, meta.SUMMED, 1)


def complete_now(connection: sqlite3.Connection) -> str | None:
    """The same if there is room for it; otherwise say why not. A store can be opened all the same."""
    try:
        complete(connection)
    except sqlite3.OperationalError as error:
        return f"{BARE}: {error}"
    return None


def _keys_without(connection: sqlite3.Connection, layout: checksums.Layout) -> Iterator[list[int]]:
    """Keys of rows without a checksum, a transaction's worth at a time."""
    after = -(2**63)
    sql = f"SELECT {layout.key}, crc IS NULL FROM {layout.table} WHERE {layout.key} > ? ORDER BY 1 LIMIT ?"
    while rows := connection.execute(sql, (after, AT_ONCE)).fetchall():
        after = rows[-1][0]
        keys = [key for key, bare in rows if bare]
        if keys:
            yield keys
