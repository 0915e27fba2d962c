"""Past cases with a known outcome, from the history of a store: no labels are needed.

An object that was seen on two visits was still there at the second. An object that was marked as gone or
moved, because its place was seen free or by a person, was not. Two observations of one place show how similar
place vectors of one place are, and those of different places how similar others are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.locate.places import vector_of
from memory.query import Filter
from memory.questions.guarantee.persistence import Outcome
from memory.search.reader import StoreReader
from memory.types import AWAY, Memory

#: Least pause between two observations that makes them cases, in seconds.
LEAST_GAP_S = 60.0
_DAY_NS = 24 * 3600 * 10**9
#: Largest difference of headings of one place.
_SAME_HEADING_RAD = 0.5
#: Most places that are compared with each other.
_MOST_PLACES = 800


def presence_outcomes(store: StoreReader) -> list[Outcome]:
    """Return what the store saw again and what it found gone, by object."""
    marked = dict(_marks(store))
    found: list[Outcome] = []
    for memory in store.find(Filter(kinds=("object",)), vectors=False):
        assert memory.id is not None
        found += _seen_again(memory)
        gone_ns = marked.get(memory.id)
        if memory.state in AWAY and gone_ns is not None and gone_ns > memory.last_sight_ns:
            found.append(_outcome(memory, memory.last_sight_ns, gone_ns, there=False))
    return found


def _seen_again(memory: Memory) -> Iterator[Outcome]:
    """Yield a case for each pause between two visits."""
    for before, after in zip(memory.visits, memory.visits[1:], strict=False):
        if (after.first_ns - before.last_ns) >= LEAST_GAP_S * 1e9:
            yield _outcome(memory, before.last_ns, after.first_ns, there=True)


def _outcome(memory: Memory, last_ns: int, then_ns: int, *, there: bool) -> Outcome:
    known_s = (last_ns - memory.first_sight_ns) / 1e9
    day = then_ns // _DAY_NS
    return Outcome(memory.id or 0, day, memory.label, known_s, (then_ns - last_ns) / 1e9, there)


def _marks(store: StoreReader) -> Iterator[tuple[int, int]]:
    """Yield ids and times by the robot's clock at which objects were marked as gone or moved."""
    for entry in store.log():
        detail: Mapping[str, Any] = entry.detail
        if entry.operation == "mark" and detail.get("state") in AWAY and "at_ns" in detail:
            for id in detail.get("was") or ():
                yield int(id), int(detail["at_ns"])


def last_free_ns(store: StoreReader, memory: Memory) -> int | None:
    """Return when the place of an object was seen free, by its marks; None if it was not."""
    if memory.state not in AWAY:
        return None
    return max((time_ns for id, time_ns in _marks(store) if id == memory.id), default=None)


def place_similarities(
    store: StoreReader, encoder: str, same_m: float, apart_m: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the similarities of places that are the same, and the largest of each to different places.

    A place is compared with those of its map within ``same_m`` and about the same heading: of these, the most
    similar one counts. Likewise, of those farther than ``apart_m`` the most similar one counts, because a
    question compares a scan with all places.

    Args:
        store: with places.
        encoder: encoder of the vectors.
        same_m, apart_m: distances in metres.
    """
    same: list[float] = []
    apart: list[float] = []
    for map_id in store.maps():
        places = store.find(Filter(kinds=("place",), map_id=map_id), limit=_MOST_PLACES)
        placed = [each for each in places if each.position is not None]
        kept = [each for each in placed if vector_of(each, encoder) is not None]
        if len(kept) < 2:
            continue
        vectors = np.array([vector_of(each, encoder) for each in kept], np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosine = vectors @ vectors.T
        points = np.array([each.place[:2] for each in kept])
        away = np.linalg.norm(points[:, None] - points[None], axis=2)
        yaw = np.array([each.yaw for each in kept])
        turned = np.abs(np.remainder(yaw[:, None] - yaw[None] + math.pi, math.tau) - math.pi)
        np.fill_diagonal(away, np.nan)
        for near, scores in (
            ((away <= same_m) & (turned <= _SAME_HEADING_RAD), same),
            (away > apart_m, apart),
        ):
            rows = near.any(axis=1)
            scores += np.where(near, cosine, -np.inf).max(axis=1)[rows].tolist()
    return np.array(same), np.array(apart)
