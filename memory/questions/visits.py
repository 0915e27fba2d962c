"""How long something was in view, from what its memories know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory.merging.visits import join_visits, known_visits
from memory.types import Memory, Visit
from memory.wording.words import DAY_S

DAY_NS = int(DAY_S) * 1_000_000_000


class Visits(NamedTuple):
    """Stretches of time during which something was in view.

    Attributes:
        spans: (first, last) nanoseconds of each, in order, none touching another.
        days: distinct days, UTC, with a known observation.
        sightings: observations, as far as they are known to be of this time.
    """

    spans: list[tuple[int, int]]
    days: int
    sightings: int

    @property
    def total_s(self) -> float:
        """Seconds of all of them."""
        return sum(last - first for first, last in self.spans) / 1e9

    @property
    def longest_s(self) -> float:
        """Seconds of the longest."""
        return max((last - first for first, last in self.spans), default=0) / 1e9


def visits_of(memories: Sequence[Memory], gap_s: float, between_ns: tuple[int, int] | None = None) -> Visits:
    """Join sights that are at most ``gap_s`` apart.

    A merged memory keeps its visits, which are exact where ``gap_s`` is at least
    :data:`memory.merging.visits.VISIT_GAP_S`: shorter pauses were joined when it was merged, and so were the
    shortest where there were more than :data:`memory.types.MOST_VISITS`. What one without visits knows is
    told in :func:`memory.merging.visits.known_visits`.

    Args:
        memories: of one thing.
        gap_s: seconds.
        between_ns: only this time, both ends included. What reaches beyond is cut off there, and counts in
            proportion.
    """
    gap_ns = round(gap_s * 1e9)
    known = [visit for memory in memories for visit in known_visits(memory, gap_ns)]
    if between_ns is not None:
        known = [part for visit in known if (part := cut(visit, between_ns)) is not None]
    joined = join_visits(known, gap_ns=gap_ns, most=None)
    # Days of what is known, not of the pauses between.
    days = {day for visit in known for day in range(visit.first_ns // DAY_NS, visit.last_ns // DAY_NS + 1)}
    sightings = sum(visit.sights for visit in known)
    return Visits([(visit.first_ns, visit.last_ns) for visit in joined], len(days), sightings)


def cut(visit: Visit, between_ns: tuple[int, int]) -> Visit | None:
    """What of a visit is within a time; ``None`` for nothing."""
    first, last = max(visit.first_ns, between_ns[0]), min(visit.last_ns, between_ns[1])
    if first > last:
        return None
    whole = visit.last_ns - visit.first_ns
    share = (last - first) / whole if whole else 1.0
    return Visit(first, last, max(1, round(share * visit.sights)))


def first_within(memory: Memory, between_ns: tuple[int, int]) -> int:
    """When a memory was first seen within a time; its own time where that is not known."""
    parts = (cut(visit, between_ns) for visit in known_visits(memory))
    return next((part.first_ns for part in parts if part is not None), memory.time_ns)
