"""The database of a store in a file of SQLite."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from memory.persistence import checksums, database, meta
from memory.persistence.cache import KeptMemories
from memory.persistence.log.operations import Trimmed
from memory.persistence.queries import EVERYTHING
from memory.persistence.reports import Stats, read_stats
from memory.persistence.sqlite import upkeep as erase
from memory.persistence.sqlite.database import Handle
from memory.persistence.sqlite.repair import checks as integrity
from memory.persistence.sqlite.repair import losses as lost
from memory.persistence.sqlite.repair import renewal as repairing
from memory.persistence.sqlite.upkeep import Progress, copy_store
from memory.persistence.sqlite.writer import Writer

__all__ = ["EVERYTHING", "Database", "Stats", "Trimmed"]

#: An operation on so many memories cuts the write-ahead log afterwards.
LARGE = 10_000


class Database(Handle, database.Database):
    """One SQLite file in the folder of a store; open it with :meth:`open`.

    One process writes, any number read at the same time. A handle may be used from many threads: writes queue
    for the one connection that writes and share commits, reads take a connection each from a pool and see
    one moment. A handle does not survive ``os.fork``.

    Attributes:
        folder: of the store.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
    """

    _kept: KeptMemories

    def stats(self) -> Stats:
        """Sizes of everything."""
        with self._read() as connection:
            return read_stats(connection, self._file)

    def look(self) -> integrity.CheckReport:
        """What a reader can say of damage while others write."""
        with self._read() as connection:
            return integrity.look(connection, self.folder)

    def tidy(self) -> bool:
        """Cut the write-ahead log to nothing unless a reader needs it, without waiting; whether one did."""
        with self._alone() as writer:
            return erase.tidy(writer.connection)

    def _tidy_after(self, rows: int) -> None:
        if rows >= LARGE:
            self.tidy()

    def scrub(self) -> None:
        """Write the database anew so that nothing of removed memories stays in the files.

        Raises:
            EraseError: a reader, here or in another process, was in the way, or there is no room for a second
            copy; call it again. The store does so too when it is opened for writing.
        """
        with self._alone() as writer:
            self._kept.clear()
            erase.scrub(writer.connection)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """See :func:`memory.persistence.sqlite.upkeep.copy_store`."""
        with self._read() as connection:
            return copy_store(connection, Path(folder).absolute(), progress, beside)

    def check(self, repair: bool = False) -> integrity.CheckReport:
        """See :meth:`memory.store.MemoryStore.check`."""
        if self.readonly and not repair:
            return self.look()
        with self._alone() as writer:
            problems = integrity.find_problems(writer.connection, self.folder, writer=True)
            if not (repair and problems):
                return integrity.report(writer.connection, integrity.flat(problems))
            return self._repaired(writer, problems)

    def _repaired(self, writer: Writer, problems: dict[str, list[str]]) -> integrity.CheckReport:
        """Repair, and look again."""
        self._kept.clear()
        connection = writer.connection
        checksums.complete(connection)  # Rows without one would count as damaged.
        done: list[str] = []
        gone: list[str] = []
        said = meta.read(connection, lost.NOTE) if "rows" not in problems else None
        if said is not None:
            writer.run_alone(lambda connection: meta.delete(connection, lost.NOTE))
            gone.append(str(said))
            problems = integrity.find_problems(connection, self.folder, writer=True)
        if problems and set(problems) <= integrity.DERIVED:
            done += writer.run_alone(lambda connection: integrity.repair(connection, self._counters))
            if "erasure" in problems:
                erase.scrub(connection)
            if "settings" in problems:
                done.append(repairing.mend_settings(self.folder, self.settings))
            problems = integrity.find_problems(connection, self.folder, writer=True)
        if problems:
            salvaged, told = repairing.renew(connection, self._file, writer.came_to())
            writer.renewed()
            done += told
            gone += salvaged.lost
            problems = integrity.find_problems(connection, self.folder, writer=True)
        return integrity.report(connection, integrity.flat(problems), done, gone)

    @classmethod
    def repair(cls, folder: str | os.PathLike[str]) -> integrity.CheckReport:
        """Repair a store that cannot be opened, and look at what was made of it.

        Nobody may have it open. The damaged files are kept beside the new ones.

        Raises:
            NotAStoreError: there is no store.
            CorruptStoreError: not one row of a store is left.
            StoreLockedError: another process writes.
        """
        path = Path(folder).absolute()
        found = repairing.repair_files(path)
        with cls.open(path, create=False) as database:
            now = database.check()
        return integrity.CheckReport(now.memories, now.problems, found.repaired, found.lost)
