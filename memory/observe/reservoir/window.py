"""A place in a time window: its kept memories, and which is dropped next."""

from __future__ import annotations

import heapq


class Window:
    """Kept memories of a place in a time window, by object.

    A memory is known by its arrival number.

    Attributes:
        seen: number of offered memories.
        protected: number of memories of each object that are never dropped.
        rankings: ordinary memories of each object, as a heap with the worst first: (importance, minus the
            number).
        ordinary: number of ordinary memories.
    """

    __slots__ = ("ordinary", "protected", "rankings", "seen")

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.protected: dict[int, int] = {}
        self.rankings: dict[int, list[tuple[float, int]]] = {}
        self.ordinary = 0

    @property
    def things(self) -> int:
        """Number of distinct objects."""
        return len(self.protected.keys() | self.rankings.keys())

    def protect(self, thing: int, count: int = 1) -> None:
        """Count protected memories of a thing."""
        self.protected[thing] = self.protected.get(thing, 0) + count
        if not self.protected[thing]:
            del self.protected[thing]

    def push(self, thing: int, importance: float, number: int) -> None:
        """Add an ordinary memory."""
        heapq.heappush(self.rankings.setdefault(thing, []), (importance, -number))
        self.ordinary += 1

    def pop_worst(self) -> int:
        """Remove the least important memory of the objects with the most; return its number."""

        def count(thing: int) -> int:
            return len(self.rankings[thing]) + self.protected.get(thing, 0)

        largest = max(map(count, self.rankings))
        (_, last), thing = min(
            (ranking[0], thing) for thing, ranking in self.rankings.items() if count(thing) == largest
        )
        self.remove(thing, -last)
        return -last

    def remove(self, thing: int, number: int) -> None:
        """Remove an ordinary memory."""
        ranking = self.rankings[thing]
        if ranking[0][1] == -number:
            heapq.heappop(ranking)
        else:
            ranking[:] = [entry for entry in ranking if entry[1] != -number]
            heapq.heapify(ranking)
        self.ordinary -= 1
        if not ranking:
            del self.rankings[thing]
