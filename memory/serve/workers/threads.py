"""Thread pool with counters."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class CountedThreads(ThreadPoolExecutor):
    """Thread pool that counts queued and running calls."""

    def __init__(self, count: int, name: str) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._counting = threading.Lock()
        self._waiting = self._working = 0

    @property
    def waiting(self) -> int:
        """Number of queued calls."""
        return self._waiting

    @property
    def working(self) -> int:
        """Number of running calls."""
        return self._working

    def submit(  # type: ignore[override]  # The base class accepts arguments.
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
        # The call may be cancelled before a thread starts it.
        future.add_done_callback(lambda done: self._count(-1, 0) if done.cancelled() else None)
        return future

    def _count(self, waiting: int, working: int) -> None:
        with self._counting:
            self._waiting += waiting
            self._working += working
