"""Assignment of rows to tables by their checksums alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from memory.persistence import checksums, meta
from memory.persistence.checksums import LAYOUTS, Layout, kind_of
from memory.persistence.sqlite.repair.bits import repaired_row
from memory.persistence.sqlite.repair.pages import ERRORS, Pages, Record, Value

#: Rows inserted at once.
AT_ONCE = 1024


class RowSorter:
    """Finds the table of a record: its checksum must match, possibly after correcting one bit.

    Attributes:
        repaired: number of corrected rows.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._known: dict[int, list[tuple[Layout, list[str], list[int], list[int], list[int]]]] = {}
        self.repaired = 0
        for layout in LAYOUTS:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({layout.table})")]
            numbers = [names.index(name) for name in (layout.key, *layout.numbers)]
            texts = [names.index(name) for name in layout.texts]
            later = [names.index(name) for name in layout.later]
            # Rows from before a column was added end without it.
            for missing in range(len(later) + 1):
                known = self._known.setdefault(len(names) - missing, [])
                known.append((layout, names, numbers, texts, later))

    def table_of(self, record: Record) -> tuple[Layout, tuple[Value, ...]] | None:
        """Return the table and columns of a row, or ``None`` if it is damaged or of no known table."""
        known = self._known.get(len(record.values), ())
        for layout, names, numbers, earlier, later in known:
            columns = [record.key, *record.values[1:]]
            columns += [None] * (len(names) - len(columns))
            texts = [*earlier, *(at for at in later if columns[at] is not None)]
            for at in texts:
                columns[at] = _to_storage_class(names[at], columns[at])
            values = tuple(columns)
            covered = [checksums.NO_NUMBER if values[at] is None else values[at] for at in numbers]
            data = [_bytes_of(values[at]) for at in texts]
            row = (*covered, *data, values[names.index("crc")])
            if layout.fits(row):
                return layout, values
            right = repaired_row(layout, row)
            # The bit must not be in the key, where another row might belong.
            if right is not None and right[0] == record.key:
                for at, was, value in zip((*numbers, *texts), row[:-1], right[:-1], strict=True):
                    if was != value:
                        absent = value in (checksums.NO_NUMBER, checksums.NO_TEXT)
                        columns[at] = None if absent else _to_storage_class(names[at], value)
                columns[names.index("crc")] = right[-1]
                self.repaired += 1
                return layout, tuple(columns)
        return None


def _to_storage_class(name: str, value: Value) -> Value:
    """Convert between text and blob if a flipped bit confused them."""
    if isinstance(value, bytes) and kind_of(name) == "text":
        return value.decode("utf-8", ERRORS)
    return value.encode("utf-8", ERRORS) if isinstance(value, str) and kind_of(name) == "blob" else value


def _bytes_of(value: Value) -> bytes:
    """Return a text or blob as the checksum covers it."""
    if value is None:
        return checksums.NO_TEXT
    return value if isinstance(value, bytes) else str(value).encode("utf-8", ERRORS)


def take_rows(connection: sqlite3.Connection, pages: Pages) -> tuple[int, int]:
    """Insert every intact or corrected row; return their number, and that of the corrected ones."""
    count = 0
    sorter = RowSorter(connection)
    waiting: dict[str, list[tuple[Value, ...]]] = {}
    for record in pages.records():
        if record.key is None:
            _take_meta(connection, record.values)
            continue
        found = sorter.table_of(record)
        if found is not None:
            count += 1
            rows = waiting.setdefault(found[0].table, [])
            rows.append(found[1])
            if len(rows) >= AT_ONCE:
                _insert(connection, found[0].table, rows)
                rows.clear()
    for table, rows in waiting.items():
        _insert(connection, table, rows)
    return count, sorter.repaired


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Value, ...]]) -> None:
    if rows:
        places_of = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places_of})", rows)


def _take_meta(connection: sqlite3.Connection, values: Sequence[Value]) -> None:
    """Insert a named value if its checksum matches."""
    if len(values) == 3 and isinstance(values[0], str) and isinstance(values[1], int | str):
        try:
            right = meta.checksum(values[0], values[1]) == values[2]
        except UnicodeError:
            return
        if right:
            meta.write(connection, values[0], values[1])
