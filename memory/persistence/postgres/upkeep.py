"""What the owner of a store on a server does beside remembering: parts, indexes, roles, erasure, a dump."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from psycopg import conninfo
from psycopg_pool import ConnectionPool

from memory.errors import EraseError, StoreError
from memory.persistence import database, erase, meta
from memory.persistence.copying import Progress
from memory.persistence.postgres import access, dumping, nearest, parts, schema
from memory.persistence.postgres.access import Access
from memory.persistence.postgres.connection import translated
from memory.persistence.postgres.parts import Part
from memory.persistence.tables import read_slots
from memory.types import check_text

#: Seconds that an erasure waits for readers.
ERASE_WAIT_S = 10


class Upkeep(database.Database):
    """A database whose tables a server keeps.

    Attributes:
        address: of the store, without the password.
    """

    address: str
    _address: str
    _pool: ConnectionPool

    def make_indexes(self, least: int) -> None:
        """Make indexes over the vectors of an encoder in a part, of which there are more than so many.

        Nobody waits for it but the caller; of vectors that are too long for such an index all are compared.
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
        with translated(self.address), self._pool.connection() as raw:
            for part, slot in wanted:
                nearest.make_index(raw, slot, part.first_id)

    def tidy(self) -> bool:
        """Nothing: the server does so by itself."""
        return False

    def scrub(self) -> None:
        """Write the tables anew so that nothing of removed memories stays in them.

        What the server's own log and its backups keep is its owner's to remove.

        Raises:
            EraseError: a reader was in the way for ten seconds; call it again.
        """
        self._check_writer()
        try:
            with translated(self.address), self._pool.connection() as raw:
                raw.execute(f"SET lock_timeout = '{ERASE_WAIT_S}s'")
                try:
                    for table in schema.ERASED:
                        raw.execute(f"VACUUM (FULL) {table}")
                finally:
                    raw.execute("RESET lock_timeout")
        except StoreError as error:
            raise EraseError(
                f"removed, but old bytes stay in the tables until they are written anew, by scrub(): {error}"
            ) from error
        self._write(lambda connection: meta.delete(connection, erase.NOTE))

    def parts(self) -> list[Part]:
        """The stretches of ids that were added in different months, the first first."""
        with self._read() as connection:
            return parts.read_parts(connection)

    def begin_part(self, now_ns: int | None = None) -> bool:
        """Begin a part for what is added from now on, where the last began in an earlier month.

        Readers and writers wait meanwhile: the last part is looked through once.

        Raises:
            StoreLockedError: a reader was in the way for ten seconds; call it again.
        """
        return self._write(lambda connection: parts.begin_part(connection, self._counters, now_ns))

    def part_ids(self, part: Part) -> list[int]:
        """Rising ids of the memories of a part."""
        with self._read() as connection:
            sql = f"SELECT id FROM memory WHERE {part.contains('id')} ORDER BY id"
            return [id for (id,) in connection.execute(sql).fetchall()]

    def drop_part(self, part: Part, generation: int, file: str) -> int:
        """Drop a part that was written to a file, see :func:`memory.archive.archive`.

        Raises:
            StoreLockedError: memories of it were changed since the generation, or a reader was in the way.
        """
        return self._write(
            lambda connection: parts.drop_part(connection, self._counters, part, generation, file)
        )

    def roles(self) -> list[Access]:
        """Who may use the store beside its owner."""
        with self._read() as connection:
            return access.read_access(connection)

    def grant(self, role: str, *, writes: bool = False, maps: Sequence[str] | None = None) -> str | None:
        """Let a role of the server read the store, or write to it; it is made where there is none.

        Args:
            role: its name, 1 to 63 bytes.
            writes: it also adds, and changes and forgets what it added.
            maps: that it sees and adds to; all by default.

        Returns:
            The address with its password where it was made: nobody can ask for it again.

        Raises:
            ValueError: a name that no role has, or that of the owner.
            StoreReadOnlyError: this user may not make roles, or is not the owner of the tables.
        """
        self._check_writer()
        if not 0 < len(check_text("role", role).encode()) <= 63:
            raise ValueError(f"a role has a name of 1 to 63 bytes, got {role!r}")
        with translated(self.address), self._pool.connection() as raw, raw.transaction():
            password = access.grant(raw, role, writes=writes, maps=maps)
        return None if password is None else with_user(self._address, role, password)

    def revoke(self, role: str) -> bool:
        """Let a role do nothing any more, from its next statement on; whether it was let in."""
        self._check_writer()
        with translated(self.address), self._pool.connection() as raw, raw.transaction():
            return access.revoke(raw, role)

    def backup(
        self,
        folder: str | os.PathLike[str],
        progress: Progress | None = None,
        *,
        beside: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Have ``pg_dump`` write the store as it is now, in use or not, into a folder; returns the file.

        It holds the settings too. ``pg_restore`` puts it into a database of the same or a newer server.

        Raises:
            FileExistsError: there is one already.
            StoreError: there is no ``pg_dump`` that fits the server, or it failed.
        """
        with self._read() as connection:
            (name,) = connection.execute("SELECT current_schema()").fetchone()
        return dumping.dump(self._address, name, Path(folder))


def with_user(address: str, user: str, password: str) -> str:
    """The address for another user."""
    found = conninfo.conninfo_to_dict(address)
    host, port, name = found.get("host", "localhost"), found.get("port", 5432), found.get("dbname", "")
    options = found.get("options")
    query = "" if not options else f"?options={quote(str(options), safe='')}"
    return f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@{host}:{port}/{name}{query}"
