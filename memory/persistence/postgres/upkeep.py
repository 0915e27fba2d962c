"""Tasks of the owner of a store on a server: parts, indexes, roles, erasure and backup."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from psycopg import conninfo
from psycopg_pool import ConnectionPool

from memory.errors import EraseError, StoreError, StoreLockedError
from memory.persistence import database, meta
from memory.persistence.postgres import access, dump, nearest, parts, schema
from memory.persistence.postgres.access import Access
from memory.persistence.postgres.connection import postgres_errors
from memory.persistence.postgres.parts import Part
from memory.persistence.reports import Progress
from memory.persistence.slots import read_slots
from memory.types import check_text
from sparse_core.common.console import LOG

#: Seconds that an erasure waits for readers.
ERASE_WAIT_S = 10


class Upkeep(database.Database):
    """Database whose tables are on a server.

    Attributes:
        address: address of the store, without the password.
    """

    address: str
    _address: str
    _pool: ConnectionPool

    def make_indexes(self, least: int) -> None:
        """Create vector indexes for encoders with more than ``least`` vectors in a part.

        Only the caller waits. Vectors that are too long for such an index are always compared.
        """
        self._check_writer()
        with self._read() as connection:
            slots = {slot.number: slot for slot in read_slots(connection).values()}
            wanted = [
                (part, slots[number])
                for part in parts.read_parts(connection)
                for number, count in connection.execute(
                    f"SELECT slot, count(*) FROM embedding WHERE {part.contains('id')} GROUP BY 1 ORDER BY 1"
                ).fetchall()
                if count > least and slots[number].dim <= nearest.MOST_DIM
            ]
        with postgres_errors(self.address), self._pool.connection() as raw:
            for part, slot in wanted:
                nearest.make_index(raw, slot, part.first_id)

    def tidy(self) -> bool:
        """Return False, because the server cleans up by itself."""
        return False

    def scrub(self) -> None:
        """Rewrite the tables so that nothing of removed memories stays in them.

        The server's own log and backups are not affected.

        Raises:
            EraseError: a reader was in the way for ten seconds. Call it again.
        """
        self._check_writer()
        try:
            with postgres_errors(self.address), self._pool.connection() as raw:
                raw.execute(f"SET lock_timeout = '{ERASE_WAIT_S}s'")
                try:
                    for table in schema.ERASED:
                        raw.execute(f"VACUUM (FULL) {table}")
                finally:
                    raw.execute("RESET lock_timeout")
        except StoreError as error:
            raise EraseError(
                f"memories were removed, but their old bytes stay in the tables. Call scrub() again: {error}"
            ) from error
        self._write(lambda connection: meta.delete(connection, meta.ERASURE))

    def parts(self) -> list[Part]:
        """Return the ranges of ids that were added in different months, oldest first."""
        with self._read() as connection:
            return parts.read_parts(connection)

    def begin_part(self, now_ns: int | None = None) -> bool:
        """Begin a new part for later memories if the last one began in an earlier month.

        Readers and writers wait while the last part is scanned once.

        Raises:
            StoreLockedError: a reader was in the way for ten seconds. Call it again.
        """
        return self._write(lambda connection: parts.begin_part(connection, self._counters, now_ns))

    def begin_many(self) -> bool:
        """Begin a part without a vector index if the last one has one, because single additions to a graph
        take milliseconds each. :meth:`make_indexes` creates the index of the new part.
        """
        self._check_writer()
        if self.guarded:
            return False
        try:
            begun = self._write(
                lambda connection: parts.begin_part(connection, self._counters, unindexed=True)
            )
        except StoreLockedError:
            LOG.warning("%s: readers are in the way, so each vector is added to the index", self.address)
            return False
        if begun:
            LOG.info("%s: these vectors have no index yet. recall consolidate creates it", self.address)
        return begun

    def part_ids(self, part: Part) -> list[int]:
        """Return the rising ids of the memories of a part."""
        with self._read() as connection:
            sql = f"SELECT id FROM memory WHERE {part.contains('id')} ORDER BY id"
            return [id for (id,) in connection.execute(sql).fetchall()]

    def drop_part(self, part: Part, generation: int, file: str) -> int:
        """Drop a part that was archived, see :func:`memory.archive.archive`.

        Raises:
            StoreLockedError: its memories changed since the generation, or a reader was in the way.
        """
        return self._write(
            lambda connection: parts.drop_part(connection, self._counters, part, generation, file)
        )

    def roles(self) -> list[Access]:
        """Return the roles with access besides the owner."""
        with self._read() as connection:
            return access.read_access(connection)

    def grant(self, role: str, *, writes: bool = False, maps: Sequence[str] | None = None) -> str | None:
        """Give a role of the server access; a missing role is created.

        Args:
            role: its name, 1 to 63 bytes.
            writes: True to let it add memories, and change and forget its own.
            maps: maps that it sees and adds to; None: all.

        Returns:
            The address with the password of a new role, which cannot be retrieved later.

        Raises:
            ValueError: an invalid name, or that of the owner.
            StoreReadOnlyError: this user may not create roles, or does not own the tables.
        """
        self._check_writer()
        if not 0 < len(check_text("role", role).encode()) <= 63:
            raise ValueError(f"the name of a role must have 1 to 63 bytes, got {role!r}")
        with postgres_errors(self.address), self._pool.connection() as raw, raw.transaction():
            password = access.grant(raw, role, writes=writes, maps=maps)
        return None if password is None else with_user(self._address, role, password)

    def revoke(self, role: str) -> bool:
        """Remove a role's access from its next statement on; return True if it had access."""
        self._check_writer()
        with postgres_errors(self.address), self._pool.connection() as raw, raw.transaction():
            return access.revoke(raw, role)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write the present store to a folder with ``pg_dump``, in use or not; return the file.

        It includes the settings. ``pg_restore`` restores it on a server of the same or a newer version.

        Raises:
            FileExistsError: the folder has a backup already.
            StoreError: ``pg_dump`` is missing, does not fit the server, or failed.
        """
        with self._read() as connection:
            (name,) = connection.execute("SELECT current_schema()").fetchone()
        return dump.dump(self._address, name, Path(folder))


def with_user(address: str, user: str, password: str) -> str:
    """Return the address for another user."""
    found = conninfo.conninfo_to_dict(address)
    host, port, name = found.get("host", "localhost"), found.get("port", 5432), found.get("dbname", "")
    options = found.get("options")
    query = "" if not options else f"?options={quote(str(options), safe='')}"
    return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@{host}:{port}/{name}{query}"
