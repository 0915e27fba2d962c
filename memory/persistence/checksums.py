"""Checksums of rows: what was stored is told from what a disk made of it.

Every table of truth has a column ``crc``: CRC-32 (that of zlib) of a row's table, key and columns, less
2**31, which makes it a number of four bytes. Numbers come first, little-endian and eight bytes each, then the
texts (UTF-8) and blobs with a byte 0 between them. See ``docs/memory-format.md``.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any
from zlib import crc32

from memory.persistence import meta
from memory.persistence.sqlite.connection import transaction
from memory.persistence.sqlite.repair import bits as single_bits

#: What a number that is NULL counts as, and a text or blob.
NO_NUMBER, NO_TEXT = -(2**63), b"\xff"
HALF = 2**31
#: Rows that get their checksums in one transaction after a migration.
AT_ONCE = 20_000
#: Name in ``meta`` of the note that every row has its checksum.
NOTE = "summed"


#: Columns with blobs rather than texts.
BLOBS = ("poses", "covariances", "visits", "half", "ids")


class Layout:
    """What a checksum of a table covers.

    Args:
        seed: of its checksums: differs by table.
        table: its name.
        key: the column of the row's key.
        numbers: further columns with numbers, each with ``q`` (integer) or ``d`` (real).
        texts: columns with texts or blobs.
    """

    def __init__(
        self, seed: int, table: str, key: str, numbers: dict[str, str], texts: Sequence[str]
    ) -> None:
        self.seed = seed
        self.table = table
        self.key = key
        self.numbers = tuple(numbers)
        self.kinds = tuple(numbers.values())
        self.texts = tuple(texts)
        self._struct = struct.Struct("<q" + "".join(numbers.values()))
        self.pack = self._struct.pack
        parts = [f"coalesce(t.{name}, {NO_NUMBER})" for name in numbers]
        parts += [
            f"CASE typeof(t.{name}) WHEN '{kind_of(name)}' THEN CAST(t.{name} AS BLOB) WHEN 'null' THEN x'ff'"
            " ELSE x'fe' END"
            for name in texts
        ]
        #: The key, what is covered, and the checksum; to be followed by conditions on ``t``.
        self.select = f"SELECT t.{key}, {', '.join(parts)}, t.crc FROM {table} AS t"
        self.assign = f"UPDATE {table} SET crc = ? WHERE {key} = ?"
        self._split = 1 + len(numbers)

    def sum(self, numbers: Sequence[Any], data: bytes) -> int:
        """Checksum of a row: its numbers, the key first, and its joined texts.

        Raises:
            struct.error: a number is none of its column.
        """
        return crc32(data, crc32(self.pack(*numbers), self.seed)) - HALF

    def sum_of(self, row: Sequence[Any]) -> int | None:
        """The same of what ``select`` gives; ``None`` where it cannot be a row of the table."""
        try:
            return self.sum(row[: self._split], b"\0".join(row[self._split : -1]))
        except (struct.error, TypeError):
            return None

    def fits(self, row: Sequence[Any]) -> bool:
        """Whether what ``select`` gives has its checksum."""
        return row[-1] is not None and self.sum_of(row) == row[-1]

    def put_right(self, row: Sequence[Any]) -> list[Any] | None:
        """What ``select`` gives with the one bit turned back that it differs in from what was stored."""
        texts = row[self._split : -1]
        try:
            packed = self.pack(*row[: self._split])
            found = single_bits.put_right(packed + b"\0".join(texts), self.seed, row[-1] + HALF)
        except (struct.error, TypeError):
            return None
        if found is None:
            return None
        right: list[Any] = list(self._struct.unpack_from(found))
        at = len(packed)
        for text in texts:
            right.append(found[at : at + len(text)])
            at += len(text) + 1
        # Not that of the row, which may be where the bit is; a byte between texts that is wrong shows here.
        right.append(self.sum(right[: self._split], b"\0".join(right[self._split :])))
        return right if right[-1] == row[-1] or found == packed + b"\0".join(texts) else None

    def sums(self, keys: Iterable[int], numbers: Sequence[Iterable[Any]], data: Iterable[bytes]) -> list[int]:
        """Checksums of many rows by their columns."""
        seed, part = self.seed, crc32
        return [
            part(text, part(packed, seed)) - HALF
            for packed, text in zip(map(self.pack, keys, *numbers), data, strict=False)
        ]


def kind_of(name: str) -> str:
    """How SQLite stores what is in a column of texts or blobs."""
    return "blob" if name in BLOBS else "text"


MEMORY = Layout(
    1, "memory", "id",
    {
        "time_ns": "q", "confidence": "d", "reward": "d", "marked": "q", "count": "q", "first_seen_ns": "q",
        "last_seen_ns": "q", "importance": "d", "access_count": "q", "accessed_ns": "q", "vectors": "q",
        "visits": "q",
    },
    ("map_id", "kind", "label", "state"),
)  # fmt: skip
BODY = Layout(2, "body", "id", {}, ("caption", "payload", "evidence", "provenance"))
POSE = Layout(3, "pose", "chunk", {"spread": "q"}, ("poses",))
SPREAD = Layout(4, "spread", "chunk", {}, ("covariances",))
VISITED = Layout(5, "visited", "id", {"first_ns": "q", "last_ns": "q"}, ("visits",))
VECTOR = Layout(6, "vector", "key", {}, ("half",))
SLOT = Layout(7, "slot", "slot", {"dim": "q"}, ("name",))
LOG = Layout(
    8, "log", "generation",
    {"time_ns": "q", "first_id": "q", "next_id": "q", "undoes": "q", "token": "q"},
    ("operation", "detail"),
)  # fmt: skip
LOG_ROW = Layout(9, "log_row", "row", {"generation": "q", "id": "q"}, ("what", "before"))
LOG_POSE = Layout(
    10, "log_pose", "row", {"generation": "q", "first_id": "q", "last_id": "q"},
    ("ids", "poses", "covariances"),
)  # fmt: skip
#: All tables of truth but ``meta``, whose keys are no numbers.
LAYOUTS = (MEMORY, BODY, POSE, SPREAD, VISITED, VECTOR, SLOT, LOG, LOG_ROW, LOG_POSE)


def told(values: Iterable[int | float | None]) -> list[int | float]:
    """Numbers with what counts for NULL."""
    return [NO_NUMBER if value is None else value for value in values]


def text_of(*texts: str | bytes | None) -> bytes:
    """Texts and blobs as they are covered."""
    return b"\0".join(
        NO_TEXT if text is None else text.encode() if isinstance(text, str) else text for text in texts
    )


def memory_sum(id: int, scalars: Sequence[Any], access: Sequence[Any], parts: Sequence[Any]) -> int:
    """Checksum of a row of ``memory``.

    Args:
        id: of the memory.
        scalars, access: as of an :class:`memory.persistence.rows.Image`.
        parts: encoders that it has vectors of, and whether it has visits.

    Raises:
        struct.error, TypeError: a value is none of its column.
    """
    time_ns, map_id, kind, label, confidence, reward, marked, count, first, last, state, importance = scalars
    packed = MEMORY.pack(
        id, time_ns, confidence, reward, marked, count,
        NO_NUMBER if first is None else first,
        NO_NUMBER if last is None else last,
        NO_NUMBER if importance is None else importance,
        access[0],
        NO_NUMBER if access[1] is None else access[1],
        *parts,
    )  # fmt: skip
    return crc32("\0".join((map_id, kind, label, state)).encode(), crc32(packed, MEMORY.seed)) - HALF


def body_sum(id: int, texts: Sequence[str]) -> int:
    """Checksum of a row of ``body``.

    Raises:
        TypeError: a value is none of its column.
    """
    return BODY.sum((id,), "\0".join(texts).encode())


def memory_sums(ids: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """Checksums of rows of ``memory`` by their columns; access counts are those of new rows where missing."""
    new = {"access_count": repeat(0), "accessed_ns": repeat(NO_NUMBER)}
    numbers: list[Iterable[Any]] = []
    for name in MEMORY.numbers:
        values: Iterable[Any] = columns.get(name) or new[name]
        nullable = name in ("first_seen_ns", "last_seen_ns", "importance", "accessed_ns")
        numbers.append(told(values) if nullable and name in columns else values)
    texts = zip(*(columns[name] for name in MEMORY.texts), strict=True)
    return MEMORY.sums(ids, numbers, ["\0".join(row).encode() for row in texts])


def body_sums(ids: Sequence[int], columns: Mapping[str, Sequence[str]]) -> list[int]:
    """Checksums of rows of ``body`` by their columns."""
    texts = zip(*(columns[name] for name in BODY.texts), strict=True)
    return BODY.sums(ids, (), ["\0".join(row).encode() for row in texts])


def renew(connection: sqlite3.Connection, layout: Layout, keys: Sequence[int]) -> None:
    """Give rows that were changed within this transaction their checksums."""
    if len(keys) <= 2:
        rows = [
            row
            for key in keys
            for row in connection.execute(f"{layout.select} WHERE t.{layout.key} = ?", (key,))
        ]
    else:
        source = f"{layout.select} WHERE t.{layout.key} IN (SELECT value FROM json_each(?))"
        rows = connection.execute(source, (json.dumps(list(keys)),)).fetchall()
    connection.executemany(layout.assign, [(layout.sum_of(row), row[0]) for row in rows])


def note_parts(connection: sqlite3.Connection, layout: Layout, keys: Sequence[int]) -> None:
    """Note in rows which further rows belong to them."""
    some = "IN (SELECT value FROM json_each(?))"
    if layout is MEMORY:
        connection.execute(
            "UPDATE memory SET visits = EXISTS (SELECT 1 FROM visited WHERE visited.id = memory.id),"
            " vectors = (SELECT coalesce(sum(1 << (key % 64)), 0) FROM vector"
            f" WHERE key BETWEEN 64 * memory.id AND 64 * memory.id + 63) WHERE id {some}",
            (json.dumps(list(keys)),),
        )
    elif layout is POSE:
        has = "EXISTS (SELECT 1 FROM spread WHERE spread.chunk = pose.chunk)"
        connection.execute(f"UPDATE pose SET spread = {has} WHERE chunk {some}", (json.dumps(list(keys)),))


def complete(connection: sqlite3.Connection) -> None:
    """Give the rows of a store of before version 3 their checksums; nothing where all have them.

    In many small transactions: it may be interrupted, and goes on at the next opening.
    """
    if meta.read(connection, NOTE) is not None:
        return
    for layout in LAYOUTS:
        for keys in _keys_without(connection, layout):
            with transaction(connection):
                note_parts(connection, layout, keys)
                renew(connection, layout, keys)
    with transaction(connection):
        meta.renew(connection)
        meta.write(connection, NOTE, 1)


def complete_now(connection: sqlite3.Connection) -> str | None:
    """The same if there is room for it; otherwise say why not. A store can be opened all the same."""
    try:
        complete(connection)
    except sqlite3.OperationalError as error:
        return f"{BARE}: {error}"
    return None


#: Said while rows of an older store have no checksums.
BARE = "rows of before version 3 have no checksums yet, which are written when the store is opened with room"


def _keys_without(connection: sqlite3.Connection, layout: Layout) -> Iterator[list[int]]:
    """Keys of rows without a checksum, a transaction's worth at a time."""
    after = -(2**63)
    sql = f"SELECT {layout.key}, crc IS NULL FROM {layout.table} WHERE {layout.key} > ? ORDER BY 1 LIMIT ?"
    while rows := connection.execute(sql, (after, AT_ONCE)).fetchall():
        after = rows[-1][0]
        keys = [key for key, bare in rows if bare]
        if keys:
            yield keys
