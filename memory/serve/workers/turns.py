"""Threads that run calls one after another.

Python runs one thread at a time. Parallel readers finish no sooner, and switching between them takes longer
than a short query.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")
#: Seconds after which the next call no longer waits for the running one.
PATIENCE_S = 0.01


class _Job(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class Turns:
    """Threads that run calls one after another, and start the next call in parallel to a slow one.

    Args:
        threads: maximum number of threads.
        patience_s: seconds after which a call counts as slow.
        name: prefix of the thread names.
    """

    def __init__(self, threads: int, *, patience_s: float = PATIENCE_S, name: str = "turns") -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        #: Token of the thread that takes the next call; other threads end after their call.
        self._turn: object | None = None
        self._since = 0.0
        self._busy = self._working = 0
        #: Event loop that checks for slow calls.
        self._watched: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of queued calls."""
        return len(self._jobs)

    @property
    def working(self) -> int:
        """Number of running calls."""
        return self._working

    async def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in a thread and return its result.

        Raises:
            asyncio.CancelledError: the threads were stopped first.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        with self._lock:
            if self._closed:
                raise asyncio.CancelledError("the service is shutting down")
            self._jobs.append(_Job(function, loop, answer))
            alone = self._turn is None
            if alone:
                self._begin()
        if not alone and self._watched is not loop:
            self._watched = loop
            loop.call_later(self._patience_s, self._watch, loop)
        return await answer

    def cancel(self) -> None:
        """Drop queued calls and accept no more."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
            self._jobs.clear()
        for job in jobs:
            _notify(job, _cancel)
        self._threads.shutdown(wait=False)

    def join(self) -> None:
        """Wait for running calls."""
        self._threads.shutdown()

    def _begin(self) -> None:
        """Start a thread that takes the next call. The caller holds the lock."""
        self._turn = turn = object()
        self._since = time.monotonic()
        self._busy += 1
        self._threads.submit(self._work, turn)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start another thread if a call is slow and others wait."""
        with self._lock:
            waits = bool(self._jobs)
            late = time.monotonic() - self._since >= self._patience_s
            if waits and late and self._busy < self._most:
                self._begin()
        self._watched = loop if waits else None
        if waits:
            loop.call_later(self._patience_s, self._watch, loop)

    def _work(self, turn: object) -> None:
        """Run calls one after another while this thread has the turn."""
        while True:
            with self._lock:
                mine = self._turn is turn
                if not mine or not self._jobs:
                    self._busy -= 1
                    if mine:
                        self._turn = None
                    return
                job = self._jobs.popleft()
                self._since = time.monotonic()
                self._working += 1
            outcome: tuple[Callable[..., None], Any] | None = None
            try:
                if not job.answer.cancelled():
                    outcome = (_finish, job.function())
            except BaseException as error:
                outcome = (_fail, error)
            with self._lock:
                self._working -= 1
            if outcome is not None:
                _notify(job, *outcome)
            del job, outcome


def _notify(job: _Job, callback: Callable[..., None], *values: Any) -> None:
    with suppress(RuntimeError):  # The event loop has ended.
        job.loop.call_soon_threadsafe(callback, job.answer, *values)


def _finish(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _cancel(answer: asyncio.Future[Any]) -> None:
    answer.cancel()
