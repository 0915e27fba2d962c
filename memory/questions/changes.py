"""When what is remembered of the world changed."""

from __future__ import annotations

from dataclasses import replace

from memory.query import Filter
from memory.store import MemoryStore
from memory.types import Memory, State


def operation_before(store: MemoryStore, time_ns: int) -> int:
    """Number of the last operation before a time, by bisection: the log is in the order of its clock."""
    low, high = 0, store.generation
    while low < high:
        middle = (low + high + 1) // 2
        (entry,) = store.log(middle - 1, limit=1)
        if entry.time_ns < time_ns:
            low = middle
        else:
            high = middle - 1
    return low


def became(store: MemoryStore, state: State, place: Filter, after: int) -> list[Memory]:
    """What has a state that it did not have before an operation, the oldest first."""
    candidates = store.find(replace(place, states=(state,)), newest_first=False, vectors=False)
    if not candidates:
        return []
    ids = [memory.id for memory in candidates if memory.id is not None]
    was = store.states_at(after, ids)
    return [memory for memory in candidates if was.get(memory.id or 0) != state]
