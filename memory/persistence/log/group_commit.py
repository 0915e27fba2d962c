"""Group commit: threads that write at the same time share one transaction and one disk sync."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from memory.persistence.sql import Connection

Result = TypeVar("Result")
Request = TypeVar("Request")
Reply = TypeVar("Reply")

#: Most operations per transaction.
LARGEST_GROUP = 4096
#: Share of the time of the last group, and maximum seconds, that a leader waits for its threads to return.
WAIT_SHARE, LONGEST_WAIT_S = 0.5, 0.002


class Job(Generic[Result]):
    """An operation that waits for its commit.

    Attributes:
        work: function to run within the transaction, possibly again after a rollback; ``None`` for a request.
        request: argument of :meth:`GroupCommit.run_requests`.
        turn: lock held until the job is done or its thread should lead.
        done: True if ``result`` or ``error`` is set; set only after the commit.
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
    """Executor of operations on the one writing connection.

    A thread that finds no leader leads. It runs all queued operations in one transaction, commits, wakes
    their threads, and makes the next waiting thread the leader. A leader first waits shortly for the threads
    of the last group, which often return at once; otherwise two halves of the threads would take turns, and
    a commit would hold half as many operations. If an operation fails, the group is rolled
    back and each operation runs in its own transaction, so that it fails alone.

    Attributes:
        lock: held by the user of the connection.
    """

    def __init__(self, connection: Connection) -> None:
        """Take over a connection in autocommit mode."""
        self.connection = connection
        self._door = threading.Lock()
        self._queue: deque[Job[Any]] = deque()
        self._leader: Job[Any] | None = None
        #: Operations that the next leader waits for, until a moment, and the lock that ends its wait.
        self._expected, self._until = 0, 0.0
        self._gathered: threading.Lock | None = None
        self.lock = threading.RLock()
        self.commits = 0

    def begin(self) -> None:
        """Hook at the start of every transaction."""

    def run_requests(self, requests: list[Request]) -> Sequence[Reply]:
        """Run consecutive requests of :meth:`run_together` in order."""
        raise NotImplementedError(f"{type(self).__name__} takes no requests")

    def after_commit(self) -> None:
        """Hook after every durable commit."""

    def after_rollback(self) -> None:
        """Hook after a rollback, to reload state kept outside the database."""

    @property
    def commit_is_uncertain(self) -> bool:
        """True if the failed commit may have succeeded, because its answer was lost."""
        return False

    @property
    def busy(self) -> bool:
        """True if an operation is running."""
        with self._door:
            return self._leader is not None

    def run(self, work: Callable[[Any], Result]) -> Result:
        """Run work and return once it is durable.

        Raises:
            Any error of ``work`` or of the commit; then nothing of it was kept.
        """
        return self._run(Job(work))

    def run_together(self, request: Request) -> Reply:
        """Run a request together with others, like :meth:`run`."""
        return self._run(Job[Reply](None, request))

    def run_alone(self, work: Callable[[Any], Result]) -> Result:
        """Run work at once in its own transaction; for callers that hold the lock."""
        job = Job(work)
        with self.lock:
            self._try([job])
        return _outcome(job)

    def _run(self, job: Job[Result]) -> Result:
        try:
            with self._door:
                self._queue.append(job)
                if self._gathered is not None and len(self._queue) >= self._expected:
                    self._gathered.release()
                    self._gathered = None
                if self._leader is None:
                    self._leader = job
                leads = self._leader is job
            if not leads:
                job.turn.acquire()
            # A leader stops after LARGEST_GROUP operations, so its own may still be queued after a round.
            while not job.done:
                self._lead(job)
        finally:
            self._leave(job)
        return _outcome(job)

    def _leave(self, job: Job[Any]) -> None:
        """Hand over the lead; leave the queue after an interruption."""
        with self._door:
            if not job.done and job in self._queue:
                self._queue.remove(job)
            if self._leader is job:
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.turn.release()

    def _gather(self) -> None:
        """Wait until the threads of the last group are back, or the time for that is over."""
        with self._door:
            left = self._until - time.monotonic()
            if left <= 0.0 or len(self._queue) >= self._expected:
                return
            gathered = self._gathered = threading.Lock()
            gathered.acquire()
        gathered.acquire(timeout=left)
        with self._door:
            self._gathered = None

    def _expect(self, group: Sequence[Job[Any]], begun: float) -> None:
        """Set what the next leader waits for: the threads of this group, besides those that wait already."""
        now = time.monotonic()
        with self._door:
            self._expected = min(len(group) + len(self._queue), LARGEST_GROUP)
            self._until = now + min(WAIT_SHARE * (now - begun), LONGEST_WAIT_S)

    def _lead(self, own: Job[Any]) -> None:
        self._gather()
        with self.lock:
            begun = time.monotonic()
            group: list[Job[Any]] = []
            with self._door:
                while self._queue and len(group) < LARGEST_GROUP:
                    group.append(self._queue.popleft())
            try:
                self._try(group)
            except BaseException:
                # Interrupted, perhaps by the keyboard: put the operations of the others back.
                with self._door:
                    self._queue.extendleft(job for job in reversed(group) if not (job.done or job is own))
                raise
            finally:
                self._expect(group, begun)
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
            elif begun and self.commit_is_uncertain:
                # Another attempt might apply everything twice.
                self.after_commit()
                for job in group:
                    job.error, job.done = error, True
                return
            self.after_rollback()
            raise
        self._finish(group)

    def _work(self, group: list[Job[Any]]) -> None:
        for alone, jobs in groupby(group, key=lambda job: job.work is not None):
            if alone:
                for job in jobs:
                    job.result = job.work(self.connection)  # type: ignore[misc]
                continue
            some = list(jobs)
            replies = self.run_requests([job.request for job in some])
            for job, reply in zip(some, replies, strict=True):
                job.result = reply

    def _finish(self, group: list[Job[Any]]) -> None:
        self.commits += 1
        self.after_commit()
        for job in group:
            job.done = True


def _outcome(job: Job[Result]) -> Result:
    if job.error is not None:
        raise job.error
    return job.result  # type: ignore[return-value]
