"""Questions about a store, one method each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from memory.observe.presence import PresenceOptions
from memory.observe.views import Views
from memory.query import Filter, Query
from memory.questions.answers import (
    Changed,
    DrivePose,
    HowMany,
    HowOften,
    Nearby,
    Sighting,
    Similar,
    StillThere,
    Summary,
    WhenLeft,
)
from memory.questions.changes import Happened, changed_since, only_of
from memory.questions.counting import tally, tally_of
from memory.questions.driving import pose_to
from memory.questions.meaning import Meanings, Target, What
from memory.questions.places import circle_of, words_of_place
from memory.questions.reading.leftovers.reading import read_question
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.recognising import SeenBefore, reward_of, seen_before, subject_of
from memory.questions.relations import SpatialQuestions
from memory.questions.visits import visits_of
from memory.questions.whereabouts import departure, latest, still_there
from memory.store import MemoryStore
from memory.types import Kind, Memory, State, check_integer, check_numbers
from memory.wording.words import name


class Questions(SpatialQuestions):
    """Questions about the memories of a store.

    ``what`` is a string (a label, or words of label and caption), the id of a memory, or a vector. A vector
    means all memories whose cosine similarity to it is at least ``least_similarity``.

    Methods that take ``what`` raise ``UnknownMemoryError`` for an unknown id and ``DimensionError`` for a
    vector of the wrong length. ``map_id=None`` means all maps. ``near`` is x, y (and z) in metres;
    ``radius_m`` is a radius around it. ``area`` is the name of an area (:meth:`.MemoryStore.set_area`).

    Args:
        store: open store.
        encoder: encoder whose vectors are compared.
        least_similarity: threshold for vectors, -1 to 1.
    """

    def __init__(
        self, store: MemoryStore, *, encoder: str = "default", least_similarity: float = 0.7
    ) -> None:
        self._store = store
        self._encoder = encoder
        self._least_similarity = least_similarity
        self._meanings = Meanings(store, encoder=encoder, least_similarity=least_similarity)

    @property
    def store(self) -> MemoryStore:
        """The store."""
        return self._store

    def understand(self, text: str, now_ns: int) -> ParsedQuestion:
        """Return what a question in words asks for.

        Args:
            text: as typed.
            now_ns: the moment that words such as yesterday count from.

        Raises:
            ValueError: the text is empty or too long, or a time does not exist.
        """
        return read_question(text, now_ns, self._meanings)

    def label_of(self, words: str) -> str | None:
        """Return the label that words match except for case and ending (``cars``: ``Car``), or ``None``."""
        return self._meanings.label_of(words)

    def synonym_of(self, words: str) -> str | None:
        """Return the label that means the same as words (``parcel``: ``package``), or ``None``."""
        return self._meanings.synonym_of(words)

    def knows(self, words: str, map_id: str | None = None) -> bool:
        """True if the words are a label, or all occur in the label and caption of a memory."""
        return self._meanings.knows(words, map_id)

    def last_seen(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
    ) -> Sighting:
        """Find where and when an object was last seen; of equal times, the memory with the higher id."""
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m), area=area)
        best = latest(self._store, self._meanings, meant)
        if best is None:
            return Sighting("last_seen", meant.words, None, None, meant.how)
        return Sighting("last_seen", meant.words, best, best.last_sight_ns, meant.how, meant.similarity(best))

    def first_seen(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
    ) -> Sighting:
        """Find where and when an object was first seen; of equal times, the memory with the lower id."""
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m), area=area)
        # Only merged memories were first seen before their time; they are few, so all are read.
        found = self._meanings.memories(meant, newest_first=False, limit=1)
        if meant.ids is None:
            found += self._store.find_merged(meant.filter)
        if not found:
            return Sighting("first_seen", meant.words, None, None, meant.how)
        best = min(found, key=lambda memory: (memory.first_sight_ns, memory.id))
        when, alike = best.first_sight_ns, meant.similarity(best)
        return Sighting("first_seen", meant.words, best, when, meant.how, alike)

    def departure(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
    ) -> WhenLeft:
        """Find when an object left: after its last observation and before it was found gone or moved.

        Args:
            what: see the class; of several objects, the one that left last is meant.
            map_id: ``None`` for all maps.
            near, radius_m: place in metres; the closest object is meant then.
        """
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m), area=area)
        return departure(self._store, self._meanings, meant, near)

    def sightings(self, what: What, *, map_id: str | None = None, limit: int = 64) -> list[Memory]:
        """Return at most ``limit`` memories of an object, the latest first."""
        return self._meanings.memories(self._meanings.of(what, map_id), newest_first=True, limit=limit)

    def near(
        self,
        position: tuple[float, ...],
        radius_m: float,
        *,
        map_id: str | None = None,
        area: str | None = None,
        labels: Sequence[str] | None = None,
        kinds: Sequence[Kind] | None = None,
        states: Sequence[State] | None = None,
        k: int = 20,
    ) -> Nearby:
        """Find memories within a radius of a point, the closest first.

        Args:
            position: x, y (and z, which then counts for the distance) in metres.
            radius_m: radius in the plane.
            map_id: ``None`` for all maps.
            labels, kinds, states: filters; any value of each may match.
            k: maximum number of hits; the total counts all.
        """
        which = Filter(map_id=map_id, area=area, labels=labels, kinds=kinds, states=states)
        query = Query(near=position, radius_m=radius_m, where=which, k=k, order="distance")
        hits = self._store.query(query)
        total = len(hits) if len(hits) < k else self._store.count(query.where)
        return Nearby(tuple(position), radius_m, total, tuple(hits))

    def between(
        self,
        first_ns: int,
        last_ns: int,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        labels: Sequence[str] | None = None,
        kinds: Sequence[Kind] | None = None,
        states: Sequence[State] | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> Happened:
        """Find memories of a time range, in the order in which they were first seen in it.

        A merged memory matches if one of its visits overlaps the range. If it was merged before visits were
        recorded, its ``time_ns`` counts.

        Args:
            first_ns, last_ns: range in nanoseconds, both ends included.
            map_id: ``None`` for all maps.
            near, radius_m: place in metres.
            labels, kinds, states: filters; any value of each may match.
            text: words in label or caption.
            limit: maximum number of memories; the total counts all.
        """
        wanted = Filter(
            between_ns=(first_ns, last_ns),
            map_id=map_id,
            circle=circle_of(near, radius_m),
            area=area,
            labels=labels,
            kinds=kinds,
            states=states,
            text=text,
        )
        memories, total = self._store.find_seen(wanted, limit=limit)
        what = text if text is not None else " or ".join(labels or ())
        limited = map_id or near or area
        place = words_of_place(map_id, near, radius_m, None, area) if limited else ""
        return Happened((first_ns, last_ns), total, tuple(memories), what, place)

    def changed_since(
        self,
        time_ns: int,
        map_id: str | None = None,
        *,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        after: int | None = None,
    ) -> Changed:
        """Find what is new, gone or moved since a time.

        New memories were first seen since then and are still there. Gone and moved memories got this state by
        an operation since then, by the system clock of the computer. Forgetting is not a change.

        Args:
            time_ns: start time by the robot's clock, in nanoseconds.
            map_id: ``None`` for all maps.
            near, radius_m: place in metres.
            after: for states, count the operations after this number instead of those since ``time_ns``.
        """
        check_integer("time_ns", time_ns)
        place = Filter(map_id=map_id, circle=circle_of(near, radius_m), area=area)
        return changed_since(self._store, time_ns, place, after)

    def how_often(
        self,
        what: What,
        *,
        map_id: str | None = None,
        between_ns: tuple[int, int] | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        gap_s: float = 60.0,
    ) -> HowOften:
        """Count how often and how long an object was seen.

        Merged memories give the same answer for a ``gap_s`` of a minute or more; merging joins shorter
        pauses, and the shortest of more than 512. A visit that extends beyond ``between_ns`` is cut there,
        and its observations count in proportion.

        Args:
            what: see the class.
            between_ns: time range, both ends included.
            near, radius_m: place in metres.
            gap_s: longest pause within a visit, in seconds.
        """
        if check_numbers("gap_s", (gap_s,), 1)[0] < 0.0:
            raise ValueError(f"gap_s must not be negative, got {gap_s}")
        meant = self._meanings.of(what, map_id, between_ns, circle_of(near, radius_m), area)
        memories = self._meanings.memories(meant, newest_first=False)
        if between_ns is not None:
            memories = [memory for memory in memories if visits_of([memory], gap_s, between_ns).spans]
        visits = visits_of(memories, gap_s, between_ns)
        sightings = visits.sightings if between_ns else sum(memory.count for memory in memories)
        return HowOften(
            what=meant.words,
            memories=len(memories),
            sightings=sightings,
            days=len(visits.days),
            day_starts_ns=visits.days,
            visits=len(visits.spans),
            total_s=visits.total_s,
            longest_s=visits.longest_s,
            first_ns=visits.spans[0][0] if visits.spans else None,
            last_ns=visits.spans[-1][1] if visits.spans else None,
        )

    def how_many(
        self,
        what: What | None = None,
        *,
        map_id: str | None = None,
        between_ns: tuple[int, int] | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        kinds: Sequence[Kind] | None = None,
    ) -> HowMany:
        """Count memories by label and state, and the distinct objects among them.

        Memories that share a track are of one object. Otherwise each memory counts as one object, so
        :meth:`MemoryStore.consolidate` first.

        Args:
            what: see the class; ``None`` for everything.
            map_id: ``None`` for all maps.
            between_ns: time range of the observations, both ends included.
            near, radius_m: place in metres.
            kinds: of the memories if ``what`` is ``None``; ``None`` for all kinds.
        """
        circle = circle_of(near, radius_m)
        if what is None:
            wanted = Filter(map_id=map_id, between_ns=between_ns, circle=circle, area=area, kinds=kinds)
            meant = Target("", "text", wanted)
        else:
            meant = self._meanings.of(what, map_id, between_ns, circle, area)
        if meant.ids is None and (meant.how != "text" or what is None):
            found = tally(self._store, meant.filter)
        else:
            found = tally_of(self._meanings.memories(meant, newest_first=False))
        place = words_of_place(map_id, near, radius_m, None, area)
        return HowMany(what=meant.words, place=place, between_ns=between_ns, **found._asdict())

    def still_there(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        views: Views | None = None,
        observations: Sequence[Memory] = (),
        options: PresenceOptions | None = None,
    ) -> StillThere:
        """Judge whether an object is still where it was.

        Later memories of its kind and label count as observations. Without them and without views, the stored
        state is returned if it is gone or moved, and otherwise ``"unknown"``.

        Args:
            what: see the class; of several objects, the one seen last is meant.
            map_id: ``None`` for all maps.
            near, radius_m: place in metres; the closest object is meant then.
            views: all views since then, in the map of the object, also those without detections.
            observations: detections of the views that are not stored.
            options: thresholds for believing that an object is gone.
        """
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m), area=area)
        return still_there(
            self._store, self._meanings, meant, near, views=views, observations=observations, options=options
        )

    def summarise(
        self,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        polygon: Sequence[tuple[float, float]] | None = None,
        since_ns: int | None = None,
        most: int = 5,
    ) -> Summary:
        """Summarise all memories of a place.

        Args:
            map_id: ``None`` for all maps.
            near, radius_m: place in metres.
            polygon: corners of an area in metres.
            since_ns: also report changes since this time.
            most: number of important memories: marked ones first, then by importance, then by count.
        """
        wanted = Filter(map_id=map_id, circle=circle_of(near, radius_m), polygon=polygon, area=area)
        memories = self._store.find(wanted, vectors=False)
        ranked = sorted(
            memories, key=lambda m: (not m.marked, -(m.importance or 0.0), -m.count, -m.time_ns, -(m.id or 0))
        )
        changed = None
        if since_ns is not None:
            changed = self.changed_since(since_ns, map_id, near=near, radius_m=radius_m, area=area)
            if polygon is not None:
                inside = {memory.id for memory in memories}
                changed = only_of(changed, inside)
        return Summary(
            place=words_of_place(map_id, near, radius_m, polygon, area),
            **tally_of(memories)._asdict(),
            by_kind=dict(Counter(memory.kind for memory in memories)),
            important=tuple(ranked[:most]),
            changed=changed,
        )

    def similar_situations(
        self,
        what: int | ArrayLike | None = None,
        *,
        k: int = 10,
        map_id: str | None = None,
        kinds: Sequence[Kind] | None = None,
        states: Sequence[State] | None = None,
    ) -> Similar:
        """Find similar situations and the reward to expect from them.

        Args:
            what: the id of a memory, or a vector; ``None`` for the newest memory that has a vector.
            k: maximum number of situations.
            map_id: ``None`` for all maps.
            kinds, states: filters; any value of each may match.

        Raises:
            UnknownMemoryError: no memory has the id, or it has no vector.
            DimensionError: the vector has the wrong length.
        """
        chosen = None if kinds is None else tuple(kinds)
        subject = subject_of(self._store, what, encoder=self._encoder, kinds=chosen, map_id=map_id)
        words = "this" if subject.memory is None else name(subject.memory)
        if subject.query is None:
            return Similar(None, None, (), words)
        where = Filter(map_id=map_id, kinds=kinds, states=states)
        hits = self._store.query(replace(subject.query, k=k, where=where, aggregate=True))
        mean, deviation = reward_of(hits)
        return Similar(mean, deviation, tuple(hits), words)

    def seen_before(
        self,
        what: int | ArrayLike | None = None,
        *,
        kind: Kind = "object",
        map_id: str | None = None,
        gap_s: float = 60.0,
        k: int = 10,
    ) -> SeenBefore:
        """Judge whether an object was seen, or a place visited, on an earlier visit.

        A visit ends after ``gap_s`` without a similar observation; the current visit does not count. Two
        observations match if their vectors are similar. In one map they must also be close: places within
        :data:`memory.questions.recognising.HERE_M`, objects within the store's ``merging.max_distance_m``.
        Places within :data:`memory.questions.recognising.SAME_PLACE_M` match by pose alone, without a vector.
        A similar observation farther away is named in the answer, with its distance. A vector alone has no
        place and is compared by similarity only.

        Args:
            what: the id of a memory, or a vector; ``None`` for the newest memory of the kind with a vector.
            kind: kind of the memories to compare with.
            map_id: ``None`` for all maps.
            gap_s: pause that ends a visit, in seconds.
            k: maximum number of hits in the answer.

        Raises:
            UnknownMemoryError: no memory has the id, or it has no vector.
            DimensionError: the vector has the wrong length.
        """
        return seen_before(
            self._store, what, kind=kind, encoder=self._encoder, map_id=map_id, gap_s=gap_s, k=k,
            least_similarity=self._least_similarity,
        )  # fmt: skip

    def pose_to(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        area: str | None = None,
        distance_m: float = 1.0,
        coming_from: tuple[float, ...] | None = None,
        half_life_s: float = 86_400.0,
    ) -> DrivePose:
        """Choose a pose that faces an object.

        Among its latest memories that are not gone or moved, choose the one with the highest confidence. The
        confidence is halved for every ``half_life_s`` of age and divided by 1 plus the standard deviation of
        the position in metres. The pose is ``distance_m`` from the object, on the side that the robot comes
        from, or else in front of the object. For a place, the pose is the stored position and yaw.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            near, radius_m: place in metres.
            distance_m: distance from the object; ignored for places.
            coming_from: x, y (and z, which the pose then has) of the robot in the map of the object.
            half_life_s: half-life of the confidence, in seconds.
        """
        if check_numbers("distance_m", (distance_m,), 1)[0] < 0.0:
            raise ValueError(f"distance_m must not be negative, got {distance_m}")
        if check_numbers("half_life_s", (half_life_s,), 1)[0] <= 0.0:
            raise ValueError(f"half_life_s must be above 0, got {half_life_s}")
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m), area=area)
        return pose_to(
            self._meanings, meant, distance_m=distance_m, coming_from=coming_from, half_life_s=half_life_s,
        )  # fmt: skip
