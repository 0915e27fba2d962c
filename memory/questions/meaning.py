"""Search for the memories that a question is about."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.merging.visits import known_visits
from memory.persistence.filters import in_region
from memory.query import Filter, Query
from memory.questions.answers import How
from memory.questions.places import names_place, room_meant
from memory.questions.reading.grammar import holds_function_word, subject_of
from memory.questions.reading.lexicon import WHOLE_PLACES
from memory.questions.reading.vocabulary import NamedObject
from memory.questions.visits import cut, visits_of
from memory.store import MemoryStore
from memory.terms import fold
from memory.types import AWAY, Memory, positions_of
from memory.wording.meaning import ROOMS, Labels, is_word
from memory.wording.stems import stems
from memory.wording.words import moment

#: A label or words, the id of a memory, or a vector.
What = str | int | ArrayLike
#: Words of a question that a caption need not contain.
_SMALL = frozenset(
    ["a", "an", "the", "of", "on", "in", "at", "with", "and", "or", "to", "by", "my", "your", "its"]
)
#: Number of similar memories in the first search.
LATEST = 256
#: Maximum memories whose captions are compared with the words of an object.
_MOST_DESCRIBED = 64
#: Memories and span of a store whose days have numbers.
_MOST_COUNTED, _MONTH_NS = 20_000, 31 * 86_400 * 10**9
#: Largest distance of an object from the point that it is named by.
_AT_POINT_M = 2.0


class Target(NamedTuple):
    """The object of a question.

    Attributes:
        words: object in words.
        how: found by id, label, text or similarity.
        filter: filter of its memories; without the similarity of a vector.
        ids: ids and similarities of its memories, for a vector or an id.
    """

    words: str
    how: How
    filter: Filter
    ids: dict[int, float] | None = None

    def similarity(self, memory: Memory) -> float | None:
        """Return the similarity of a memory, if the object is a vector."""
        if self.how != "similar" or self.ids is None or memory.id is None:
            return None
        return self.ids.get(memory.id)


class Meanings:
    """Search for the object of a question; see :class:`memory.questions.Questions`."""

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
        area: str | None = None,
    ) -> Target:
        """Return the object that ``what`` means."""
        filter = self._store.database.resolve(
            Filter(map_id=map_id, between_ns=between_ns, circle=circle, area=area)
        )
        if isinstance(what, str):
            return self._named(what, filter)
        if is_id(what):
            (memory,) = self._store.get([int(what)])
            words = f"{memory.label or memory.kind} (memory {memory.id})"
            return Target(words, "id", filter, {int(what): 1.0})
        return Target("What looks like this", "similar", filter, self._alike(np.asarray(what), filter))

    def _named(self, what: str, filter: Filter) -> Target:
        """Return the object with a label or words; correct misspelled letters if nothing matches."""
        exact = self._exact(what, filter)
        if exact is not None:
            return exact
        near = self._labels().nearest(what)
        if near is not None and self._there(filter, labels=(near,)):
            return Target(f"{near} (read for {what!r})", "label", replace(filter, labels=(near,)))
        better = {slip: word for slip, word in self._store.corrections(what).items() if not is_word(slip)}
        words = " ".join(better.get(word, word) for word in what.split())
        if better and self._is_described(words, filter):
            return Target(f"{words} (read for {what!r})", "text", replace(filter, text=words))
        # Nothing has this name.
        return Target(what, "label", replace(filter, labels=(what,)))

    def knows(self, words: str, map_id: str | None = None) -> bool:
        """See :meth:`memory.questions.Questions.knows`."""
        return self._exact(words, Filter(map_id=map_id)) is not None

    def _exact(self, what: str, filter: Filter) -> Target | None:
        """Return the object with a label or words, without corrections; ``None`` if nothing matches."""
        if what.isascii() and self._there(filter, labels=(what,)):
            return Target(what, "label", replace(filter, labels=(what,)))
        alike = self._labels().alike(what)
        if alike and self._there(filter, labels=alike):
            return Target(alike[0], "label", replace(filter, labels=alike))
        same = self._labels().synonym(what)
        if same is not None and self._there(filter, labels=(same,)):
            return Target(f"{same} (read for {what!r})", "label", replace(filter, labels=(same,)))
        members = self._labels().category(what)
        if members and self._there(filter, labels=members):
            read = f"{' or '.join(members)} (read for {what!r})"
            return Target(read, "label", replace(filter, labels=members))
        for words in (what, " ".join(word for word in what.split() if word.lower() not in _SMALL)):
            if words and self._is_described(words, filter):
                return Target(what, "text", replace(filter, text=words))
        return None

    def _is_described(self, words: str, filter: Filter) -> bool:
        """Return True if words are what a memory is, not a detail: the person *at the door* is no door."""
        wanted = Filter(map_id=filter.map_id, text=words)
        found = self._store.find(wanted, newest_first=True, limit=_MOST_DESCRIBED, vectors=False)
        return any(is_subject(words, memory) for memory in found)

    def _there(self, filter: Filter, **parts: Any) -> bool:
        """True if a memory of the filter's map matches."""
        wanted = Filter(map_id=filter.map_id, **parts)
        return len(self._store.find(wanted, limit=1, vectors=False)) > 0

    def label_of(self, words: str) -> str | None:
        """Return the most frequent label that matches except for case and ending."""
        return next(iter(self._labels().alike(words)), None)

    def synonym_of(self, words: str) -> str | None:
        """Return the label that means the same, unless the words are a label."""
        return None if self._labels().alike(words) else self._labels().synonym(words)

    def category_of(self, words: str) -> list[str]:
        """Return the labels of a category such as *furniture*, unless the words are a label."""
        return [] if self._labels().alike(words) else self._labels().category(words)

    def names(self) -> tuple[str, ...]:
        """Return the labels that hold function words of questions, as *stop sign* or *what-not shelf*.

        Areas with the name of an owner, such as *grandma's room*, count too, and *open office*.
        """
        generation = self._store.generation
        if self._names is None or self._names[0] != generation:
            labels = self._store.label_counts()
            named = (area.name for area in self._store.areas())
            areas = [name for name in named if "'" in name or _is_name(name)]
            # "The car park" is not a car, if it means an area.
            others = [name for group in ROOMS for name in group if " " in name and holds_function_word(name)]
            areas += [name for name in others if room_meant(self._store, name) is not None]
            kept = (*(label for label in labels if holds_function_word(label) or _is_name(label)), *areas)
            self._names = (generation, kept)
        return self._names[1]

    def is_place(self, words: str) -> bool:
        """Return True if words are the name of an area or a map, or mean the same as one."""
        return names_place(self._store, words) or room_meant(self._store, words) is not None

    def objects(self, words: str, place: str | None = None) -> list[NamedObject]:
        """Return the memories whose label is or means the same as the words, at most 64.

        In a place, those that are there count, unless all have left.
        """
        labels = self._meant(words)
        if not labels:
            return []
        where = Filter(labels=labels)
        if place is not None:
            areas = self._store.areas()
            area = fold(room_meant(self._store, place) or place)
            inside = next((each for each in areas if fold(each.name) == area), None)
            maps = next((name for name in self._store.maps() if fold(name) == area), None)
            where = Filter(labels=labels, map_id=maps if inside is None else inside.map_id)
            where = where if inside is None else replace(where, area=inside.name)
        found = self._store.find(where, limit=_MOST_DESCRIBED, vectors=False)
        if place is not None:
            found = [memory for memory in found if memory.state not in AWAY] or found
        return [_named(memory) for memory in found]

    def object_at(
        self, words: str, point: tuple[float, float], map_id: str | None = None
    ) -> NamedObject | None:
        """Return the memory with such a label that is nearest to a point, if it is within two metres.

        Returns ``None`` if the point means objects of several maps.
        """
        labels = self._meant(words)
        if not labels:
            return None
        where = Filter(labels=labels, map_id=map_id, circle=(*point, _AT_POINT_M))
        found = self._store.find(where, limit=_MOST_DESCRIBED, vectors=False)
        if len({memory.map_id for memory in found}) != 1:
            return None
        return _named(min(found, key=lambda memory: (math.dist(memory.place[:2], point), memory.id)))

    def days(self) -> list[str]:
        """Return the dates on which something was observed, as 2026-01-05, rising.

        Returns none for a store of more than a month, or of very many memories.
        """
        if self._store.count(Filter()) > _MOST_COUNTED:
            return []
        memories = self._store.find(Filter(), vectors=False)
        days = visits_of(memories, 0.0).days
        if not days or days[-1] - days[0] > _MONTH_NS:
            return []
        return [moment(day)[:10] for day in days]

    def mentions(self, words: str) -> bool:
        """Return True if the label and caption of a memory have the words, be it as a detail."""
        return bool(self._store.find(Filter(text=words), limit=1, vectors=False))

    def described(self, words: str) -> list[NamedObject]:
        """Return the memories that words name by label or caption, at most 64."""
        meant = self._exact(words, Filter())
        found = [] if meant is None else self.memories(meant, newest_first=True, limit=_MOST_DESCRIBED)
        return [_named(memory) for memory in found]

    def _meant(self, words: str) -> list[str]:
        """Return the labels that words are, or mean."""
        known = self._labels()
        same = known.synonym(words)
        return known.alike(words) or ([same] if same is not None else known.heads(words))

    def _labels(self) -> Labels:
        """Return the labels of the store, cached until the next operation."""
        generation = self._store.generation
        if self._known is None or self._known[0] != generation:
            self._known = (generation, Labels(self._store.label_counts()))
        return self._known[1]

    def _alike(self, vector: NDArray, filter: Filter) -> dict[int, float]:
        """Return the ids and similarities of all memories above the threshold, at any time."""
        k = LATEST
        while True:
            hits = self._store.query(
                Query(embedding=vector, encoder=self._encoder, map_id=filter.map_id, k=k)
            )
            found = {
                hit.memory.id: hit.score
                for hit in hits
                if hit.memory.id is not None and hit.score >= self._least_similarity
            }
            if len(found) < k:
                return found
            k *= 4

    def memories(self, meant: Target, *, newest_first: bool, limit: int | None = None) -> list[Memory]:
        """Return the memories of an object in order of time, without vectors.

        Merged memories are ordered by their visits within ``between_ns``.
        """
        if meant.ids is None:
            text = meant.filter.text if meant.how == "text" else None
            # A pump "next to bed 1" is no bed 1, so more memories are read than are returned.
            most = limit if text is None or limit is None else max(limit, _MOST_DESCRIBED) * 8
            if meant.filter.between_ns is not None and not newest_first:
                found = self._store.find_seen(meant.filter, limit=most, vectors=False)[0]
            else:
                found = self._store.find(meant.filter, newest_first=newest_first, limit=most, vectors=False)
            return [memory for memory in found if text is None or is_subject(text, memory)][:limit]
        memories = self._store.get(meant.ids)
        between = meant.filter.between_ns
        if between is not None:
            memories = [m for m in memories if any(cut(visit, between) for visit in known_visits(m))]
        if meant.filter.circle is not None:
            x, y, radius = meant.filter.circle
            memories = [m for m in memories if m.position and math.dist(m.position[:2], (x, y)) <= radius]
        if meant.filter.region is not None:
            placed = [memory for memory in memories if memory.position is not None]
            points = positions_of(placed)[:, :2]
            memories = [
                memory
                for memory, kept in zip(placed, in_region(points, meant.filter.region), strict=True)
                if kept
            ]
        if meant.how == "similar":
            when = attrgetter("last_sight_ns" if newest_first else "first_sight_ns")
            memories.sort(key=lambda memory: (when(memory), memory.id or 0), reverse=newest_first)
        return memories[:limit]


def _named(memory: Memory) -> NamedObject:
    return NamedObject(memory.id or 0, f"{memory.label} {memory.caption or ''}".strip())


def _is_name(name: str) -> bool:
    """Return True for the name of an area or object that would be read as another word without the name."""
    return fold(name) in WHOLE_PLACES or (" " in name and holds_function_word(name))


def is_subject(words: str, memory: Memory) -> bool:
    """Return True if words name a memory, not a detail of its caption; notes are about all of their words."""
    if memory.kind == "note" or not (memory.label or memory.kind == "place"):
        return True
    said = stems(subject_of(words))
    wanted = set(said)
    label, caption = stems(memory.label), stems(subject_of(memory.caption or ""))
    if any(word.isdecimal() for word in said):
        known = (*label, *caption)  # A car that moved 5 m is no car 5.
        return any(known[at : at + len(said)] == said for at in range(len(known)))
    if label and wanted <= set(label) and label[-1] not in wanted:
        return wanted <= set(caption)  # A patient alarm is no patient.
    return wanted <= {*label, *caption}


def is_id(what: What) -> TypeGuard[int]:
    """True if ``what`` is an id."""
    return isinstance(what, int | np.integer) and not isinstance(what, bool)
