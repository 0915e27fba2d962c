"""Schema of ``memory.db``, version by version.

Append only: a released migration is never edited, because stores were written with it. The file's ``PRAGMA
user_version`` is the number of the last migration that ran.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from memory.persistence import checksums, meta
from memory.persistence.sql import Migration, check_version
from memory.persistence.sqlite import tables, text_index
from memory.persistence.sqlite.connection import transaction

#: Rows per transaction that get checksums after a migration.
AT_ONCE = 20_000
#: Remark while rows of an older store have no checksums.
BARE = (
    "rows from before version 3 have no checksums yet. They get them when the store is opened with free space"
)
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
        # Separate from ``memory``, so that scans stay small and counting does not rewrite payloads.
        """CREATE TABLE body (
            id INTEGER PRIMARY KEY,
            caption TEXT NOT NULL,
            payload TEXT NOT NULL DEFAULT '{}',
            evidence TEXT NOT NULL DEFAULT '',
            provenance TEXT NOT NULL DEFAULT ''
        )""",
        # Many ids per row, because a loop closure changes a million poses at once.
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
        # Merge less often than by default: a single memory writes a third fewer pages.
        "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
        # An R*Tree over blocks of nearby memories, and the memories that are in no block yet.
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
        # Separate from ``memory``: a memory with a single observation has no row here.
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
        # Bits of the encoders with a vector, whether it has visits, and whether a row of poses has
        # covariances, so that losses are noticed.
        "ALTER TABLE memory ADD COLUMN vectors INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE memory ADD COLUMN visits INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE pose ADD COLUMN spread INTEGER NOT NULL DEFAULT 0",
        # Random number that identifies the operation, independent of its number and the clock.
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

#: No table changes, but an older release would show its readers the raw values of the log.
VERSION_4 = Migration("reasons of the log are values; those of before are sentences, and stay", ())

#: No table changes, but an older release would treat such memories as lost.
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
        # Marks are parts of letters, such as vowels of Thai and Hindi.
        """CREATE VIRTUAL TABLE words USING fts5(
            label, caption, content='text_source', content_rowid='id',
            tokenize="unicode61 remove_diacritics 0 categories 'L* N* Co M*'"
        )""",
        "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
        "INSERT INTO words (words) VALUES ('rebuild')",
    ),
)

VERSION_7 = Migration(
    "velocities, whose checksums cover them where they are known",
    ("ALTER TABLE memory ADD COLUMN velocity TEXT",),
)

#: Version ``n`` is the state after the first ``n`` migrations.
MIGRATIONS: tuple[Migration, ...] = (
    VERSION_1,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    VERSION_5,
    VERSION_6,
    VERSION_7,
)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the file's ``PRAGMA user_version``; 0 for an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(
    connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS, *, name: str = "the store"
) -> list[int]:
    """Run the migrations that the file has not seen, each in its own transaction.

    Args:
        migrations: the whole chain, oldest first.

    Returns:
        The versions reached, in order; empty if the file was up to date.

    Raises:
        StoreVersionError: the file is newer than the chain.
    """
    found = schema_version(connection)
    check_version(found, latest=len(migrations), name=name)
    text_index.register_function(connection)
    reached = []
    for version, migration in enumerate(migrations[found:], start=found + 1):
        with transaction(connection):
            for statement in migration.statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
        reached.append(version)
    return reached


def complete(connection: sqlite3.Connection) -> None:
    """Add checksums to the rows of a store older than version 3, if any are missing.

    It uses many small transactions, so that it can be interrupted and continued at the next opening.
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
    """Run :func:`complete` if there is space; otherwise return the reason. The store opens anyway."""
    try:
        complete(connection)
    except sqlite3.OperationalError as error:
        return f"{BARE}: {error}"
    return None


def _keys_without(connection: sqlite3.Connection, layout: checksums.Layout) -> Iterator[list[int]]:
    """Yield the keys of rows without a checksum, one list per transaction."""
    after = -(2**63)
    sql = f"SELECT {layout.key}, crc IS NULL FROM {layout.table} WHERE {layout.key} > ? ORDER BY 1 LIMIT ?"
    while rows := connection.execute(sql, (after, AT_ONCE)).fetchall():
        after = rows[-1][0]
        keys = [key for key, bare in rows if bare]
        if keys:
            yield keys
