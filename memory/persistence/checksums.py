"""Checksums of rows: they tell what was stored from what a disk made of it.

Every table of truth has a column ``crc``: CRC-32 (that of zlib) of a row's table, key and columns, less
2**31, which makes it a number of four bytes. Numbers come first, little-endian and eight bytes each, then the
texts (UTF-8) and blobs with a byte 0 between them. See ``docs/memory-format.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any
from zlib import crc32

#: What a number that is NULL counts as, and a text or blob.
NO_NUMBER, NO_TEXT = -(2**63), b"\xff"
HALF = 2**31
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

    Attributes:
        struct: packs the key and the numbers.
        split: where the texts of a row begin that was selected as key, numbers, texts and checksum.
    """

    def __init__(
        self, seed: int, table: str, key: str, numbers: dict[str, str], texts: Sequence[str]
    ) -> None:
        self.seed = seed
        self.table = table
        self.key = key
        self.numbers = tuple(numbers)
        self.texts = tuple(texts)
        self.struct = struct.Struct("<q" + "".join(numbers.values()))
        self.pack = self.struct.pack
        self.split = 1 + len(numbers)

    def sum(self, numbers: Sequence[Any], data: bytes) -> int:
        """Checksum of a row: its numbers, the key first, and its joined texts.

        Raises:
            struct.error: a number is none of its column.
        """
        return crc32(data, crc32(self.pack(*numbers), self.seed)) - HALF

    def sum_of(self, row: Sequence[Any]) -> int | None:
        """The same of a selected row; ``None`` where it cannot be a row of the table."""
        try:
            return self.sum(row[: self.split], b"\0".join(row[self.split : -1]))
        except (struct.error, TypeError):
            return None

    def fits(self, row: Sequence[Any]) -> bool:
        """Whether a selected row has its checksum."""
        return row[-1] is not None and self.sum_of(row) == row[-1]

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


def numbers_of(values: Iterable[int | float | None]) -> list[int | float]:
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
        numbers.append(numbers_of(values) if nullable and name in columns else values)
    texts = zip(*(columns[name] for name in MEMORY.texts), strict=True)
    return MEMORY.sums(ids, numbers, ["\0".join(row).encode() for row in texts])


def body_sums(ids: Sequence[int], columns: Mapping[str, Sequence[str]]) -> list[int]:
    """Checksums of rows of ``body`` by their columns."""
    texts = zip(*(columns[name] for name in BODY.texts), strict=True)
    return BODY.sums(ids, (), ["\0".join(row).encode() for row in texts])
