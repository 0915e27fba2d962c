"""Memories under test on a labelled sequence: ours, and two simple ones."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from drive.comparison import fill_store, size_of
from drive.frames import DAY_NS, START_NS
from drive.labelled.memory import box_memory, remember_sequence
from drive.labelled.questions import AnswerSource, StoreAnswers
from drive.labelled.scans import PASSES, Observation
from drive.questions import StoreUnderTest
from drive.robot import CONFIG
from memory import Memory, MemoryStore
from memory.merging.tracks import things_of, tracks_of
from memory.query import Filter

#: Vector length of the stores, which hold no vectors here.
_DIM = 8


class StoredObject(NamedTuple):
    """An object in a memory under test.

    Attributes:
        thing: equal for all memories of the same object.
        label: of the object.
        place: (x, y) metres; None if it moved.
    """

    thing: Hashable
    label: str
    place: tuple[float, float] | None


class MemoryUnderTest(Protocol):
    """A memory that gets all observations; questions go to ``asked``."""

    asked: AnswerSource

    def remember(self, seen: Sequence[Observation]) -> None:
        """Take in all observations in time order, and consolidate after each pass."""

    def held(self) -> list[StoredObject]:
        """Return all remembered objects."""

    def owners(self) -> list[Hashable | None]:
        """Return the object of each observed box, in order; None if it was not remembered."""

    @property
    def bytes(self) -> int | None:
        """Size of all files; None if nothing is written."""

    def close(self) -> None:
        """Close the memory."""


class _StoredMemory:
    """A memory in a store of its own."""

    _store: MemoryStore

    @property
    def bytes(self) -> int:
        """See :class:`MemoryUnderTest`."""
        return size_of(self._store.folder)

    def close(self) -> None:
        """See :class:`MemoryUnderTest`."""
        self._store.close()

    def _memories(self) -> list[Memory]:
        return self._store.find(Filter(), vectors=False)


class TrackMemory(_StoredMemory):
    """Our memory: one memory per track, consolidated after each pass.

    Args:
        folder: of a new store.
    """

    def __init__(self, folder: Path) -> None:
        self._store = MemoryStore.open(folder, dim=_DIM, config=CONFIG)
        self._sights: list[tuple[str, int]] = []

    def remember(self, seen: Sequence[Observation]) -> None:
        """See :class:`MemoryUnderTest`."""
        driven = remember_sequence(self._store, seen)
        self.asked: AnswerSource = StoreAnswers(StoreUnderTest(self._store, driven.since))
        self._sights = [
            (f"{PASSES[moment.day]}/{int(key)}", moment.time_ns)
            for moment, sights, _, _ in seen
            for key in sights.track_id
        ]

    def held(self) -> list[StoredObject]:
        """See :class:`MemoryUnderTest`."""
        memories = self._memories()
        return [
            StoredObject(thing, memory.label, memory.position[:2] if memory.kind == "object" else None)
            for memory, thing in zip(memories, things_of(memories), strict=True)
        ]

    def owners(self) -> list[Hashable | None]:
        """See :class:`MemoryUnderTest`; derived from the time spans of the tracks in each memory."""
        memories = self._memories()
        spans: dict[str, list[tuple[int, int, int]]] = {}
        for memory, thing in zip(memories, things_of(memories), strict=True):
            for recording, number, first, last in tracks_of(memory):
                # Parts of a track after a jump belong to the same track.
                whole = number.partition(".")[0]
                spans.setdefault(f"{recording}/{whole}", []).append((first, last, thing))
        return [
            next((thing for first, last, thing in spans.get(name, ()) if first <= time_ns <= last), None)
            for name, time_ns in self._sights
        ]

    def __len__(self) -> int:
        return len(self._store)


class BoxMemory(_StoredMemory):
    """A store with one memory per box, optionally of the newest boxes only.

    Args:
        folder: of a new store.
        most: number of newest boxes to keep; None: all.
    """

    def __init__(self, folder: Path, most: int | None = None) -> None:
        self._folder, self._most = folder, most
        self._left_out = 0

    def remember(self, seen: Sequence[Observation]) -> None:
        """See :class:`MemoryUnderTest`."""
        boxes = [box_memory(one.sights, row) for one in seen for row in range(len(one.sights.labels))]
        if self._most is not None:
            self._left_out = max(len(boxes) - self._most, 0)
        self._store, since = fill_store(self._folder, boxes[self._left_out :], START_NS + DAY_NS, _DIM)
        self.asked: AnswerSource = StoreAnswers(StoreUnderTest(self._store, since))

    def held(self) -> list[StoredObject]:
        """See :class:`MemoryUnderTest`."""
        return [StoredObject(memory.id, memory.label, memory.position[:2]) for memory in self._memories()]

    def owners(self) -> list[Hashable | None]:
        """See :class:`MemoryUnderTest`; ids count up in the order of adding."""
        ids = sorted(memory.id or 0 for memory in self._memories())
        return [*[None] * self._left_out, *ids]
