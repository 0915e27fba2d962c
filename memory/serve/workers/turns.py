"""Threads that work in turn.

Python runs one thread at a time: threads that read side by side finish no sooner, and what they take for
handing over to each other is more than a short query takes.
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
#: Seconds after which the next does not wait any longer for what is at work.
PATIENCE_S = 0.01


class _Job(NamedTuple):
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class Turns:
    """Calls functions one after another, and those that wait beside one that takes long.

    Args:
        threads: at most; of as many that take long, others wait for the first of them.
        patience_s: seconds that a function may take before the next begins beside it.
        name: of the threads.
    """

    def __init__(self, threads: int, *, patience_s: float = PATIENCE_S, name: str = "turns") -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        #: Stands for the thread whose turn it is; others finish what they are at and end.
        self._turn: object | None = None
        self._since = 0.0
        self._busy = self._working = 0
        #: The loop that looks whether somebody waits for too long.
        self._watched: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Calls that no thread has begun."""
        return len(self._jobs)

    @property
    def working(self) -> int:
        """Calls that a thread is at."""
        return self._working

    async def call(self, function: Callable[[], Result]) -> Result:
        """What a function returns; it runs in a thread.

        Raises:
            asyncio.CancelledError: the threads were ended before its turn.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()
        with self._lock:
            if self._closed:
                raise asyncio.CancelledError("the service is ending")
            self._jobs.append(_Job(function, loop, answer))
            alone = self._turn is None
            if alone:
                self._begin()
        if not alone and self._watched is not loop:
            self._watched = loop
            loop.call_later(self._patience_s, self._watch, loop)
        return await answer

    def cancel(self) -> None:
        """Drop what has not begun; nothing is called any more."""
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
            self._jobs.clear()
        for job in jobs:
            _tell(job, _cancel)
        self._threads.shutdown(wait=False)

    def join(self) -> None:
        """Wait until what has begun is done."""
        self._threads.shutdown()

    def _begin(self) -> None:
        """Give the turn to a thread of its own; the lock is held."""
        self._turn = turn = object()
        self._since = time.monotonic()
        self._busy += 1
        self._threads.submit(self._work, turn)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next begin beside what takes long, as long as somebody waits."""
        with self._lock:
            waits = bool(self._jobs)
            late = time.monotonic() - self._since >= self._patience_s
            if waits and late and self._busy < self._most:
                self._begin()
        self._watched = loop if waits else None
        if waits:
            loop.call_later(self._patience_s, self._watch, loop)

    def _work(self, turn: object) -> None:
        """Call one after another as long as it is this thread's turn."""
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
            told: tuple[Callable[..., None], Any] | None = None
            try:
                if not job.answer.cancelled():
                    told = (_finish, job.function())
            except BaseException as error:
                told = (_fail, error)
            with self._lock:
                self._working -= 1
            if told is not None:
                _tell(job, *told)
            del job, told


def _tell(job: _Job, say: Callable[..., None], *said: Any) -> None:
    with suppress(RuntimeError):  # The loop has ended: nobody waits.
        job.loop.call_soon_threadsafe(say, job.answer, *said)


def _finish(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


def _cancel(answer: asyncio.Future[Any]) -> None:
    answer.cancel()
