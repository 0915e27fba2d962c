"""A place during a time window: what is kept there, and what gives way."""

from __future__ import annotations

import heapq


class Window:
    """Of each thing, how many memories are protected and a ranking of the others.

    A memory is known by its number in the order of arrival.

    Attributes:
        seen: memories that were offered.
        protected: how many of each thing never leave; things without any are left out.
        rankings: by thing, the ordinary ones as a heap with the worst first: (importance, minus the number).
        ordinary: how many these are together.
    """

    __slots__ = ("ordinary", "protected", "rankings", "seen")

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.protected: dict[int, int] = {}
        self.rankings: dict[int, list[tuple[float, int]]] = {}
        self.ordinary = 0

    @property
    def things(self) -> int:
        """How many different things it has memories of."""
        return len(self.protected.keys() | self.rankings.keys())

    def protect(self, thing: int, count: int = 1) -> None:
        """Count protected memories of a thing."""
        self.protected[thing] = self.protected.get(thing, 0) + count
        if not self.protected[thing]:
            del self.protected[thing]

    def push(self, thing: int, importance: float, number: int) -> None:
        """Rank an ordinary memory."""
        heapq.heappush(self.rankings.setdefault(thing, []), (importance, -number))
        self.ordinary += 1

    def pop_worst(self) -> int:
        """Take out the least important of the things that have the most, of equals the later; its number."""

        def count(thing: int) -> int:
            return len(self.rankings[thing]) + self.protected.get(thing, 0)

        largest = max(map(count, self.rankings))
        (_, last), thing = min(
            (ranking[0], thing) for thing, ranking in self.rankings.items() if count(thing) == largest
        )
        self.remove(thing, -last)
        return -last

    def remove(self, thing: int, number: int) -> None:
        """Take out an ordinary memory."""
        ranking = self.rankings[thing]
        if ranking[0][1] == -number:
            heapq.heappop(ranking)
        else:
            ranking[:] = [entry for entry in ranking if entry[1] != -number]
            heapq.heapify(ranking)
        self.ordinary -= 1
        if not ranking:
            del self.rankings[thing]
