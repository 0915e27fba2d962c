"""A bounded queue that drops its oldest entries."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class NewestQueue(Generic[Entry]):
    """Queue between two threads; if the reader is too slow, the oldest entries are dropped and counted.

    Args:
        length: capacity.

    Raises:
        ValueError: the capacity is below 1.
    """

    def __init__(self, length: int) -> None:
        if length < 1:
            raise ValueError(f"queue length must be at least 1, got {length}")
        self._waiting: deque[Entry] = deque(maxlen=length)
        self._changed = threading.Condition()
        self._closed = False
        #: Number of dropped entries.
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of waiting entries."""
        return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """Add an entry without waiting; a full queue drops its oldest one."""
        with self._changed:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(entry)
            self._changed.notify()

    def take(self, timeout_s: float) -> Entry | None:
        """Take the oldest entry; None after the timeout or the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout_s)
            return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Mark the end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """True if the queue is empty and at its end."""
        with self._changed:
            return self._closed and not self._waiting
