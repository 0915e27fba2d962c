"""Observations after an object left its place: the object came back, or it is another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.matching import Features, MergeOptions
from memory.merging.robots import BELIEVED, trust_of
from memory.types import AWAY, Memory, State


class Departure(NamedTuple):
    """Departure of an object from its place.

    Attributes:
        at_ns: time when that was noticed.
        state: ``"gone"`` or ``"moved"``.
    """

    at_ns: int
    state: State


class Departures:
    """Departures of some memories, and when all of them were last seen.

    Use :meth:`of`.

    Args:
        last_ns: (N,) int64 times of the last observations.
        left: departure by row, for rows that have left.
        trust: (N,) float64 from 0 to 1; a row below half of its object's highest trust has no say.
    """

    def __init__(
        self, last_ns: NDArray[np.int64], left: Mapping[int, Departure], trust: NDArray[np.float64]
    ) -> None:
        self._last_ns = last_ns
        self._left = left
        self._trust = trust

    @classmethod
    def of(
        cls, memories: Sequence[Memory], gone_ns: Mapping[int, int], trust: Mapping[str, float]
    ) -> Departures:
        """Collect the departures of memories; a known time never precedes the last observation."""
        last = [max(memory.time_ns, memory.last_sight_ns) for memory in memories]
        left = {
            row: Departure(max(gone_ns.get(memory.id or 0, last[row]), last[row]), memory.state)
            for row, memory in enumerate(memories)
            if memory.state in AWAY
        }
        trusted = np.array([trust_of(memory, trust) for memory in memories], dtype=np.float64)
        return cls(np.array(last, dtype=np.int64), left, trusted)

    def any(self, rows: NDArray[np.int64]) -> bool:
        """Return True if one of the rows has left."""
        return any(row in self._left for row in self._trusted_rows(rows))

    def of_all(self, rows: NDArray[np.int64]) -> Departure | None:
        """Return when all memories of an object had left; ``None`` if it was seen since, or never left."""
        trusted = self._trusted_rows(rows)
        found = [self._left[row] for row in trusted if row in self._left]
        latest = max(found, default=None, key=lambda left: left.at_ns)
        if latest is None or int(self._last_ns[trusted].max()) > latest.at_ns:
            return None
        return latest

    def split(
        self, rows: NDArray[np.int64], features: Features, options: MergeOptions
    ) -> list[NDArray[np.int64]]:
        """Split close and similar rows where an object left before another was seen.

        The earliest departure decides first. A later observation stays with the earlier ones only if its
        embedding is as similar to what left as ``options.least_similarity``: then the object came back.
        Without an embedding it is another object. Each part needs splitting again.
        """
        gone = [row for row in self._trusted_rows(rows) if row in self._left]
        for at_ns in sorted({self._left[row].at_ns for row in gone}):
            after = rows[self._last_ns[rows] > at_ns]
            leavers = features.embedding[[row for row in gone if self._left[row].at_ns == at_ns]]
            alike = (features.embedding[after] @ leavers.T).max(axis=1, initial=-1.0)
            known = features.embedding[after].any(axis=1) & bool(leavers.any())
            others = after[~(known & (alike >= options.least_similarity))]
            if len(others):
                return [np.setdiff1d(rows, others), others]
        return [rows]

    def _trusted_rows(self, rows: NDArray[np.int64]) -> list[int]:
        """Return the rows that are trusted enough to decide contradictions."""
        trust = self._trust[rows]
        found: list[int] = rows[trust >= BELIEVED * trust.max(initial=0.0)].tolist()
        return found
