"""What a question is about."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.query import Filter, Query
from memory.questions.answers import How
from memory.questions.grammar import holds_function_word
from memory.store import MemoryStore
from memory.types import Memory
from memory.wording.meaning import Labels

#: What is asked for: a label or words, the id of a memory, or a vector.
What = str | int | ArrayLike
#: Words that a caption need not have for a question to mean it.
_SMALL = frozenset(
    ["a", "an", "the", "of", "on", "in", "at", "with", "and", "or", "to", "by", "my", "your", "its"]
)
#: Most similar memories that are asked for at first.
LATEST = 256


class Meant(NamedTuple):
    """What was asked for.

    Attributes:
        words: for sentences.
        how: it is found.
        filter: of its memories; for a vector, without the likeness.
        ids: of its memories and their similarities, where it is a vector or an id.
    """

    words: str
    how: How
    filter: Filter
    ids: dict[int, float] | None = None

    def similarity(self, memory: Memory) -> float | None:
        """Of one of its memories, where it is a vector."""
        if self.how != "similar" or self.ids is None or memory.id is None:
            return None
        return self.ids.get(memory.id)


class Meanings:
    """Finds what is asked for; see :class:`memory.questions.Questions`."""

    def __init__(self, store: MemoryStore, *, encoder: str, least_similarity: float) -> None:
        if not -1.0 <= least_similarity <= 1.0:
            raise ValueError(f"least_similarity must be from -1 to 1, got {least_similarity}")
        self._store = store
        self._encoder = encoder
        self._least_similarity = least_similarity
        self._known: tuple[int, Labels] | None = None
        self._names: tuple[int, tuple[str, ...]] | None = None

    def of(
        self,
        what: What,
        map_id: str | None,
        between_ns: tuple[int, int] | None = None,
        circle: tuple[float, float, float] | None = None,
    ) -> Meant:
        """Which memories are asked for."""
        filter = Filter(map_id=map_id, between_ns=between_ns, circle=circle)
        if isinstance(what, str):
            return self._named(what, filter)
        if is_id(what):
            (memory,) = self._store.get([int(what)])
            words = f"{memory.label or memory.kind} (memory {memory.id})"
            return Meant(words, "id", filter, {int(what): 1.0})
        return Meant("What looks like this", "similar", filter, self._alike(np.asarray(what), filter))

    def _named(self, what: str, filter: Filter) -> Meant:
        """A label, or words; where nothing has them, what differs by a slip or two."""

        exact = self._exact(what, filter)
        if exact is not None:
            return exact
        near = self._labels().nearest(what)
        if near is not None and self._there(filter, labels=(near,)):
            return Meant(f"{near} (read for {what!r})", "label", replace(filter, labels=(near,)))
        better = self._store.corrections(what)
        words = " ".join(better.get(word, word) for word in what.split())
        if better and self._there(filter, text=words):
            return Meant(f"{words} (read for {what!r})", "text", replace(filter, text=words))
        return Meant(what, "text", replace(filter, text=what))

    def knows(self, words: str, map_id: str | None = None) -> bool:
        """True if some memory has words as its label or, all of them, in its label and caption."""
        return self._exact(words, Filter(map_id=map_id)) is not None

    def _exact(self, what: str, filter: Filter) -> Meant | None:
        """A label, or words that all are there; ``None`` where only a slip would make them so."""
        if what.isascii() and self._there(filter, labels=(what,)):
            return Meant(what, "label", replace(filter, labels=(what,)))
        alike = self._labels().alike(what)
        if alike and self._there(filter, labels=alike):
            return Meant(alike[0], "label", replace(filter, labels=alike))
        for words in (what, " ".join(word for word in what.split() if word.lower() not in _SMALL)):
            if words and self._there(filter, text=words):
                return Meant(what, "text", replace(filter, text=words))
        return None

    def _there(self, filter: Filter, **parts: Any) -> bool:
        """True if a memory of the map of the filter has these parts."""
        wanted = Filter(map_id=filter.map_id, **parts)
        return len(self._store.find(wanted, limit=1, vectors=False)) > 0

    def label_of(self, words: str) -> str | None:
        """The label that words are but for case and ending, the most frequent one."""
        return next(iter(self._labels().alike(words)), None)

    def names(self) -> tuple[str, ...]:
        """Return the labels that hold function words of questions, as *stop sign* or *what-not shelf*."""
        generation = self._store.generation
        if self._names is None or self._names[0] != generation:
            labels = self._store.label_counts()
            self._names = (generation, tuple(label for label in labels if holds_function_word(label)))
        return self._names[1]

    def _labels(self) -> Labels:
        """Those of the store; made anew after an operation."""
        generation = self._store.generation
        if self._known is None or self._known[0] != generation:
            self._known = (generation, Labels(self._store.label_counts()))
        return self._known[1]

    def _alike(self, vector: NDArray, filter: Filter) -> dict[int, float]:
        """Ids of everything similar enough, asking for more until the last one is not.

        Of any time: a merged memory may have been seen at other times than its own.
        """
        k = LATEST
        while True:
            query = Query(
                embedding=vector,
                encoder=self._encoder,
                map_id=filter.map_id,
                k=k,
            )
            hits = self._store.query(query)
            found = {
                hit.memory.id: hit.score
                for hit in hits
                if hit.memory.id is not None and hit.score >= self._least_similarity
            }
            if len(found) < k:
                return found
            k *= 4

    def memories(self, meant: Meant, *, newest_first: bool, limit: int | None = None) -> list[Memory]:
        """What was asked for, in the order of time; without vectors.

        The oldest of a time are those that were seen first within it, merged ones by each of their visits.
        """
        if meant.ids is None and meant.filter.between_ns is not None and not newest_first:
            return self._store.find_seen(meant.filter, limit=limit, vectors=False)[0]
        if meant.ids is None:
            return self._store.find(meant.filter, newest_first=newest_first, limit=limit, vectors=False)
        memories = self._store.get(meant.ids)
        if meant.filter.circle is not None:
            x, y, radius = meant.filter.circle
            memories = [m for m in memories if m.position and math.dist(m.position[:2], (x, y)) <= radius]
        if meant.how == "similar":
            when = attrgetter("last_sight_ns" if newest_first else "first_sight_ns")
            memories.sort(key=lambda memory: (when(memory), memory.id or 0), reverse=newest_first)
        return memories[:limit]


def is_id(what: What) -> TypeGuard[int]:
    """Whether an id is asked for."""
    return isinstance(what, int | np.integer) and not isinstance(what, bool)
