"""Named values of a store in the table ``meta``, each with a checksum."""

from __future__ import annotations

from zlib import crc32

from memory.persistence.sql import Connection

#: Seed of the checksums of ``meta``.
SEED = 11

#: Random name of the store.
STORE = "store"
#: Settings.
SETTINGS = "settings"
#: Last id in the place index.
PLACED = "placed"
#: Last operation that can no longer be undone.
TRIMMED = "trimmed"
#: Set while an erasure is unfinished.
ERASURE = "scrub"
#: Sentence about lost operations, until a repair.
LOSS = "lost"
#: Set once every row has its checksum.
SUMMED = "summed"


def read(connection: Connection, name: str) -> int | str | None:
    """Return a value, or ``None``."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def read_number(connection: Connection, name: str) -> int:
    """Return a number, or 0."""
    return int(read(connection, name) or 0)


def write(connection: Connection, name: str, value: int | str) -> None:
    """Set a value."""
    sql = (
        "INSERT INTO meta (name, value, crc) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value, crc = excluded.crc"
    )
    connection.execute(sql, (name, value, checksum(name, value)))


def delete(connection: Connection, name: str) -> None:
    """Delete a value."""
    connection.execute("DELETE FROM meta WHERE name = ?", (name,))


def checksum(name: str, value: int | float | str | None) -> int:
    """Return the checksum of a row: of the name, a zero byte and the value as text."""
    return crc32(f"{name}\0{value}".encode("utf-8", "surrogateescape"), SEED) - 2**31


def renew(connection: Connection) -> None:
    """Add checksums to the values of a store older than version 3."""
    rows = connection.execute("SELECT name, value FROM meta WHERE crc IS NULL").fetchall()
    connection.executemany(
        "UPDATE meta SET crc = ? WHERE name = ?", [(checksum(name, value), name) for name, value in rows]
    )
