"""Short calls that the thread of the event loop runs itself.

Handing a call to a thread and back takes as long as a short search. But calls in the event loop block all
requests. So after a call that was slow or read from disk, threads run the calls for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

try:
    import resource
except ImportError:  # pragma: no cover
    resource = None  # type: ignore[assignment]  # Not available on this system.

#: Maximum CPU seconds of a short call, and pause in seconds after a longer one.
MOMENT_S, PAUSE_S = 0.005, 1.0


class _Spent(NamedTuple):
    """CPU seconds and disk reads of this thread."""

    seconds: float
    blocks: int


class Moments:
    """Decision whether the event loop runs short calls itself.

    Args:
        moment_s: maximum CPU seconds of a short call.
        pause_s: pause in seconds after a longer call or a disk read.
    """

    def __init__(self, moment_s: float = MOMENT_S, pause_s: float = PAUSE_S) -> None:
        self._moment_s = moment_s
        self._pause_s = pause_s
        self._again = 0.0
        self._one = asyncio.Lock()

    @property
    def now(self) -> bool:
        """True if the event loop may run a call."""
        return time.monotonic() >= self._again

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Run calls one after another, with other events in between."""
        async with self._one:
            await asyncio.sleep(0)
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Measure the call in this context."""
        before = _spent()
        try:
            yield
        finally:
            after = _spent()
            if after.seconds - before.seconds > self._moment_s or after.blocks > before.blocks:
                self._again = time.monotonic() + self._pause_s


def _spent() -> _Spent:
    """Return the resources used so far; wall time if the system has no per-thread values."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return _Spent(time.perf_counter(), 0)
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return _Spent(used.ru_utime + used.ru_stime, used.ru_inblock)
