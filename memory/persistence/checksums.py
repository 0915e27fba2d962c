"""Checksums of rows, to detect damage by a disk.

Every source table has a column ``crc``: the CRC-32 (zlib) of a row's table, key and columns, less 2**31, so
that it fits in four bytes. Numbers come first, eight little-endian bytes each, then texts (UTF-8) and blobs
separated by a zero byte. See ``docs/memory-format.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any
from zlib import crc32

#: Values for a NULL number, and for a NULL text or blob.
NO_NUMBER, NO_TEXT = -(2**63), b"\xff"
HALF = 2**31
#: Columns with blobs instead of texts.
BLOBS = ("poses", "covariances", "visits", "half", "ids")


class Layout:
    """Columns that a table's checksum covers.

    Args:
        table: name of the table.
        numbers: number columns, each with ``q`` (integer) or ``d`` (real).
        texts: columns with texts or blobs.
        later: further text columns that are covered only if they are not NULL, so that rows from before they
            existed keep their checksum.

    Attributes:
        struct: packs the key and the numbers.
        split: index of the first text in a row selected as key, numbers, texts and checksum.
    """

    def __init__(
        self,
        seed: int,
        table: str,
        key: str,
        numbers: dict[str, str],
        texts: Sequence[str],
        later: Sequence[str] = (),
    ) -> None:
        self.seed = seed
        self.table = table
        self.key = key
        self.numbers = tuple(numbers)
        self.texts = tuple(texts)
        self.later = tuple(later)
        self.struct = struct.Struct("<q" + "".join(numbers.values()))
        self.pack = self.struct.pack
        self.split = 1 + len(numbers)

    def sum(self, numbers: Sequence[Any], data: bytes) -> int:
        """Return the checksum of a row's numbers, key first, and its joined texts.

        Raises:
            struct.error: a number does not fit its column.
        """
        return crc32(data, crc32(self.pack(*numbers), self.seed)) - HALF

    def sum_of(self, row: Sequence[Any]) -> int | None:
        """Return the checksum of a selected row, or ``None`` if it cannot be a row of the table."""
        try:
            texts = row[self.split : -1]
            if self.later:
                texts = [text for text in texts if text is not None]
            return self.sum(row[: self.split], b"\0".join(texts))
        except (struct.error, TypeError):
            return None

    def fits(self, row: Sequence[Any]) -> bool:
        """Return True if a selected row matches its checksum."""
        return row[-1] is not None and self.sum_of(row) == row[-1]

    def sums(self, keys: Iterable[int], numbers: Sequence[Iterable[Any]], data: Iterable[bytes]) -> list[int]:
        """Return the checksums of many rows by their columns."""
        seed, part = self.seed, crc32
        return [
            part(text, part(packed, seed)) - HALF
            for packed, text in zip(map(self.pack, keys, *numbers), data, strict=False)
        ]


def kind_of(name: str) -> str:
    """Return SQLite's storage class of a text or blob column."""
    return "blob" if name in BLOBS else "text"


MEMORY = Layout(
    1, "memory", "id",
    {
        "time_ns": "q", "confidence": "d", "reward": "d", "marked": "q", "count": "q", "first_seen_ns": "q",
        "last_seen_ns": "q", "importance": "d", "access_count": "q", "accessed_ns": "q", "vectors": "q",
        "visits": "q",
    },
    ("map_id", "kind", "label", "state"), ("velocity",),
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
#: All source tables but ``meta``, whose keys are not numbers.
LAYOUTS = (MEMORY, BODY, POSE, SPREAD, VISITED, VECTOR, SLOT, LOG, LOG_ROW, LOG_POSE)


def numbers_of(values: Iterable[int | float | None]) -> list[int | float]:
    """Replace None by the value that stands for NULL."""
    return [NO_NUMBER if value is None else value for value in values]


def text_of(*texts: str | bytes | None) -> bytes:
    """Join texts and blobs as the checksum covers them."""
    return b"\0".join(
        NO_TEXT if text is None else text.encode() if isinstance(text, str) else text for text in texts
    )


def memory_sum(id: int, scalars: Sequence[Any], access: Sequence[Any], parts: Sequence[Any]) -> int:
    """Return the checksum of a row of ``memory``.

    Args:
        parts: bits of the encoders with a vector, and whether it has visits.

    Raises:
        struct.error, TypeError: a value does not fit its column.
    """
    (
        time_ns, map_id, kind, label, confidence, reward, marked, count, first, last, state, importance,
        velocity,
    ) = scalars  # fmt: skip
    packed = MEMORY.pack(
        id, time_ns, confidence, reward, marked, count,
        NO_NUMBER if first is None else first,
        NO_NUMBER if last is None else last,
        NO_NUMBER if importance is None else importance,
        access[0],
        NO_NUMBER if access[1] is None else access[1],
        *parts,
    )  # fmt: skip
    texts = (map_id, kind, label, state) if velocity is None else (map_id, kind, label, state, velocity)
    return crc32("\0".join(texts).encode(), crc32(packed, MEMORY.seed)) - HALF


def body_sum(id: int, texts: Sequence[str]) -> int:
    """Return the checksum of a row of ``body``.

    Raises:
        TypeError: a value does not fit its column.
    """
    return BODY.sum((id,), "\0".join(texts).encode())


def memory_sums(ids: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """Return the checksums of ``memory`` rows by columns; missing access counts are those of new rows."""
    new = {"access_count": repeat(0), "accessed_ns": repeat(NO_NUMBER)}
    numbers: list[Iterable[Any]] = []
    for name in MEMORY.numbers:
        values: Iterable[Any] = columns.get(name) or new[name]
        nullable = name in ("first_seen_ns", "last_seen_ns", "importance", "accessed_ns")
        numbers.append(numbers_of(values) if nullable and name in columns else values)
    data = ["\0".join(row) for row in zip(*(columns[name] for name in MEMORY.texts), strict=True)]
    for values in (columns[name] for name in MEMORY.later):
        if any(values):
            data = [
                text if more is None else f"{text}\0{more}" for text, more in zip(data, values, strict=True)
            ]
    return MEMORY.sums(ids, numbers, map(str.encode, data))


def body_sums(ids: Sequence[int], columns: Mapping[str, Sequence[str]]) -> list[int]:
    """Return the checksums of ``body`` rows by columns."""
    texts = zip(*(columns[name] for name in BODY.texts), strict=True)
    return BODY.sums(ids, (), ["\0".join(row).encode() for row in texts])
