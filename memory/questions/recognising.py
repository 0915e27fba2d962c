"""Recognition of objects and places from earlier visits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import UnknownMemoryError
from memory.query import Filter, Query
from memory.questions.answers import Answer
from memory.questions.meaning import LATEST, is_id
from memory.questions.visits import visits_of
from memory.store import MemoryStore
from memory.types import Hit, Kind, Memory
from memory.wording.words import moment, name, plural, point

#: Minimum cosine similarity of two observations of one place, by encoder. On a real street, 95 % of scan
#: pairs within 1.5 m are above, and 1 % of pairs more than 8 m apart (docs/ask.md).
SAME_FROM = {"scene-encoder": 0.975}
#: Maximum distance of two observations of one place in a map: streets look alike, but maps drift less.
#: For objects the limit is the store's ``merging.max_distance_m``.
HERE_M = 15.0
#: Places within this distance in a map are the same, regardless of their vectors.
SAME_PLACE_M = 3.0


class Subject(NamedTuple):
    """The object or place to recognise.

    Attributes:
        memory: its memory; ``None`` for a vector.
        encoder: encoder whose vectors are compared.
        query: search for similar memories; ``None`` for a place without a vector.
    """

    memory: Memory | None
    encoder: str
    query: Query | None


@dataclass(frozen=True)
class SeenBefore(Answer):
    """Whether an object was seen, or a place visited, on an earlier visit.

    Attributes:
        what: object in words.
        kind: ``"object"`` or ``"place"``.
        memory: its memory; ``None`` for a vector.
        since_ns: start of the current visit; ``None`` for a vector.
        visits: number of earlier visits with a match.
        first_ns, last_ns: first and last observation on these visits; ``None`` if there are none.
        hits: nearby memories with earlier observations, the most similar first, also below the threshold.
        least_similarity: cosine similarity from which two observations match.
        within_m: maximum distance of a match in the same map; ``None`` for a vector.
        elsewhere: the most similar earlier observation beyond ``within_m``, if above the threshold.
        closest_m: distance in metres to the closest place that matches by pose; ``None`` if none does.
    """

    question: Literal["seen_before"] = field(default="seen_before", init=False)
    what: str
    kind: Kind
    memory: Memory | None
    since_ns: int | None
    visits: int
    first_ns: int | None
    last_ns: int | None
    hits: tuple[Hit, ...]
    least_similarity: float
    within_m: float | None = None
    elsewhere: Hit | None = None
    closest_m: float | None = None

    def __str__(self) -> str:
        seen, like = ("visited", "places") if self.kind == "place" else ("seen", "objects")
        if self.last_ns is None:
            new = (
                "" if self.since_ns is None else f" before this visit, which began on {moment(self.since_ns)}"
            )
            if self.elsewhere is not None:
                return (
                    f"No: {self.what} was not {seen}{new}; the most similar of earlier {like} is"
                    f" {name(self.elsewhere.memory)} with similarity {self.elsewhere.score:.2f}"
                    f"{self._apart(self.elsewhere)}, but matches must be within {self.within_m:g} m."
                )
            if not self.hits:
                return f"No: {self.what} was not {seen}{new}. There are no earlier {like} to compare it with."
            best = self.hits[0]
            return (
                f"No: {self.what} was not {seen}{new}; the most similar of earlier {like} is"
                f" {name(best.memory)} with similarity {best.score:.2f}{self._apart(best)}; at least"
                f" {self.least_similarity:g} is required."
            )
        sentence = (
            f"Yes: {self.what} was {seen} on {plural(self.visits, 'earlier visit')}, the last on"
            f" {moment(self.last_ns)}"
        )
        if self.closest_m is not None:
            return f"{sentence}, {self.closest_m:.1f} m from here by the poses of map {self._map}."
        if not self.hits or self.hits[0].score < self.least_similarity:
            return f"{sentence}, by its own observations."
        best = self.hits[0]
        return (
            f"{sentence}; most similar is {name(best.memory)} at {point(best.memory.position)} in map"
            f" {best.memory.map_id}, similarity {best.score:.2f}{self._apart(best)}."
        )

    @property
    def _map(self) -> str:
        return "" if self.memory is None else self.memory.map_id

    def _apart(self, hit: Hit) -> str:
        """Return the distance of a hit in words."""
        if self.memory is None or hit.memory.map_id != self.memory.map_id:
            return ""
        if hit.memory.position is None or self.memory.position is None:
            return ""
        away = math.dist(hit.memory.position, self.memory.position)
        return f", {away:.1f} m from {'here' if self.kind == 'place' else 'where it is now'}"


def subject_of(
    store: MemoryStore, what: int | ArrayLike | None, *, encoder: str, kinds: tuple[Kind, ...] | None,
    map_id: str | None, by_pose: bool = False,
) -> Subject:  # fmt: skip
    """Return the subject of a question; ``None`` means the newest memory that has a vector.

    With ``by_pose`` a place needs no vector.

    Raises:
        UnknownMemoryError: no memory has the id, or there is no vector.
    """
    if what is not None and not is_id(what):
        vector: NDArray[np.float32] = np.asarray(what, np.float32)
        fits = [each for each, dim in sorted(store.encoders().items()) if dim == vector.size]
        used = fits[0] if encoder == "default" and encoder not in fits and fits else encoder
        return Subject(None, used, Query(embedding=vector, encoder=used))
    memory = _newest(store, kinds, map_id, by_pose) if what is None else store.get([int(what)])[0]
    if by_pose and memory.kind == "place" and not _has_vector(memory):
        return Subject(memory, encoder, None)
    query = store.compared(Query(like=memory.id, encoder=encoder))
    return Subject(memory, query.encoder, query)


def _has_vector(memory: Memory) -> bool:
    return memory.embedding is not None or bool(memory.embeddings)


def _newest(store: MemoryStore, kinds: tuple[Kind, ...] | None, map_id: str | None, by_pose: bool) -> Memory:
    """Return the newest memory with a vector, or a place that needs none."""
    for memory in store.find(Filter(kinds=kinds, map_id=map_id), limit=LATEST):
        if _has_vector(memory) or (by_pose and memory.kind == "place"):
            return memory
    wanted = "memories" if kinds is None else " or ".join(f"{kind}s" for kind in kinds)
    raise UnknownMemoryError(
        f"none of the newest {wanted} has an embedding. Import detections of weights with an embedding head,"
        " or scans with poses"
    )


def seen_before(
    store: MemoryStore,
    what: int | ArrayLike | None = None,
    *,
    kind: Kind = "object",
    encoder: str = "default",
    map_id: str | None = None,
    least_similarity: float = 0.7,
    gap_s: float = 60.0,
    k: int = 10,
) -> SeenBefore:
    """See :meth:`memory.questions.Questions.seen_before`."""
    subject = subject_of(store, what, encoder=encoder, kinds=(kind,), map_id=map_id, by_pose=True)
    memory = subject.memory
    if memory is not None:
        kind = memory.kind
    threshold = SAME_FROM.get(subject.encoder, least_similarity)
    within_m = None
    if memory is not None:
        within_m = HERE_M if kind == "place" else store.config.merging.max_distance_m
    hits, far_hits = list[Hit](), list[Hit]()
    if subject.query is not None:
        similar = replace(subject.query, where=Filter(map_id=map_id, kinds=(kind,)))
        if memory is None or within_m is None:
            hits = _similar(store, similar, threshold)
        else:
            hits, far_hits = _similar_to_memory(store, similar, memory, within_m, threshold)
    same_places = [] if memory is None or kind != "place" else _same_place(store, memory)
    matches = {hit.memory.id: hit.memory for hit in hits if hit.score >= threshold}
    matches |= {place.id: place for place in same_places}
    spans = visits_of([*([memory] if memory else []), *matches.values()], gap_s).spans
    since_ns = None
    if memory is not None:
        last_ns = memory.last_sight_ns
        since_ns = max(first for first, _ in spans if first <= last_ns)
        spans = [span for span in spans if span[1] < since_ns]
    far_hits = [hit for hit in far_hits if _is_earlier(hit.memory, since_ns) and hit.score >= threshold]
    distances_m = [
        math.dist(place.place, memory.place)
        for place in same_places
        if memory is not None and _is_earlier(place, since_ns)
    ]
    return SeenBefore(
        what="what looks like this" if memory is None else name(memory),
        kind=kind,
        memory=memory,
        since_ns=since_ns,
        visits=len(spans),
        first_ns=spans[0][0] if spans else None,
        last_ns=spans[-1][1] if spans else None,
        hits=tuple([hit for hit in hits if _is_earlier(hit.memory, since_ns)][:k]),
        least_similarity=threshold,
        within_m=within_m,
        elsewhere=far_hits[0] if far_hits else None,
        closest_m=min(distances_m, default=None),
    )


def _is_earlier(memory: Memory, since_ns: int | None) -> bool:
    """Return True if a memory was seen before the current visit; also True if there is none."""
    return since_ns is None or memory.first_sight_ns < since_ns


def reward_of(hits: Sequence[Hit]) -> tuple[float, float] | tuple[None, None]:
    """Return the mean reward by attention and its standard deviation; ``None`` twice without hits."""
    if not hits:
        return None, None
    rewards = np.array([hit.memory.reward for hit in hits])
    weights = np.array([hit.attention or 0.0 for hit in hits])
    mean = float(np.average(rewards, weights=weights))
    deviation = math.sqrt(float(np.average((rewards - mean) ** 2, weights=weights)))
    return mean, deviation


def _same_place(store: MemoryStore, memory: Memory) -> list[Memory]:
    """Return other places of the map that match by pose."""
    if memory.position is None:
        return []
    x, y = memory.position[:2]
    around = Filter(map_id=memory.map_id, kinds=("place",), circle=(x, y, SAME_PLACE_M))
    found = store.find(around, vectors=False)
    return [each for each in found if each.id != memory.id and _within(SAME_PLACE_M, each, memory)]


def _similar_to_memory(
    store: MemoryStore, similar: Query, memory: Memory, within_m: float, threshold: float
) -> tuple[list[Hit], list[Hit]]:
    """Return the similar memories that may be the same, and the most similar ones too far away for that."""
    hits = _similar_nearby(store, similar, memory, within_m, threshold)
    # Of similar memories at other places, the answer needs only the most similar one.
    anywhere = store.query(replace(similar, k=LATEST))
    far_hits = [hit for hit in anywhere if not _within(within_m, hit.memory, memory)]
    # Memories without a position match by similarity alone.
    nearby_ids = {hit.memory.id for hit in hits}
    hits += [hit for hit in anywhere if hit.memory.position is None and hit.memory.id not in nearby_ids]
    return sorted(hits, key=lambda hit: -hit.score), far_hits


def _similar_nearby(
    store: MemoryStore, similar: Query, memory: Memory, within_m: float, threshold: float
) -> list[Hit]:
    """Return similar memories near a memory, and those of other maps."""
    hits = []
    for map_id in store.maps() if similar.where.map_id is None else [similar.where.map_id]:
        where = replace(similar.where, map_id=map_id)
        if map_id == memory.map_id and memory.position is not None:
            x, y = memory.position[:2]
            where = replace(where, circle=(x, y, within_m))
        hits += _similar(store, replace(similar, where=where), threshold)
    hits = [hit for hit in hits if _within(within_m, hit.memory, memory)]
    return sorted(hits, key=lambda hit: -hit.score)


def _similar(store: MemoryStore, similar: Query, threshold: float) -> list[Hit]:
    """Return the most similar memories, including all above the threshold."""
    count = LATEST
    while True:
        hits = store.query(replace(similar, k=count))
        if len(hits) < count or hits[-1].score < threshold:
            return hits
        count *= 4


def _within(metres: float, memory: Memory, other: Memory) -> bool:
    """True if two memories are within a distance; also true if it is unknown or their maps differ."""
    if memory.map_id != other.map_id or memory.position is None or other.position is None:
        return True
    return math.dist(memory.position, other.position) <= metres
