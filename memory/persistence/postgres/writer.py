"""Writing connection of a process to a server."""

from __future__ import annotations

from memory.persistence.log.writer import Writer
from memory.persistence.postgres.connection import PostgresConnection


class PostgresWriter(Writer):
    """Writer under the store's lock, for which the writers of all processes queue.

    Args:
        connection: connection that takes the lock with each transaction.
        counters: counters, read with each transaction, because others write too.
    """

    connection: PostgresConnection

    def begin(self) -> None:
        """Read what others wrote, then write the pending observations."""
        self.counters.read(self.connection)
        super().begin()

    def after_rollback(self) -> None:
        """Let the observations wait again; the next transaction reads the counters."""
        self.pending.after_rollback()

    @property
    def commit_is_uncertain(self) -> bool:
        """True if the server went away during the commit."""
        return self.connection.commit_is_uncertain
