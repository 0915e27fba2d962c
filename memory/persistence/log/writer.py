"""Writer of a store, shared by all engines."""

from __future__ import annotations

from collections.abc import Sequence

from memory.persistence.log import operations
from memory.persistence.log.group_commit import GroupCommit
from memory.persistence.log.journal import Counters
from memory.persistence.log.observations import PendingObservations
from memory.persistence.log.operations import Addition, OperationResult
from memory.persistence.sql import Connection


class Writer(GroupCommit[Addition, OperationResult]):
    """Writer that commits operations together with the pending observations.

    Attributes:
        pending: observations that wait for a commit.
    """

    def __init__(self, connection: Connection, counters: Counters) -> None:
        super().__init__(connection)
        self.counters = counters
        self.pending = PendingObservations()

    def begin(self) -> None:
        """Write the pending observations."""
        self.pending.write(self.connection, self.counters)

    def run_requests(self, requests: list[Addition]) -> Sequence[OperationResult]:
        """Run several additions with the statements of one."""
        return operations.add_all(self.connection, self.counters, requests)

    def after_commit(self) -> None:
        """Forget the durable observations."""
        self.pending.after_commit()

    def after_rollback(self) -> None:
        """Let the observations wait again, and read the counters."""
        self.pending.after_rollback()
        self.counters.read(self.connection)
