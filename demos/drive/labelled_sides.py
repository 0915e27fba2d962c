"""Memories that are given what is seen of a labelled sequence, and asked: ours and two simple ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from drive.asking import Memories
from drive.comparing import added, size_of
from drive.frames import DAY_NS, START_NS
from drive.labelled import box_memory, remember_sequence
from drive.labelled_questions import Asked, OfStore
from drive.labelled_seen import PASSES, Seen
from drive.remembering import CONFIG
from memory import Memory, MemoryStore
from memory.merging.tracks import things_of, tracks_of
from memory.query import Filter

#: Nothing here has vectors; a store wants a length.
_DIM = 8


class Held(NamedTuple):
    """A thing that is remembered.

    Attributes:
        thing: the same for all memories that are said to be of it.
        label: of it.
        place: (x, y) metres; ``None`` of one that moved.
    """

    thing: Hashable
    label: str
    place: tuple[float, float] | None


class Side(Protocol):
    """A memory that was given what is seen; it is asked by ``asked``."""

    asked: Asked

    def remember(self, seen: Sequence[Seen]) -> None:
        """Everything, in the order of time; a pass that ends is tidied up."""

    def held(self) -> list[Held]:
        """All that it remembers."""

    def owners(self) -> list[Hashable | None]:
        """The thing that each sight went into, in the order in which they came; ``None``: not remembered."""

    @property
    def bytes(self) -> int | None:
        """Of all files; ``None`` of what is never written."""

    def close(self) -> None:
        """Done with it."""


class Ours:
    """Tracks, consolidated after each pass.

    Args:
        folder: new.
    """

    def __init__(self, folder: Path) -> None:
        self._store = MemoryStore.open(folder, dim=_DIM, config=CONFIG)
        self._sights: list[tuple[str, int]] = []

    def remember(self, seen: Sequence[Seen]) -> None:
        """See :class:`Side`."""
        driven = remember_sequence(self._store, seen)
        self.asked: Asked = OfStore(Memories(self._store, driven.since))
        self._sights = [
            (f"{PASSES[moment.day]}/{int(key)}", moment.time_ns)
            for moment, sights, _, _ in seen
            for key in sights.track_id
        ]

    def held(self) -> list[Held]:
        """See :class:`Side`."""
        memories = self._memories()
        return [
            Held(thing, memory.label, memory.position[:2] if memory.kind == "object" else None)
            for memory, thing in zip(memories, things_of(memories), strict=True)
        ]

    def owners(self) -> list[Hashable | None]:
        """See :class:`Side`; by the spans of the tracks that memories name."""
        memories = self._memories()
        spans: dict[str, list[tuple[int, int, int]]] = {}
        for memory, thing in zip(memories, things_of(memories), strict=True):
            for recording, number, first, last in tracks_of(memory):
                # What lies behind a jump is of the same track.
                whole = number.partition(".")[0]
                spans.setdefault(f"{recording}/{whole}", []).append((first, last, thing))
        return [
            next((thing for first, last, thing in spans.get(name, ()) if first <= time_ns <= last), None)
            for name, time_ns in self._sights
        ]

    @property
    def bytes(self) -> int:
        """See :class:`Side`."""
        return size_of(self._store.folder)

    def close(self) -> None:
        """See :class:`Side`."""
        self._store.close()

    def __len__(self) -> int:
        return len(self._store)

    def _memories(self) -> list[Memory]:
        return self._store.find(Filter(), vectors=False)


class EveryBox:
    """A store that adds every box, or the newest only.

    Args:
        folder: new.
        most: so many of the newest are kept; ``None``: all.
    """

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self._folder, self._most = folder, most
        self._left_out = 0

    def remember(self, seen: Sequence[Seen]) -> None:
        """See :class:`Side`."""
        boxes = [box_memory(one.sights, row) for one in seen for row in range(len(one.sights.labels))]
        if self._most is not None:
            self._left_out = max(len(boxes) - self._most, 0)
        self._store, since = added(self._folder, boxes[self._left_out :], START_NS + DAY_NS, _DIM)
        self.asked: Asked = OfStore(Memories(self._store, since))

    def held(self) -> list[Held]:
        """See :class:`Side`."""
        return [
            Held(memory.id, memory.label, memory.position[:2])
            for memory in self._store.find(Filter(), vectors=False)
        ]

    def owners(self) -> list[Hashable | None]:
        """See :class:`Side`; ids are given in the order of adding."""
        ids = sorted(memory.id or 0 for memory in self._store.find(Filter(), vectors=False))
        return [*[None] * self._left_out, *ids]

    @property
    def bytes(self) -> int:
        """See :class:`Side`."""
        return size_of(self._store.folder)

    def close(self) -> None:
        """See :class:`Side`."""
        self._store.close()
