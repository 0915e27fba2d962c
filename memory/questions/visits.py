"""Visits of an object, computed from its memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory.merging.visits import join_visits, known_visits
from memory.types import Memory, Visit
from memory.wording.words import DAY_S

DAY_NS = int(DAY_S) * 1_000_000_000


class Visits(NamedTuple):
    """Visits of an object.

    Attributes:
        spans: disjoint (first, last) nanoseconds of each visit, in order.
        days: first nanoseconds of the days (UTC) with a known observation, in order.
        sightings: number of observations.
    """

    spans: list[tuple[int, int]]
    days: tuple[int, ...]
    sightings: int

    @property
    def total_s(self) -> float:
        """Duration of all visits in seconds."""
        return sum(last - first for first, last in self.spans) / 1e9

    @property
    def longest_s(self) -> float:
        """Duration of the longest visit in seconds."""
        return max((last - first for first, last in self.spans), default=0) / 1e9


def visits_of(memories: Sequence[Memory], gap_s: float, between_ns: tuple[int, int] | None = None) -> Visits:
    """Join observations that are at most ``gap_s`` seconds apart.

    The visits of merged memories are exact if ``gap_s`` is at least
    :data:`memory.merging.visits.VISIT_GAP_S` and there were at most :data:`memory.types.MOST_VISITS`. Visits
    outside ``between_ns`` are cut; their observations count in proportion.
    """
    gap_ns = round(gap_s * 1e9)
    known = [visit for memory in memories for visit in known_visits(memory, gap_ns)]
    if between_ns is not None:
        known = [part for visit in known if (part := cut(visit, between_ns)) is not None]
    joined = join_visits(known, gap_ns=gap_ns, most=None)
    # Count days of known visits, not of the pauses that were joined.
    days = {
        day * DAY_NS
        for visit in known
        for day in range(visit.first_ns // DAY_NS, visit.last_ns // DAY_NS + 1)
    }
    sightings = sum(visit.sights for visit in known)
    return Visits([(visit.first_ns, visit.last_ns) for visit in joined], tuple(sorted(days)), sightings)


def cut(visit: Visit, between_ns: tuple[int, int]) -> Visit | None:
    """Return the part of a visit within a time range; ``None`` if there is none."""
    first, last = max(visit.first_ns, between_ns[0]), min(visit.last_ns, between_ns[1])
    if first > last:
        return None
    whole = visit.last_ns - visit.first_ns
    share = (last - first) / whole if whole else 1.0
    return Visit(first, last, max(1, round(share * visit.sights)))


def first_within(memory: Memory, between_ns: tuple[int, int]) -> int:
    """Return when a memory was first seen within a time range, or ``time_ns`` if unknown."""
    parts = (cut(visit, between_ns) for visit in known_visits(memory))
    return next((part.first_ns for part in parts if part is not None), memory.time_ns)
