"""How long a thread may read: SQLite and long loops look at it and stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from memory.errors import QueryInterruptedError

#: Instructions of SQLite's machine between two looks at the clock: about a millisecond.
INSTRUCTIONS = 20_000


class Deadline:
    """When reading has to end.

    Args:
        seconds: from now on; ``None`` for no limit of its own.
        stopped: set from outside where all reading is to end.
    """

    def __init__(self, seconds: float | None, stopped: threading.Event | None = None) -> None:
        self.seconds = seconds
        self.stopped = stopped
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left_s(self) -> float | None:
        """Seconds that are left; ``None`` where there is no limit."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Whether it is to end now."""
        if self.stopped is not None and self.stopped.is_set():
            return True
        return self._end is not None and time.monotonic() >= self._end

    def error(self) -> QueryInterruptedError:
        """What is raised then."""
        if self.seconds is None or (self.stopped is not None and self.stopped.is_set()):
            return QueryInterruptedError("interrupted: the store is about to be closed")
        return QueryInterruptedError(f"it took longer than {self.seconds:g} s: ask for less")


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline | None:
    """The deadline of this thread, if there is one."""
    return _CURRENT.get()


@contextmanager
def reading_until(deadline: Deadline) -> Iterator[None]:
    """Everything that this thread reads of stores has to end in time.

    Raises:
        QueryInterruptedError: it did not; nothing was changed by what was read.
    """
    token = _CURRENT.set(deadline)
    try:
        yield
    finally:
        _CURRENT.reset(token)


@contextmanager
def without_limit() -> Iterator[None]:
    """What is read for all who come later, such as a cache, may take long; a stop still counts."""
    known = _CURRENT.get()
    if known is None:
        yield
        return
    with reading_until(Deadline(None, known.stopped)):
        yield


def check_deadline() -> None:
    """Raise :class:`QueryInterruptedError` where this thread's time is over; for long loops."""
    known = _CURRENT.get()
    if known is not None and known.is_over():
        raise known.error()
