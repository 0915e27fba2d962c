"""Sizes of a store."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memory.persistence.log.journal import Counters
from memory.persistence.rows import SLOTS


@dataclass(frozen=True)
class Stats:
    """Sizes of a store.

    Attributes:
        memories: how many there are.
        by_map, by_kind: the same for each.
        vectors: by encoder.
        generation: of the last operation.
        next_id: of the next memory.
        file_bytes, log_bytes: of the database and its write-ahead log.
        free_bytes: within the file, to be used again.
    """

    memories: int
    by_map: dict[str, int]
    by_kind: dict[str, int]
    vectors: dict[str, int]
    generation: int
    next_id: int
    file_bytes: int
    log_bytes: int
    free_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def read_stats(connection: sqlite3.Connection, file: Path) -> Stats:
    """What a read transaction sees of the database in a file."""
    counters = Counters()
    counters.read(connection)
    by_map = dict(connection.execute("SELECT map_id, count(*) FROM memory GROUP BY map_id").fetchall())
    by_kind = dict(connection.execute("SELECT kind, count(*) FROM memory GROUP BY kind").fetchall())
    counts = dict(connection.execute(f"SELECT key % {SLOTS}, count(*) FROM vector GROUP BY 1").fetchall())
    page = connection.execute("PRAGMA page_size").fetchone()[0]
    free = connection.execute("PRAGMA freelist_count").fetchone()[0]
    log = Path(f"{file}-wal")
    return Stats(
        memories=sum(by_kind.values()),
        by_map=by_map,
        by_kind=by_kind,
        vectors={name: counts.get(slot.number, 0) for name, slot in counters.slots.items()},
        generation=counters.generation,
        next_id=counters.next_id,
        file_bytes=file.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        free_bytes=page * free,
    )
