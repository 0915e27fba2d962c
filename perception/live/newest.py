"""A queue that forgets: the newest entries win."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Entry = TypeVar("Entry")


class NewestQueue(Generic[Entry]):
    """Between two threads; where the reader is too slow the oldest entries are dropped, and counted.

    Args:
        length: entries that wait at most.

    Raises:
        ValueError: no entry may wait.
    """

    def __init__(self, length: int) -> None:
        if length < 1:
            raise ValueError(f"a queue must hold at least 1 entry, got {length}")
        self._waiting: deque[Entry] = deque(maxlen=length)
        self._changed = threading.Condition()
        self._closed = False
        #: Entries that made way for newer ones.
        self.dropped = 0

    def __len__(self) -> int:
        """Entries that wait."""
        return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """Add an entry, in place of the oldest one if there is no room; never waits."""
        with self._changed:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(entry)
            self._changed.notify()

    def take(self, timeout_s: float) -> Entry | None:
        """The oldest entry that waits; ``None`` where none comes in time, or none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout_s)
            return self._waiting.popleft() if self._waiting else None

    def close(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether nothing waits and nothing more comes."""
        with self._changed:
            return self._closed and not self._waiting
