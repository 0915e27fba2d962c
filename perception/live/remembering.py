"""The memory of a live run: whatever is installed as an entry point of the group ``sparsight.memories``.

The perception imports no memory. What it hands on are the records that ``perceive track`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Protocol

GROUP = "sparsight.memories"


class LiveMemory(Protocol):
    """What an entry point gives."""

    def see(self, record: Mapping[str, Any], part: int) -> int:
        """Take in the record of a frame; ``part`` changes where numbers of tracks begin anew.

        Returns how many memories there are.
        """

    def close(self) -> int:
        """Keep what goes on; returns how many memories there are."""


def open_memory(store: str, recording: str, *, map_id: str = "default") -> LiveMemory:
    """The memory that is installed.

    Args:
        store: folder, or address of a server.
        recording: name of the run; not the same for two runs of a store.
        map_id: of the poses.

    Raises:
        ImportError: none is installed.
        ValueError: the store cannot be opened, or used later on; says why.
    """
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    if not found:
        raise ImportError(
            f"no memory is installed (entry points {GROUP!r}); install sparsight again, from this version on"
        )
    opened: Callable[[str, str, str], LiveMemory] = found[0].load()
    with _told(store):
        return _Told(store, opened(store, recording, map_id))


class _Told:
    """A memory whose errors are told as ours."""

    def __init__(self, store: str, memory: LiveMemory) -> None:
        self._store, self._memory = store, memory

    def see(self, record: Mapping[str, Any], part: int) -> int:
        with _told(self._store):
            return self._memory.see(record, part)

    def close(self) -> int:
        with _told(self._store):
            return self._memory.close()


@contextmanager
def _told(store: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # Of another package, whose errors are not known here.
        raise ValueError(f"{store}: {error}") from error
