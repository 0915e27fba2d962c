"""Old memories of a store on a server into files, and out of the store: whole months at a time."""

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


class Archived(NamedTuple):
    """A month that left the store.

    Attributes:
        month: in which its memories were added, as ``2026-11`` (UTC).
        file: with them, which :func:`memory.exchange.importing.import_source` reads.
        memories: how many.
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
) -> list[Archived]:
    """Write the months that ended before a time into files, and drop each once its file is on the disk.

    A month is what was added from the first :meth:`memory.store.MemoryStore.consolidate` within it to the
    first one within a later month. An operation of the log says which file has it; it cannot be undone, the
    file can be imported.

    Args:
        database: of a server, opened for writing by the owner of its tables.
        folder: for the files, made where there is none.
        before_ns: a month is written if the next began before.
        suffix: ``".jsonl"`` or ``".parquet"``.
        progress: called with how many are done and of how many, month by month.

    Raises:
        StoreLockedError: memories of a month were changed meanwhile; months before it are archived.
        FileExistsError: the file of a month is there already.
        ValueError: another suffix.
    """
    if suffix not in (".jsonl", ".parquet"):
        raise ValueError(f"suffix must be .jsonl or .parquet, got {suffix!r}")
    target = Path(folder)
    done = []
    for part in database.parts():
        if part.ended_ns is None or part.ended_ns >= before_ns:
            continue
        target.mkdir(parents=True, exist_ok=True)
        # Two parts may be of the same month, by clocks that differ: the first id tells them apart.
        file = target / f"{month_of(part.begun_ns)}-from-{part.first_id}{suffix}"
        if file.exists():
            raise FileExistsError(f"{file}: there is an archive already; name another folder")
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
            # Nothing was dropped. After any other error nobody knows: the file stays.
            file.unlink()
            raise
        done.append(Archived(part.month, file, count))
    return done
