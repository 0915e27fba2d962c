"""Archives of a store on a server: old months are moved into files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory.errors import StoreLockedError
from memory.exchange.exporting import export_memories
from memory.persistence.postgres.parts import month_of

if TYPE_CHECKING:
    from memory.persistence.postgres.upkeep import Upkeep


class MonthArchive(NamedTuple):
    """An archived month.

    Attributes:
        month: when its memories were added, such as ``2026-11`` (UTC).
        file: archive file, which ``recall import`` reads.
        memories: number of memories.
    """

    month: str
    file: Path
    memories: int


def archive(
    database: Upkeep,
    folder: str | os.PathLike[str],
    *,
    before_ns: int,
    suffix: str = ".jsonl",
    progress: Callable[[int, int], None] | None = None,
) -> list[MonthArchive]:
    """Write the months that ended before a time into files, and drop each once its file is on disk.

    A month begins with the first :meth:`memory.store.MemoryStore.consolidate` in it. The log records the file
    of each month. Dropping cannot be undone, but the file can be imported.

    Args:
        database: on a server, opened for writing by the owner of its tables.
        folder: target folder; created if missing.
        before_ns: time before which the next month must have begun.
        suffix: ``".jsonl"`` or ``".parquet"``.
        progress: called with the number of exported memories and their total, for each month.

    Raises:
        StoreLockedError: memories of a month changed meanwhile; earlier months are archived.
        FileExistsError: the file of a month exists.
        ValueError: unknown suffix.
    """
    if suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"suffix must be .jsonl or .parquet, got {suffix!r}")
    target = Path(folder)
    done = []
    for part in database.parts():
        if part.ended_ns is None or part.ended_ns >= before_ns:
            continue
        target.mkdir(parents=True, exist_ok=True)
        # Clocks may differ, so two parts can be of one month. The first id keeps their names distinct.
        file = target / f"{month_of(part.begun_ns)}-from-{part.first_id}{suffix}"
        if file.exists():
            raise FileExistsError(f"{file} exists. Choose another folder")
        generation = database.generation
        ids = database.part_ids(part)
        export_memories(
            database,
            file,
            format="parquet" if suffix == ".parquet" else "jsonl",
            ids=np.asarray(ids, np.int64),
            progress=progress,
        )
        try:
            count = database.drop_part(part, generation, file.name)
        except StoreLockedError:
            # Nothing was dropped, so remove the file. After other errors the month may be gone: keep it.
            file.unlink()
            raise
        done.append(MonthArchive(part.month, file, count))
    return done
