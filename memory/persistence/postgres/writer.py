"""The one connection of a process that writes to a server."""

from __future__ import annotations

from memory.persistence.log.journal import Counters
from memory.persistence.log.writer import Writer
from memory.persistence.postgres.connection import PostgresConnection


class PostgresWriter(Writer):
    """Writer operations under the store's lock: writers of all processes queue for it.

    Args:
        connection: takes the lock with each transaction.
        counters: read at the beginning of each, because others write too.
    """

    connection: PostgresConnection

    def __init__(self, connection: PostgresConnection, counters: Counters) -> None:
        super().__init__(connection, counters)

    def begin(self) -> None:
        """What others wrote since, then the sights that wait."""
        self.counters.read(self.connection)
        super().begin()

    def rolled_back(self) -> None:
        """Sights wait again; the counters are read with the next transaction."""
        self.pending.rolled_back()

    @property
    def unsure(self) -> bool:
        """Whether the server went away while it was asked to commit."""
        return self.connection.unsure
