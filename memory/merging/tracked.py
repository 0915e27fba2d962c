"""By which tracks memories were seen: two of one recording at one time are two things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory

#: Field of a payload: ``recording/number`` of each track -> its first and its last nanosecond.
TRACKS = "tracks"
#: Tracks that a memory names at most; of more, those that were seen last.
_MOST = 64
#: (recording, number, first nanosecond, last nanosecond).
Track = tuple[str, str, int, int]


def tracks_of(memory: Memory) -> tuple[Track, ...]:
    """Of a memory; none where its payload says none, or something else by that name."""
    said = memory.payload.get(TRACKS)
    if not isinstance(said, Mapping):
        return ()
    found = []
    for name, span in said.items():
        recording, slash, number = str(name).rpartition("/")
        if slash and isinstance(span, Sequence) and len(span) == 2 and all(type(at) is int for at in span):
            found.append((recording, number, int(span[0]), int(span[1])))
    return tuple(found)


def joined_tracks(memories: Iterable[Memory]) -> dict[str, Any]:
    """The field of a memory that stands for several; nothing where none was tracked."""
    spans: dict[str, tuple[int, int]] = {}
    for recording, number, first, last in (track for memory in memories for track in tracks_of(memory)):
        name = f"{recording}/{number}"
        known = spans.get(name, (first, last))
        spans[name] = (min(first, known[0]), max(last, known[1]))
    latest = sorted(spans.items(), key=lambda entry: (entry[1][1], entry[0]))[-_MOST:]
    return {TRACKS: {name: list(span) for name, span in latest}} if spans else {}


def things_of(memories: Iterable[Memory]) -> list[int]:
    """The number of the thing that each is of: those that share a track are of one, those without alone."""
    groups: dict[str, int] = {}
    parent: list[int] = []

    def top(group: int) -> int:
        while parent[group] != group:
            group = parent[group]
        return group

    for memory in memories:
        own = len(parent)
        parent.append(own)
        for recording, number, _, _ in tracks_of(memory):
            parent[top(groups.setdefault(f"{recording}/{number}", own))] = own
    return [top(group) for group in range(len(parent))]


def apart(one: Sequence[Track], other: Sequence[Track]) -> bool:
    """Whether they are two things: two tracks of one recording, both seen at one time."""
    return any(
        recording == another and number != its and first < its_last and its_first < last
        for recording, number, first, last in one
        for another, its, its_first, its_last in other
    )


def all_apart(
    tracks: Sequence[Sequence[Track]], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(P,) bool: whether the pairs of rows are two things by their tracks.

    Args:
        tracks: of each row.
        first, second: (P,) int64 rows.
    """
    tracked = np.array([bool(some) for some in tracks], dtype=bool)
    found = np.zeros(len(first), dtype=bool)
    if tracked.any():
        for pair in np.flatnonzero(tracked[first] & tracked[second]).tolist():
            found[pair] = apart(tracks[first[pair]], tracks[second[pair]])
    return found
