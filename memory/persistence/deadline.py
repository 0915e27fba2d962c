"""Time limits for reading, which SQLite and long loops check."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memory.errors import QueryInterruptedError

#: Instructions of SQLite's virtual machine between two checks of the clock, about a millisecond.
INSTRUCTIONS = 20_000


class Deadline:
    """Time limit for reading.

    Args:
        seconds: seconds from now; ``None`` for no limit of its own.
        stopped: event that ends all reading.
    """

    def __init__(self, seconds: float | None, stopped: threading.Event | None = None) -> None:
        self.seconds = seconds
        self.stopped = stopped
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        """Seconds left; ``None`` without a limit."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Return True if reading must end now."""
        if self.stopped is not None and self.stopped.is_set():
            return True
        return self._end is not None and time.monotonic() >= self._end

    def error(self) -> QueryInterruptedError:
        """Return the error to raise then."""
        if self.seconds is None or (self.stopped is not None and self.stopped.is_set()):
            return QueryInterruptedError("interrupted, because the store is about to be closed")
        return QueryInterruptedError(f"the query took longer than {self.seconds:g} s. Ask for less")


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline | None:
    """Return the deadline of this thread, or ``None``."""
    return _CURRENT.get()


@contextmanager
def reading_until(deadline: Deadline) -> Iterator[None]:
    """Limit everything that this thread reads from stores.

    Raises:
        QueryInterruptedError: the time is over; reading changed nothing.
    """
    token = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def without_limit() -> Iterator[None]:
    """Lift the time limit for data that later queries share, such as a cache; a stop still ends it."""
    known = _CURRENT.get()
    if known is None:
        yield
        return
    with reading_until(Deadline(None, known.stopped)):
        yield


def check_deadline() -> None:
    """Raise :class:`QueryInterruptedError` if this thread's time is over; for long loops."""
    known = _CURRENT.get()
    if known is not None and known.is_over():
        raise known.error()
