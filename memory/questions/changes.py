"""Changes since a time, and memories of a time range."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from memory.query import Filter
from memory.questions.answers import Answer, Changed, between_words
from memory.questions.visits import first_within
from memory.store import MemoryStore
from memory.types import AWAY, Memory, State
from memory.wording.words import NAMED, STATE_WORDS, listed, moment, name, plural, point

#: Maximum number of first observations that an answer names.
MOST_NEW = 100
#: A difference since a time.
Change = Literal["new", "gone", "moved"]


@dataclass(frozen=True)
class SeenInTime(Answer):
    """Base of the answers with the memories of a time range.

    Attributes:
        between_ns: first and last nanosecond.
        total: number of memories.
        memories: in the order in which they were first seen in this time, up to the limit.
        what: label or words of the query; empty for all.
        place: place in words; empty for everywhere.
    """

    question: str = field(default="", init=False)
    between_ns: tuple[int, int]
    total: int
    memories: tuple[Memory, ...]
    what: str = ""
    place: str = ""
    #: Maximum number of memories that the sentence names.
    named: ClassVar[int] = NAMED

    def __str__(self) -> str:
        of = f" of {self.what}" if self.what else ""
        if not self.total:
            return f"No memories{of} {self._when()}."
        parts = listed(list(map(self._part, self.memories)), total=self.total, most=self.named)
        return f"{plural(self.total, 'memory', 'memories')}{of} {self._when()}: {parts}."

    def _when(self) -> str:
        """Return the place and the time range in words."""
        place = f"in {self.place} " if self.place else ""
        return f"{place}{between_words(self.between_ns)}"

    def _part(self, memory: Memory) -> str:
        """Return a memory with the time of its first observation in this range, and its place."""
        first = moment(first_within(memory, self.between_ns))
        return f"{name(memory)} on {first} at {point(memory.position)}"


@dataclass(frozen=True)
class Happened(SeenInTime):
    """Memories of a time range."""

    question: Literal["between"] = field(default="between", init=False)


@dataclass(frozen=True)
class FirstSeen(SeenInTime):
    """Memories that were seen for the first time within a time range, in any state, the oldest first."""

    question: Literal["new_between"] = field(default="new_between", init=False)
    named: ClassVar[int] = MOST_NEW

    def _when(self) -> str:
        return f"first seen {super()._when()}"

    def _part(self, memory: Memory) -> str:
        """Return a memory with its first observation and whether it has left since then."""
        place = "a new place, " if memory.kind == "place" else ""
        left = f" ({STATE_WORDS[memory.state]} now)" if memory.state in AWAY else ""
        first = moment(memory.first_sight_ns)
        return f"{name(memory)}, {place}on {first} at {point(memory.position)}{left}"


def first_seen_in(store: MemoryStore, wanted: Filter, limit: int, what: str, place: str) -> FirstSeen:
    """Find memories whose first observation lies in a time range, whatever became of them.

    Args:
        store: open store.
        wanted: conditions with ``between_ns``.
        limit: maximum number of memories; the total counts all.
        what, place: both in words, for the sentence.
    """
    if wanted.between_ns is None:
        raise ValueError("first_seen_in needs a filter with between_ns")
    first, last = wanted.between_ns
    # A merged memory without recorded visits is found by its own time only.
    merged = store.find_merged(store.database.resolve(replace(wanted, between_ns=None)))
    found = {memory.id: memory for memory in (*store.find_seen(wanted, vectors=False)[0], *merged)}
    new = [memory for memory in found.values() if first <= memory.first_sight_ns <= last]
    new.sort(key=lambda memory: (memory.kind == "place", memory.first_sight_ns, memory.id or 0))
    return FirstSeen((first, last), len(new), tuple(new[:limit]), what, place)


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


def with_certain(changed: Changed) -> Changed:
    """Return changes with only those objects as gone or moved that were seen after the start time."""
    away = (*changed.gone, *changed.moved)
    unclear = tuple(memory for memory in away if memory.last_sight_ns < changed.since_ns)
    certain = only_of(changed, {memory.id for memory in (*changed.new, *away) if memory not in unclear})
    return replace(certain, unclear=unclear)


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
