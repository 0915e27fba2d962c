"""How long something was in view, from what its memories know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory.questions.words import DAY_S, first_seen, last_seen
from memory.types import Memory

DAY_NS = int(DAY_S) * 1_000_000_000


class Visits(NamedTuple):
    """Stretches of time during which something was in view.

    Attributes:
        spans: (first, last) nanoseconds of each, in order, none touching another.
        days: distinct days, UTC, with a known observation.
    """

    spans: list[tuple[int, int]]
    days: int

    @property
    def total_s(self) -> float:
        """Seconds of all of them."""
        return sum(last - first for first, last in self.spans) / 1e9

    @property
    def longest_s(self) -> float:
        """Seconds of the longest."""
        return max((last - first for first, last in self.spans), default=0) / 1e9


def visits_of(memories: Sequence[Memory], gap_s: float) -> Visits:
    """Join observations that are at most ``gap_s`` apart.

    A memory that stands for many observations knows their number and the first and last of them. Where these
    are so many that they are at most ``gap_s`` apart on average, it was in view from the first to the last;
    otherwise the first, the last and the time of the memory are all that is known.
    """
    gap_ns = round(gap_s * 1e9)
    spans: list[tuple[int, int]] = []
    days: set[int] = set()
    for memory in memories:
        first, last = first_seen(memory), last_seen(memory)
        first, last = min(first, last), max(first, last)
        known = sorted({first, last, memory.time_ns})
        if memory.count > 1 and last - first <= gap_ns * (memory.count - 1):
            spans.append((first, last))
            days.update(range(first // DAY_NS, last // DAY_NS + 1))
            known = [time for time in known if not first <= time <= last]
        spans += [(time, time) for time in known]
        days.update(time // DAY_NS for time in known)
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first - joined[-1][1] <= gap_ns:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return Visits(joined, len(days))
