"""Group commit: threads that write at the same time share one transaction, and one wait for the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from memory.persistence.sql import Connection

Result = TypeVar("Result")
Request = TypeVar("Request")
Reply = TypeVar("Reply")

#: Operations that share a transaction at most.
LARGEST_GROUP = 4096


class Job(Generic[Result]):
    """An operation that waits for its commit.

    Attributes:
        work: run within the transaction, perhaps a second time after a rollback; ``None`` where there is a
            request.
        request: for the function that does many at once.
        turn: held until the job is done or its thread is to lead.
        done: whether ``result`` or ``error`` is set; set only after the commit.
    """

    def __init__(self, work: Callable[[Any], Result] | None, request: Any = None) -> None:
        self.work = work
        self.request = request
        self.turn = threading.Lock()
        self.turn.acquire()
        self.done = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class GroupCommit(Generic[Request, Reply]):
    """Runs operations on the one connection that writes.

    The thread that finds no leader leads: it runs everything that queued up in one transaction, commits,
    wakes those whose operations are done, and makes the next that waits the leader. If one operation of a
    group fails, the group is rolled back and each is run in a transaction of its own, so that it fails alone.
    What goes with every transaction of a store is in :mod:`memory.persistence.sqlite.writer`.

    Attributes:
        connection: that writes.
        lock: held by whoever uses the connection.
        commits: transactions that were committed, for tests and statistics.
    """

    def __init__(self, connection: Connection) -> None:
        """Take over a connection in autocommit mode."""
        self.connection = connection
        self._door = threading.Lock()
        self._queue: deque[Job[Any]] = deque()
        self._leader: Job[Any] | None = None
        self.lock = threading.RLock()
        self.commits = 0

    def begin(self) -> None:
        """At the start of every transaction: write what waited for one."""

    def together(self, requests: list[Request]) -> Sequence[Reply]:
        """Do the requests of :meth:`run_together` that follow each other, in order."""
        raise NotImplementedError(f"{type(self).__name__} takes no requests")

    def committed(self) -> None:
        """After every commit, which is on the disk."""

    def rolled_back(self) -> None:
        """After a rollback: read again what is kept beside the database."""

    @property
    def unsure(self) -> bool:
        """Whether the commit that failed just now may have been made: its answer was lost."""
        return False

    @property
    def busy(self) -> bool:
        """Whether an operation is at work just now."""
        with self._door:
            return self._leader is not None

    def run(self, work: Callable[[Any], Result]) -> Result:
        """Do the work; return when the commit is on the disk.

        Raises:
            Whatever ``work`` or the commit raises; then nothing of it was kept.
        """
        return self._run(Job(work))

    def run_together(self, request: Request) -> Reply:
        """The same for what is done for many at once."""
        return self._run(Job[Reply](None, request))

    def run_alone(self, work: Callable[[Any], Result]) -> Result:
        """The same in a transaction of its own, now; for who holds the lock already."""
        job = Job(work)
        with self.lock:
            self._try([job])
        return _outcome(job)

    def _run(self, job: Job[Result]) -> Result:
        try:
            with self._door:
                self._queue.append(job)
                if self._leader is None:
                    self._leader = job
                leads = self._leader is job
            if not leads:
                job.turn.acquire()
            # A leader stops at LARGEST_GROUP: its own operation may still be in the queue after a round.
            while not job.done:
                self._lead(job)
        finally:
            self._leave(job)
        return _outcome(job)

    def _leave(self, job: Job[Any]) -> None:
        """Hand over the lead; out of the queue when interrupted while waiting."""
        with self._door:
            if not job.done and job in self._queue:
                self._queue.remove(job)
            if self._leader is job:
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.turn.release()

    def _lead(self, own: Job[Any]) -> None:
        with self.lock:
            group: list[Job[Any]] = []
            with self._door:
                while self._queue and len(group) < LARGEST_GROUP:
                    group.append(self._queue.popleft())
            try:
                self._try(group)
            except BaseException:
                # Interrupted, perhaps by the keyboard: what the others wait for is left to them.
                with self._door:
                    self._queue.extendleft(job for job in reversed(group) if not (job.done or job is own))
                raise
            finally:
                for job in group:
                    if job.done and job is not own:
                        job.turn.release()

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
            self.connection.execute("BEGIN IMMEDIATE")
            begun = True
            self.begin()
            self._work(group)
            self.connection.execute("COMMIT")
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            elif begun and not isinstance(error, Exception):
                self._finish(group)  # The interruption came after the commit.
                raise
            elif begun and self.unsure:
                # Tried again one by one, as after a rollback, all could be there twice.
                self.committed()
                for job in group:
                    job.error, job.done = error, True
                return
            self.rolled_back()
            raise
        self._finish(group)

    def _work(self, group: list[Job[Any]]) -> None:
        for alone, jobs in groupby(group, key=lambda job: job.work is not None):
            if alone:
                for job in jobs:
                    job.result = job.work(self.connection)  # type: ignore[misc]
                continue
            some = list(jobs)
            replies = self.together([job.request for job in some])
            for job, reply in zip(some, replies, strict=True):
                job.result = reply

    def _finish(self, group: list[Job[Any]]) -> None:
        self.commits += 1
        self.committed()
        for job in group:
            job.done = True


def _outcome(job: Job[Result]) -> Result:
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[return-value]
