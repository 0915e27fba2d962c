"""The memory of a live run, found by the entry point group ``sparsight.memories``.

``perception`` does not import ``memory``; it passes the records that ``perceive track`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from perception.extensions import as_value_error, installed

GROUP = "sparsight.memories"


class LiveMemory(Protocol):
    """The memory that an entry point opens."""

    def see(self, record: Mapping[str, Any], part: int) -> int:
        """Add the record of a frame and return the number of memories; ``part`` counts tracker restarts."""

    def close(self) -> int:
        """Store unfinished tracks and return the number of memories."""


def open_memory(store: str, recording: str, *, map_id: str = "default") -> LiveMemory:
    """Open the installed memory.

    Args:
        store: folder, or address of a server.
        recording: name of the run, unique within the store.
        map_id: map of the poses.

    Raises:
        ImportError: no memory is installed.
        ValueError: opening or using the store failed.
    """
    opened: Callable[[str, str, str], LiveMemory] = installed(GROUP, "memory")
    with as_value_error(store):
        return _StoreMemory(store, opened(store, recording, map_id))


class _StoreMemory:
    """A memory whose errors name the store."""

    def __init__(self, store: str, memory: LiveMemory) -> None:
        self._store, self._memory = store, memory

    def see(self, record: Mapping[str, Any], part: int) -> int:
        with as_value_error(self._store):
            return self._memory.see(record, part)

    def close(self) -> int:
        with as_value_error(self._store):
            return self._memory.close()
