"""Whether every row of the tables of truth is there and is what was stored."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from memory.persistence import meta, poses
from memory.persistence.checksums import (
    BARE,
    BODY,
    LAYOUTS,
    LOG,
    LOG_ROW,
    MEMORY,
    NO_TEXT,
    NOTE,
    POSE,
    SPREAD,
    VECTOR,
    Layout,
)
from memory.persistence.log.journal import read_changes
from memory.persistence.rows import SLOTS

#: Problems that are listed of each sort.
SHOWN = 20


def check_rows(connection: sqlite3.Connection, writer: bool) -> list[str]:
    """Every row of every table of truth is there and is what was stored, and its JSON can be read."""
    found = []
    summed = meta.read(connection, NOTE) is not None
    if not summed:
        found.append(f"file: {BARE}")
    for layout in LAYOUTS:
        wrong, bare, after = 0, 0, None
        try:
            for row in connection.execute(f"{layout.select} ORDER BY 1"):
                after = row[0]
                bare += row[-1] is None
                if row[-1] is None and not summed:
                    continue
                if not layout.fits(row) or not _is_json(layout, row):
                    wrong += 1
                    if wrong <= SHOWN:
                        found.append(f"{layout.table}: {name_of(layout, after)} is not what was stored")
        except sqlite3.DatabaseError as error:
            behind = "from the first row on" if after is None else f"after {name_of(layout, after)}"
            found.append(f"{layout.table}: cannot be read {behind} ({error})")
            found += [
                f"{layout.table}: {name_of(layout, key)} cannot be read"
                for key in _hidden(connection, layout)
            ]
        if wrong > SHOWN:
            found.append(f"{layout.table}: {wrong} rows are not what was stored, {bare} without a checksum")
    for name, value, told in connection.execute("SELECT name, value, crc FROM meta"):
        if meta.checksum(name, value) != told and (told is not None or summed):
            found.append(f"meta: {name} is not what was stored")
    return found


def _is_json(layout: Layout, row: Sequence[Any]) -> bool:
    """Whether the columns of a row that hold JSON do."""
    if layout not in JSON_COLUMNS:
        return True
    text = row[JSON_COLUMNS[layout]]
    if text in (b"{}", NO_TEXT):
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


#: Where the select of a layout has JSON.
JSON_COLUMNS = {BODY: 2, LOG: 7, LOG_ROW: 4}


def name_of(layout: Layout, key: int) -> str:
    """A row as the user knows it."""
    if layout is VECTOR:
        return f"memory {key // SLOTS} (key {key})"
    if layout in (POSE, SPREAD):
        return f"row {key} (memories {poses.CHUNK * key} to {poses.CHUNK * (key + 1) - 1})"
    return f"memory {key}" if layout.key == "id" else f"row {key}"


def _hidden(connection: sqlite3.Connection, layout: Layout) -> list[int]:
    """Some of the rows that cannot be read one by one, by the ids that the log has."""
    if layout not in (MEMORY, BODY):
        return []
    found: list[int] = []
    for id in read_changes(connection, 0).added.tolist():
        try:
            connection.execute(f"{layout.select} WHERE t.{layout.key} = ?", (id,)).fetchone()
        except sqlite3.DatabaseError:
            found.append(id)
        if len(found) == SHOWN:
            break
    return found
