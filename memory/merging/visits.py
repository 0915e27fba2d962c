"""Visits: the times when an object was seen, over all memories of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from memory.types import MOST_VISITS, Memory, Visit, saturated

#: Observations at most this far apart are one visit of a merged memory; shorter pauses are lost.
VISIT_GAP_S = 60.0
VISIT_GAP_NS = round(VISIT_GAP_S * 1e9)


def known_visits(memory: Memory, gap_ns: int = VISIT_GAP_NS) -> list[Visit]:
    """Return the known visits of a memory, rising.

    They are its visits, and its time, first and last observation if these lie outside. A memory of many
    observations without visits (written by an old version) counts as in view from the first to the last one,
    if these are at most ``gap_ns`` apart on average. Otherwise only the first, the last and its time are
    known, with the rest of the count at its time.

    Args:
        gap_ns: nanoseconds, for memories without visits.
    """
    time = int(memory.time_ns)
    if memory.first_seen_ns is None and memory.last_seen_ns is None and not memory.visits:
        return [Visit(time, time, memory.count)]
    ends = [time if end is None else int(end) for end in (memory.first_seen_ns, memory.last_seen_ns)]
    first, last = min(ends), max(ends)
    found = list(memory.visits)
    if not found and memory.count > 1 and last - first <= gap_ns * (memory.count - 1):
        found = [Visit(first, last, memory.count)]
    alone = [moment for moment in dict.fromkeys((first, last, time)) if not _within(moment, found)]
    left = memory.count - sum(visit.sights for visit in found)
    for place, moment in enumerate(alone):
        rest = left - place if place == len(alone) - 1 else 1
        found.append(Visit(moment, moment, max(rest, 1)))
    return sorted(found)


def join_visits(
    visits: Iterable[Visit], *, gap_ns: int = VISIT_GAP_NS, most: int | None = MOST_VISITS
) -> tuple[Visit, ...]:
    """Join visits that overlap or are at most ``gap_ns`` apart, and add their counts.

    The order and the number of rounds do not matter: observations belong together unless a longer pause lies
    between them (single linkage).

    Args:
        visits: in any order.
        gap_ns: nanoseconds.
        most: most visits; beyond, those with the shortest pauses between them are joined too, the earlier of
            equal pauses first. ``None``: no limit.
    """
    found: list[Visit] = []
    for visit in sorted(visits):
        if found and visit.first_ns - found[-1].last_ns <= gap_ns:
            found[-1] = _join(found[-1], visit)
        else:
            found.append(Visit(*visit))
    if most is None or len(found) <= most:
        return tuple(found)
    pauses = [after.first_ns - before.last_ns for before, after in pairwise(found)]
    short = set(sorted(range(len(pauses)), key=pauses.__getitem__)[: len(found) - most])
    kept = found[:1]
    for place, visit in enumerate(found[1:]):
        if place in short:
            kept[-1] = _join(kept[-1], visit)
        else:
            kept.append(visit)
    return tuple(kept)


def without_sights(visits: Iterable[Visit], taken: Iterable[Visit]) -> tuple[Visit, ...]:
    """Return visits less some observations; a visit without observations goes, others keep their span.

    Args:
        visits: rising and separate.
        taken: observations within one of the visits; others are ignored.
    """
    found = list(visits)
    for gone in taken:
        for place, visit in enumerate(found):
            if visit.first_ns <= gone.first_ns and gone.last_ns <= visit.last_ns:
                left = visit.sights - gone.sights
                found[place : place + 1] = [visit._replace(sights=left)] if left > 0 else []
                break
    return tuple(found)


def _join(one: Visit, other: Visit) -> Visit:
    sights = saturated(one.sights + other.sights)
    return Visit(one.first_ns, max(one.last_ns, other.last_ns), sights)


def _within(time_ns: int, visits: Iterable[Visit]) -> bool:
    return any(visit.first_ns <= time_ns <= visit.last_ns for visit in visits)
