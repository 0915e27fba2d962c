"""Areas, as the log records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.areas import Area, key_of
from memory.persistence.log.journal import Counters, read_entries, undone_after, write_entry
from memory.persistence.log.operations import OperationResult
from memory.persistence.log.settings import LoggedSetting
from memory.persistence.sql import Connection

#: Operation name in the log.
OPERATION = "area"


def read_areas(connection: Connection) -> tuple[Area, ...]:
    """Return the areas by map and name."""
    entries = read_entries(connection, operation=OPERATION)
    undone = undone_after(connection, 0) if entries else set()
    found: dict[tuple[str, str], Area] = {}
    for entry in entries:
        if entry.generation in undone:
            continue
        key = key_of(entry.detail["name"], entry.detail["map"])
        if entry.detail.get("removed"):
            found.pop(key, None)
        else:
            found[key] = Area.of_json(entry.detail)
    return tuple(sorted(found.values(), key=lambda area: (area.map_id, area.name)))


#: No areas, as of an empty log.
NO_AREAS: LoggedSetting[tuple[Area, ...]] = LoggedSetting(OPERATION, read_areas, ())


def write_area(connection: Connection, counters: Counters, detail: Mapping[str, Any]) -> OperationResult:
    """Set or remove an area, as an operation that can be undone."""
    return OperationResult(write_entry(connection, counters, OPERATION, detail), [])
