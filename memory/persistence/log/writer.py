"""What goes with each transaction of a store, whatever its engine."""

from __future__ import annotations

from collections.abc import Sequence

from memory.persistence.log import operations
from memory.persistence.log.group_commit import GroupCommit
from memory.persistence.log.journal import Counters
from memory.persistence.log.observations import PendingObservations
from memory.persistence.log.operations import Addition, OperationResult
from memory.persistence.sql import Connection


class Writer(GroupCommit[Addition, OperationResult]):
    """Commits operations, and with them the sights that wait.

    Args:
        connection: to write to.
        counters: as the store has them; follow.

    Attributes:
        counters: of the store.
        pending: sights that wait for a commit.
    """

    def __init__(self, connection: Connection, counters: Counters) -> None:
        super().__init__(connection)
        self.counters = counters
        self.pending = PendingObservations()

    def begin(self) -> None:
        """Sights do not wait longer."""
        self.pending.write(self.connection, self.counters)

    def together(self, requests: list[Addition]) -> Sequence[OperationResult]:
        """Several additions with the statements of one."""
        return operations.add_all(self.connection, self.counters, requests)

    def committed(self) -> None:
        """The sights are on the disk."""
        self.pending.committed()

    def rolled_back(self) -> None:
        """Sights wait again, and the counters are those of the store."""
        self.pending.rolled_back()
        self.counters.read(self.connection)
