"""How many memories pass a filter, without reading what they hold."""

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
    """Numbers of memories.

    Attributes:
        memories, sightings: how many, and observations that they stand for.
        things: how many different things they are of, as far as tracks tell.
        by_label, by_state: how many of each.
        first_ns, last_ns: of the observations; ``None`` where there is nothing.
    """

    memories: int
    sightings: int
    things: int
    by_label: dict[str, int]
    by_state: dict[str, int]
    first_ns: int | None
    last_ns: int | None


def tally_of(memories: Iterable[Memory]) -> Tally:
    """Of memories that were read."""
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
    """Of what passes a filter, merged memories by each of their visits: only these few are read."""
    database = store.database
    ids = database.ids(filter) if filter.between_ns is None else database.seen(filter)[0]
    columns = database.columns(ids.tolist())
    there = set(columns.ids.tolist())
    merged = [m for m in store.find_merged(replace(filter, between_ns=None)) if m.id in there]
    times = columns.time_ns.tolist()
    return Tally(
        memories=len(times),
        sightings=sum(columns.counts.tolist()),
        # What was seen once is taken for a thing of its own.
        things=len(times) - len(merged) + len(set(things_of(merged))),
        by_label=dict(Counter(columns.labels)),
        by_state=dict(Counter(columns.states)),
        first_ns=min([*times, *(each.first_sight_ns for each in merged)], default=None),
        last_ns=max([*times, *(each.last_sight_ns for each in merged)], default=None),
    )
