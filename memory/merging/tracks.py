"""Tracks of memories; two tracks of one recording at one time are two objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory

#: Payload field: ``recording/number`` of each track -> its first and last nanosecond.
TRACKS = "tracks"
#: Most tracks per memory; the last seen are kept.
_MOST = 64
#: (recording, number, first nanosecond, last nanosecond).
Track = tuple[str, str, int, int]


def tracks_of(memory: Memory) -> tuple[Track, ...]:
    """Return the tracks of a memory; none if the payload field is missing or invalid."""
    field = memory.payload.get(TRACKS)
    if not isinstance(field, Mapping):
        return ()
    found = []
    for name, span in field.items():
        recording, slash, number = str(name).rpartition("/")
        if slash and isinstance(span, Sequence) and len(span) == 2 and all(type(at) is int for at in span):
            found.append((recording, number, int(span[0]), int(span[1])))
    return tuple(found)


def join_tracks(memories: Iterable[Memory]) -> dict[str, Any]:
    """Return the payload field of a merged memory; empty if none has tracks."""
    spans: dict[str, tuple[int, int]] = {}
    for recording, number, first, last in (track for memory in memories for track in tracks_of(memory)):
        name = f"{recording}/{number}"
        known = spans.get(name, (first, last))
        spans[name] = (min(first, known[0]), max(last, known[1]))
    latest = sorted(spans.items(), key=lambda entry: (entry[1][1], entry[0]))[-_MOST:]
    return {TRACKS: {name: list(span) for name, span in latest}} if spans else {}


def things_of(memories: Iterable[Memory]) -> list[int]:
    """Return a group number per memory: memories that share a track get the same one."""
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


def are_different(one: Sequence[Track], other: Sequence[Track]) -> bool:
    """Return True if two memories are different objects: two tracks of one recording at one time."""
    return any(
        recording == another and number != its and first < its_last and its_first < last
        for recording, number, first, last in one
        for another, its, its_first, its_last in other
    )


def different_pairs(
    tracks: Sequence[Sequence[Track]], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return (P,) bool, True if the pairs of rows are different objects by their tracks.

    Args:
        tracks: tracks of each row.
        first, second: (P,) int64 rows.
    """
    tracked = np.array([bool(some) for some in tracks], dtype=bool)
    found = np.zeros(len(first), dtype=bool)
    if tracked.any():
        for pair in np.flatnonzero(tracked[first] & tracked[second]).tolist():
            found[pair] = are_different(tracks[first[pair]], tracks[second[pair]])
    return found
