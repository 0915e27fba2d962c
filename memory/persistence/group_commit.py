"""Group commit: threads that write at the same time share one transaction, and one wait for the disk."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

#: Operations that share a transaction at most.
LARGEST_GROUP = 4096


class Job(Generic[Result]):
    """An operation that waits for its commit.

    Attributes:
        work: run within the transaction, perhaps a second time after a rollback.
        done: whether ``result`` or ``error`` is set; set only after the commit.
    """

    def __init__(self, work: Callable[[sqlite3.Connection], Result]) -> None:
        self.work = work
        self.done = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class GroupCommit:
    """Runs operations on the one connection that writes.

    Whoever gets the lock leads: it runs everything that queued up meanwhile in one transaction and commits.
    The others find their operation done. If one operation of a group fails, the group is rolled back and each
    is run in a transaction of its own, so that it fails alone.
    """

    def __init__(self, connection: sqlite3.Connection, reset: Callable[[], None]) -> None:
        """Take over the connection.

        Args:
            connection: in autocommit mode.
            reset: called after a rollback, to read again what is kept beside the database.
        """
        self._connection = connection
        self._reset = reset
        self._queue: deque[Job[Any]] = deque()
        self.lock = threading.RLock()
        #: Transactions that were committed, for tests and statistics.
        self.commits = 0

    def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Do the work; return when the commit is on the disk.

        Raises:
            Whatever ``work`` or the commit raises; then nothing of it was kept.
        """
        job = Job(work)
        self._queue.append(job)
        with self.lock:
            # A leader stops at LARGEST_GROUP: this operation may still be in the queue after the first round.
            while not job.done:
                self._lead(job)
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]

    def _lead(self, own: Job[Any]) -> None:
        group: list[Job[Any]] = []
        while self._queue and len(group) < LARGEST_GROUP:
            group.append(self._queue.popleft())
        try:
            self._try(group)
        except BaseException:
            # Interrupted, perhaps by the keyboard: what the others wait for is left to them.
            self._queue.extendleft(job for job in reversed(group) if not (job.done or job is own))
            raise

    def _try(self, group: list[Job[Any]]) -> None:
        try:
            self._transact(group)
        except Exception as error:
            if len(group) == 1:
                group[0].error, group[0].done = error, True
                return
            for job in group:
                self._try([job])

    def _transact(self, group: list[Job[Any]]) -> None:
        begun = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            begun = True
            for job in group:
                job.result = job.work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            elif begun and not isinstance(error, Exception):
                self._finish(group)  # The interruption came after the commit.
                raise
            self._reset()
            raise
        self._finish(group)

    def _finish(self, group: list[Job[Any]]) -> None:
        self.commits += 1
        for job in group:
            job.done = True
