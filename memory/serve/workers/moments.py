"""What takes a moment only is done by the thread of the event loop itself.

Handing over to a thread and back takes as long as a short search. As long as the loop's thread works nobody
is heard, so what turns out to read from the disk or to compute for long is left to threads for a while.
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
    resource = None  # type: ignore[assignment]  # Not on this system.

#: Seconds of the processor that a moment has, and for which threads do what took longer.
MOMENT_S, PAUSE_S = 0.005, 1.0


class _Spent(NamedTuple):
    """By this thread: seconds of the processor, and blocks that the system read from a disk for it."""

    seconds: float
    blocks: int


class Moments:
    """Watches what the loop's thread does itself.

    Args:
        moment_s: seconds of the processor that it may take.
        pause_s: seconds for which nothing is done so after what took longer, or waited for a disk.
    """

    def __init__(self, moment_s: float = MOMENT_S, pause_s: float = PAUSE_S) -> None:
        self._moment_s = moment_s
        self._pause_s = pause_s
        self._again = 0.0
        self._one = asyncio.Lock()

    @property
    def now(self) -> bool:
        """Whether anything is to be done so."""
        return time.monotonic() >= self._again

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One after another: whatever else has come is heard in between."""
        async with self._one:
            await asyncio.sleep(0)
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What is done within counts."""
        before = _spent()
        try:
            yield
        finally:
            after = _spent()
            if after.seconds - before.seconds > self._moment_s or after.blocks > before.blocks:
                self._again = time.monotonic() + self._pause_s


def _spent() -> _Spent:
    """Where the system does not tell of threads, all time counts."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return _Spent(time.perf_counter(), 0)
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return _Spent(used.ru_utime + used.ru_stime, used.ru_inblock)
