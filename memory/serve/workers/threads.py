"""Threads that say how much waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class CountedThreads(ThreadPoolExecutor):
    """A pool of threads whose queue can be seen.

    Args:
        count: of threads.
        name: that theirs begin with.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._counting = threading.Lock()
        self._waiting = self._working = 0

    @property
    def waiting(self) -> int:
        """Calls that no thread has begun."""
        return self._waiting

    @property
    def working(self) -> int:
        """Calls that a thread is at."""
        return self._working

    def submit(  # type: ignore[override]  # of the base class: any arguments
        self, function: Callable[[], Result], /
    ) -> Future[Result]:
        """Call a function in a thread."""

        def call() -> Result:
            self._count(-1, 1)
            try:
                return function()
            finally:
                self._count(0, -1)

        self._count(1, 0)
        try:
            future = super().submit(call)
        except BaseException:
            self._count(-1, 0)
            raise
        # Whoever asked may be gone before there is a thread.
        future.add_done_callback(lambda done: self._count(-1, 0) if done.cancelled() else None)
        return future

    def _count(self, waiting: int, working: int) -> None:
        with self._counting:
            self._waiting += waiting
            self._working += working
