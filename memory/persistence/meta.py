"""Named values of a store in the table ``meta``, each with its checksum."""

from __future__ import annotations

from zlib import crc32

from memory.persistence.sql import Connection

#: Seed of the checksums of ``meta``.
SEED = 11

#: The random name of the store.
STORE = "store"
#: The settings.
SETTINGS = "settings"
#: The last id that the index over places has.
PLACED = "placed"
#: The last operation that cannot be undone any more.
TRIMMED = "trimmed"
#: Set while an erasure is not finished.
ERASURE = "scrub"
#: A sentence about lost operations, until a repair.
LOSS = "lost"
#: Set once every row has its checksum.
SUMMED = "summed"


def read(connection: Connection, name: str) -> int | str | None:
    """Return a value; ``None`` where there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def read_number(connection: Connection, name: str) -> int:
    """Return a number; 0 where there is none."""
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
    """Return the checksum of a row: of the name, a byte 0 and the value as text."""
    return crc32(f"{name}\0{value}".encode("utf-8", "surrogateescape"), SEED) - 2**31


def renew(connection: Connection) -> None:
    """Give the values of a store of before version 3 their checksums."""
    rows = connection.execute("SELECT name, value FROM meta WHERE crc IS NULL").fetchall()
    connection.executemany(
        "UPDATE meta SET crc = ? WHERE name = ?", [(checksum(name, value), name) for name, value in rows]
    )
