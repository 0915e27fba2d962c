"""Counts of memories, without reading their contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from memory.merging.tracks import things_of
from memory.query import Filter
from memory.store import MemoryStore
from memory.types import Memory


class Tally(NamedTuple):
    """Counts of memories; the fields are those of :class:`memory.questions.HowMany`."""

    memories: int
    sightings: int
    things: int
    by_label: dict[str, int]
    by_state: dict[str, int]
    first_ns: int | None
    last_ns: int | None


def tally_of(memories: Iterable[Memory]) -> Tally:
    """Count given memories."""
    found = list(memories)
    return Tally(
        memories=len(found),
        sightings=sum(memory.count for memory in found),
        things=len(set(things_of(found))),
        by_label=dict(Counter(memory.label for memory in found)),
        by_state=dict(Counter(memory.state for memory in found)),
        first_ns=min((each.first_sight_ns for each in found), default=None),
        last_ns=max((each.last_sight_ns for each in found), default=None),
    )


def tally(store: MemoryStore, filter: Filter) -> Tally:
    """Count the memories that match a filter. Only merged ones are read, for their visits."""
    database = store.database
    ids = database.ids(filter) if filter.between_ns is None else database.ids_seen(filter)[0]
    columns = database.columns(ids.tolist())
    there = set(columns.ids.tolist())
    merged = [m for m in store.find_merged(replace(filter, between_ns=None)) if m.id in there]
    times = columns.time_ns.tolist()
    return Tally(
        memories=len(times),
        sightings=sum(columns.counts.tolist()),
        # A memory of one observation counts as one object.
        things=len(times) - len(merged) + len(set(things_of(merged))),
        by_label=dict(Counter(columns.labels)),
        by_state=dict(Counter(columns.states)),
        first_ns=min([*times, *(each.first_sight_ns for each in merged)], default=None),
        last_ns=max([*times, *(each.last_sight_ns for each in merged)], default=None),
    )
