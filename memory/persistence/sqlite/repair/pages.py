"""Rows read directly from the pages of a database file.

SQLite finds a row by way of other pages, and fails if one of them is damaged. Here every page is read by
itself, and the checksum shows whether a found row is intact. The format is that of
https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Value = int | float | str | bytes | None

TABLE_LEAF, INDEX_LEAF = 0x0D, 0x0A
#: Most columns of a row; a record with more is not a row.
MOST_COLUMNS = 64
#: Text that is not UTF-8 keeps its bytes.
ERRORS = "surrogateescape"


class Record(NamedTuple):
    """A row of some table.

    Attributes:
        key: its number; ``None`` in a table without row numbers.
        values: values of its columns.
    """

    key: int | None
    values: tuple[Value, ...]


class Pages:
    """Pages of a database file.

    Args:
        newer: pages of a write-ahead log by number, from 1.

    Raises:
        OSError: the file is unreadable.
    """

    def __init__(self, file: Path, newer: Mapping[int, bytes] | None = None) -> None:
        self._newer = newer or {}
        self._stream = file.open("rb")
        size = file.stat().st_size
        self._data: mmap.mmap | bytes = b""
        if size:
            self._data = mmap.mmap(self._stream.fileno(), 0, access=mmap.ACCESS_READ)
        head = self.head
        page_size = int.from_bytes(head[16:18], "big")
        # An impossible page size means a damaged first page; this release creates stores with 4096 bytes.
        self.size = page_size if page_size in (512, 1024, 2048, 4096, 8192, 16384, 32768) else 4096
        reserved = head[20] if len(head) > 20 and head[20] < self.size - 480 else 0
        self.usable = self.size - reserved
        self.count = max([(size + self.size - 1) // self.size, *self._newer])

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()
        self._stream.close()

    @property
    def head(self) -> bytes:
        """First 100 bytes of the file."""
        return self._newer[1][:100] if 1 in self._newer else bytes(self._data[:100])

    def page(self, number: int) -> bytes:
        """Return a page by its number, from 1; zeros for a missing page."""
        if number in self._newer:
            return self._newer[number]
        start = (number - 1) * self.size
        return bytes(self._data[start : start + self.size]).ljust(self.size, b"\0") if number > 0 else b""

    def records(self) -> Iterator[Record]:
        """Yield everything that looks like a row, in page order."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            start = 100 if number == 1 else 0
            kind = page[start]
            if kind not in (TABLE_LEAF, INDEX_LEAF):
                continue
            cells = int.from_bytes(page[start + 3 : start + 5], "big")
            for at in range(start + 8, min(start + 8 + 2 * cells, self.usable - 1), 2):
                record = self._record(page, int.from_bytes(page[at : at + 2], "big"), kind)
                if record is not None:
                    yield record

    def _record(self, page: bytes, at: int, kind: int) -> Record | None:
        """Return the cell at an offset, or ``None`` if it cannot be one."""
        try:
            size, at = varint(page, at)
            key: int | None = None
            if kind == TABLE_LEAF:
                key, at = varint(page, at)
                key -= (key >> 63) << 64
            payload = self._payload(page, at, size, kind)
            return None if payload is None else Record(key, values_of(payload))
        except (IndexError, ValueError, struct.error):
            return None

    def _payload(self, page: bytes, at: int, size: int, kind: int) -> bytes | None:
        """Return the bytes of a cell, including its overflow pages."""
        usable = self.usable
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return page[at : at + size] if at + size <= usable else None
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
        if at + local + 4 > usable or size > self.count * usable:
            return None
        parts, left = [page[at : at + local]], size - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        while left > 0:
            if not 0 < following <= self.count:
                return None
            further = self.page(following)
            parts.append(further[4 : min(4 + left, usable)])
            left -= usable - 4
            following = int.from_bytes(further[:4], "big")
        return b"".join(parts)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and the offset after it."""
    value = 0
    for end in range(at, at + 8):
        byte = data[end]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, end + 1
    return value << 8 | data[at + 8], at + 9


def values_of(payload: bytes) -> tuple[Value, ...]:
    """Return the column values of a row, or raise ``ValueError``."""
    end, at = varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = varint(payload, at)
        kinds.append(kind)
    if at != end or len(kinds) > MOST_COLUMNS:
        raise ValueError("no header of a row")
    found: list[Value] = []
    for kind in kinds:
        size = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2
        part = payload[at : at + size]
        if kind in (10, 11) or len(part) < size:
            raise ValueError("a column beyond the end")
        at += size
        if kind == 0:
            found.append(None)
        elif kind == 7:
            found.append(struct.unpack(">d", part)[0])
        elif kind < 10:
            found.append(kind - 8 if kind > 7 else int.from_bytes(part, "big", signed=True))
        else:
            found.append(part.decode("utf-8", ERRORS) if kind % 2 else part)
    return tuple(found)
