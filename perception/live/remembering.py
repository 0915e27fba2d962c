"""The memory of a live run, found by the entry point group ``sparsight.memories``.

``perception`` does not import ``memory``; it passes the records that ``perceive track`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Protocol

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
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    if not found:
        raise ImportError(
            f"no memory is installed (entry point group {GROUP!r}). Reinstall it: pip install sparsight"
        )
    opened: Callable[[str, str, str], LiveMemory] = found[0].load()
    with _as_value_error(store):
        return _StoreMemory(store, opened(store, recording, map_id))


class _StoreMemory:
    """A memory whose errors name the store."""

    def __init__(self, store: str, memory: LiveMemory) -> None:
        self._store, self._memory = store, memory

    def see(self, record: Mapping[str, Any], part: int) -> int:
        with _as_value_error(self._store):
            return self._memory.see(record, part)

    def close(self) -> int:
        with _as_value_error(self._store):
            return self._memory.close()


@contextmanager
def _as_value_error(store: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # The errors of the other package are unknown here.
        raise ValueError(f"{store}: {error}") from error
