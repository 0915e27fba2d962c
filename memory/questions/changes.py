"""Changes since a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from memory.query import Filter
from memory.questions.answers import Changed
from memory.store import MemoryStore
from memory.types import Memory, State

#: A difference since a time.
Change = Literal["new", "gone", "moved"]


def changed_since(store: MemoryStore, time_ns: int, place: Filter, after: int | None) -> Changed:
    """Return what is new, gone or moved; see :meth:`memory.questions.Questions.changed_since`."""
    recent = replace(place, between_ns=(time_ns, 2**63 - 1), states=("present", "unknown"))
    new = [m for m in store.find(recent, newest_first=False) if m.first_sight_ns >= time_ns]
    start = operation_before(store, time_ns) if after is None else after
    gone = changed_to(store, "gone", place, start)
    moved = changed_to(store, "moved", place, start)
    return Changed(time_ns, tuple(new), tuple(gone), tuple(moved))


def operation_before(store: MemoryStore, time_ns: int) -> int:
    """Return the number of the last operation before a time, by bisection of the log."""
    low, high = 0, store.generation
    while low < high:
        middle = (low + high + 1) // 2
        (entry,) = store.log(middle - 1, limit=1)
        if entry.time_ns < time_ns:
            low = middle
        else:
            high = middle - 1
    return low


def changed_to(store: MemoryStore, state: State, place: Filter, after: int) -> list[Memory]:
    """Return memories that got a state after an operation, the oldest first."""
    candidates = store.find(replace(place, states=(state,)), newest_first=False, vectors=False)
    if not candidates:
        return []
    ids = [memory.id for memory in candidates if memory.id is not None]
    was = store.states_at(after, ids)
    return [memory for memory in candidates if was.get(memory.id or 0) != state]


def only_of(changed: Changed, ids: set[int | None]) -> Changed:
    """Return the changes of these memories alone."""
    new, gone, moved = (
        tuple(memory for memory in found if memory.id in ids)
        for found in (changed.new, changed.gone, changed.moved)
    )
    return Changed(changed.since_ns, new, gone, moved)


def only_changes(changed: Changed, changes: Collection[Change] | None) -> Changed:
    """Return these kinds of changes alone; None for all."""
    if changes is None:
        return changed
    empty: tuple[Memory, ...] = ()
    return Changed(
        changed.since_ns,
        changed.new if "new" in changes else empty,
        changed.gone if "gone" in changes else empty,
        changed.moved if "moved" in changes else empty,
    )
