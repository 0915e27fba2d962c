"""Counting what was given as an answer, without an answer waiting for it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable

from memory.errors import StoreError
from memory.persistence.database import Database

#: Accesses that are counted in memory before they are written, and memories whose accesses wait at most.
_AT_ONCE = 4096
_WAITING = 64 * _AT_ONCE
#: Memories a transaction: others' writing waits for one at most.
_PORTION = 256


class Accesses:
    """Accesses by memory, written now and then by a thread of their own that ends when it has.

    What was not written yet is lost where the process is killed: a policy of forgetting asks for it, nobody's
    data.

    Args:
        database: of the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        self._count = 0
        self._thread: threading.Thread | None = None

    def note(self, ids: Iterable[int]) -> None:
        """Count an access to each; neither waits nor fails. Nothing where the store is only read."""
        if self._database.readonly:
            return
        with self._lock:
            if len(self._counts) >= _WAITING:
                self._counts, self._count = {}, 0
            for id in ids:
                self._counts[id] = self._counts.get(id, 0) + 1
                self._count += 1
            due = self._count >= _AT_ONCE and self._thread is None
            if not due or self._database.busy:
                return
            self._thread = threading.Thread(target=self._run, name="memory-accesses", daemon=True)
            self._thread.start()

    def write(self) -> None:
        """Write all that wait, in the thread of the caller.

        Raises:
            StoreError: they cannot be written, and are not counted.
        """
        self.wait()
        self._write()

    def wait(self) -> None:
        """Until the thread that writes, if there is one, has ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        try:
            with contextlib.suppress(StoreError):  # An answer does not fail because this cannot be written.
                self._write()
        finally:
            self._thread = None

    def _write(self) -> None:
        with self._lock:
            counts, self._counts, self._count = self._counts, {}, 0
        ids = sorted(counts)  # Neighbours are on one page.
        now_ns = time.time_ns()
        for start in range(0, len(ids), _PORTION):
            self._database.touch({id: counts[id] for id in ids[start : start + _PORTION]}, now_ns)
