"""Access counts of memories, written in the background."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping

from memory.errors import StoreError
from memory.persistence.database import Database

#: Accesses that are collected before they are written, and maximum memories with waiting counts.
_AT_ONCE = 4096
_WAITING = 64 * _AT_ONCE
#: Memories per transaction; other writers wait for one transaction at most.
_PORTION = 256


class Accesses:
    """Access counts by memory, written by a background thread.

    Counts that were not written are lost if the process is killed. Only forgetting policies use them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        self._count = 0
        self._collects = False
        self._thread: threading.Thread | None = None

    def collect(self) -> None:
        """Count also in a read-only store; another process writes what :meth:`take` returns."""
        self._collects = True

    def take(self) -> dict[int, int]:
        """Return the counts that were not written, and start anew."""
        with self._lock:
            counts, self._counts, self._count = self._counts, {}, 0
        return counts

    def note(self, ids: Iterable[int]) -> None:
        """Count an access to each memory, see :meth:`add`."""
        if not self._database.readonly or self._collects:
            self.add(Counter(ids))

    def add(self, counts: Mapping[int, int]) -> None:
        """Add accesses by memory id; never waits or fails."""
        with self._lock:
            if len(self._counts) >= _WAITING:
                self._counts, self._count = {}, 0
            for id, count in counts.items():
                self._counts[id] = self._counts.get(id, 0) + count
                self._count += count
            due = self._count >= _AT_ONCE and self._thread is None and not self._database.readonly
            if not due or self._database.busy:
                return
            self._thread = threading.Thread(target=self._run, name="memory-accesses", daemon=True)
            self._thread.start()

    def write(self) -> None:
        """Write all counts in the calling thread; raises ``StoreError`` if that fails."""
        self.wait()
        self._write()

    def wait(self) -> None:
        """Wait for the background thread."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(StoreError):  # A query must not fail because of its access counts.
                self._write()
        finally:
            self._thread = None

    def _write(self) -> None:
        counts = self.take()
        ids = sorted(counts)  # Neighbouring ids share database pages.
        now_ns = time.time_ns()
        for start in range(0, len(ids), _PORTION):
            self._database.touch({id: counts[id] for id in ids[start : start + _PORTION]}, now_ns)
