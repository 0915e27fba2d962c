"""The questions, each a method."""

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
    Happened,
    HowMany,
    HowOften,
    Nearby,
    Sighting,
    Similar,
    StillThere,
    Summary,
)
from memory.questions.changes import changed_since, only_of
from memory.questions.counting import tally, tally_of
from memory.questions.driving import pose_to
from memory.questions.meaning import Meanings, Meant, What
from memory.questions.places import circle_of, words_of_place
from memory.questions.recognising import SeenBefore, reward_of, seen_before, subject_of
from memory.questions.understanding import Understood, understand
from memory.questions.visits import visits_of
from memory.questions.whereabouts import latest, still_there
from memory.store import MemoryStore
from memory.types import Kind, Memory, State, check_integer, check_numbers
from memory.wording.words import name


class Questions:
    """Answers questions about what a store remembers.

    A thing is asked for by a string, which is a label where there is such a label and words of label and
    caption otherwise; by an integer, the id of a memory; or by a vector, which means everything whose cosine
    to it is at least ``least_similarity``.

    Args:
        store: open.
        encoder: whose vectors are compared.
        least_similarity: of what a vector means.
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
        """That is asked."""
        return self._store

    def understand(self, text: str, now_ns: int) -> Understood:
        """Return what a question in words asks for.

        Args:
            text: as typed.
            now_ns: the moment that words such as yesterday count from.

        Raises:
            ValueError: the text is empty or too long, or a time does not exist.
        """
        return understand(text, now_ns, self._meanings.names())

    def label_of(self, words: str) -> str | None:
        """The label that words are but for case and ending, as ``cars`` is ``Car``; ``None`` for no label."""
        return self._meanings.label_of(words)

    def knows(self, words: str, map_id: str | None = None) -> bool:
        """True if a memory is called so: by its label, or by all words of its label and caption.

        Args:
            words: such as ``red mug``.
            map_id: ``None`` for all maps.
        """
        return self._meanings.knows(words, map_id)

    def last_seen(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
    ) -> Sighting:
        """Where and when something was last seen; by a label, from the end of an index of the database.

        The memory is that which stands for the latest sight; of equal times the one with the higher id.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            near, radius_m: metres; only around this point.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m))
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
    ) -> Sighting:
        """When something was first seen, and its memory with that observation; of equals the lower id.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            near, radius_m: metres; only around this point.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m))
        # A memory of one observation was first seen at its time; merged ones are few, and all looked at.
        found = self._meanings.memories(meant, newest_first=False, limit=1)
        if meant.ids is None:
            found += self._store.find_merged(meant.filter)
        if not found:
            return Sighting("first_seen", meant.words, None, None, meant.how)
        best = min(found, key=lambda memory: (memory.first_sight_ns, memory.id))
        when, alike = best.first_sight_ns, meant.similarity(best)
        return Sighting("first_seen", meant.words, best, when, meant.how, alike)

    def sightings(self, what: What, *, map_id: str | None = None, limit: int = 64) -> list[Memory]:
        """The memories of something, the latest first.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            limit: most of them.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        return self._meanings.memories(self._meanings.of(what, map_id), newest_first=True, limit=limit)

    def near(
        self,
        position: tuple[float, ...],
        radius_m: float,
        *,
        map_id: str | None = None,
        labels: Sequence[str] | None = None,
        kinds: Sequence[Kind] | None = None,
        states: Sequence[State] | None = None,
        k: int = 20,
    ) -> Nearby:
        """What is within a radius of a point, the closest first.

        Args:
            position: x, y (and z, which then counts for the distance) in metres.
            radius_m: in the plane.
            map_id: ``None`` for all maps.
            labels, kinds, states: any of them.
            k: most answers; the total counts all.
        """
        which = Filter(map_id=map_id, labels=labels, kinds=kinds, states=states)
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
        labels: Sequence[str] | None = None,
        kinds: Sequence[Kind] | None = None,
        states: Sequence[State] | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> Happened:
        """What is remembered of a time, both ends included, in the order in which it was first seen then.

        A merged memory is there where one of its visits touches the time, and not where the time lies between
        two of them; one that was merged before visits were kept is there by its ``time_ns``.

        Args:
            first_ns, last_ns: nanoseconds.
            map_id: ``None`` for all maps.
            near, radius_m: metres; only around this point.
            labels, kinds, states: any of them.
            text: words that they must have.
            limit: most answers; the total counts all.
        """
        wanted = Filter(
            between_ns=(first_ns, last_ns),
            map_id=map_id,
            circle=circle_of(near, radius_m),
            labels=labels,
            kinds=kinds,
            states=states,
            text=text,
        )
        memories, total = self._store.find_seen(wanted, limit=limit)
        what = text if text is not None else " or ".join(labels or ())
        return Happened((first_ns, last_ns), total, tuple(memories), what)

    def changed_since(
        self,
        time_ns: int,
        map_id: str | None = None,
        *,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        after: int | None = None,
    ) -> Changed:
        """What is new, gone or moved since a time.

        New is what was first seen at that time or later and is there. Gone and moved is what has this state,
        and got it from another one by an operation since then; when that was is the computer's clock's to
        say, unless ``after`` gives the number of an operation. What was only forgotten has not changed.

        Args:
            time_ns: of the robot's clock.
            map_id: ``None`` for all maps.
            near, radius_m: metres; only around this point.
            after: operations after this one count for the states, instead of those since ``time_ns``.
        """
        check_integer("time_ns", time_ns)
        place = Filter(map_id=map_id, circle=circle_of(near, radius_m))
        return changed_since(self._store, time_ns, place, after)

    def how_often(
        self,
        what: What,
        *,
        map_id: str | None = None,
        between_ns: tuple[int, int] | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        gap_s: float = 60.0,
    ) -> HowOften:
        """How often and how long something was seen.

        Merging changes nothing in the answer for a ``gap_s`` of a minute or more. Shorter pauses, and the
        shortest of more than 512 pauses, were joined when memories were merged. What reaches beyond the time
        that is asked for is cut off there; sights are counted in proportion then.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            between_ns: only sights of this time, both ends included.
            near, radius_m: metres; only around this point.
            gap_s: observations that are at most so far apart belong to one visit.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        if check_numbers("gap_s", (gap_s,), 1)[0] < 0.0:
            raise ValueError(f"gap_s must not be negative, got {gap_s}")
        meant = self._meanings.of(what, map_id, between_ns, circle_of(near, radius_m))
        memories = self._meanings.memories(meant, newest_first=False)
        if between_ns is not None:
            memories = [memory for memory in memories if visits_of([memory], gap_s, between_ns).spans]
        visits = visits_of(memories, gap_s, between_ns)
        sightings = visits.sightings if between_ns else sum(memory.count for memory in memories)
        return HowOften(
            what=meant.words,
            memories=len(memories),
            sightings=sightings,
            days=visits.days,
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
    ) -> HowMany:
        """How many memories there are of something, of how many different things, and how many are gone.

        Memories are of one thing where they share a track; otherwise a memory is a thing as far as its sights
        were merged (:meth:`MemoryStore.consolidate`).

        Args:
            what: see the class; ``None`` for everything.
            map_id: ``None`` for all maps.
            between_ns: only what was seen within this time, both ends included.
            near, radius_m: metres; only around this point.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        circle = circle_of(near, radius_m)
        if what is None:
            meant = Meant("", "text", Filter(map_id=map_id, between_ns=between_ns, circle=circle))
        else:
            meant = self._meanings.of(what, map_id, between_ns, circle)
        if meant.ids is None:
            found = tally(self._store, meant.filter)
        else:
            found = tally_of(self._meanings.memories(meant, newest_first=False))
        place = words_of_place(map_id, near, radius_m, None)
        return HowMany(what=meant.words, place=place, between_ns=between_ns, **found._asdict())

    def still_there(
        self,
        what: What,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        views: Views | None = None,
        observations: Sequence[Memory] = (),
        options: PresenceOptions | None = None,
    ) -> StillThere:
        """Whether something is where it was; of several, the one seen last, or the closest to a place.

        Later memories of its kind and label are observations as well. Where neither they nor views say
        anything, what was stored as gone or moved is that; all else is ``"unknown"``: its place was not in
        view since it was last seen.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            near, radius_m: metres; the closest to this point is meant.
            views: looks since then, also those that showed nothing, in the map of the thing.
            observations: what was detected in the views and is not stored.
            options: how much it takes to believe that something is gone.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m))
        return still_there(
            self._store, self._meanings, meant, near, views=views, observations=observations, options=options
        )

    def summarise(
        self,
        *,
        map_id: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        polygon: Sequence[tuple[float, float]] | None = None,
        since_ns: int | None = None,
        most: int = 5,
    ) -> Summary:
        """What is remembered of a place: all of it is read.

        Args:
            map_id: ``None`` for all maps.
            near, radius_m: metres; around this point.
            polygon: corners in metres; within it.
            since_ns: also say what changed since then; around the point or in the map.
            most: of the most important memories: marked ones first, then by importance, then by count.
        """
        wanted = Filter(map_id=map_id, circle=circle_of(near, radius_m), polygon=polygon)
        memories = self._store.find(wanted, vectors=False)
        ranked = sorted(
            memories, key=lambda m: (not m.marked, -(m.importance or 0.0), -m.count, -m.time_ns, -(m.id or 0))
        )
        changed = None
        if since_ns is not None:
            changed = self.changed_since(since_ns, map_id, near=near, radius_m=radius_m)
            if polygon is not None:
                inside = {memory.id for memory in memories}
                changed = only_of(changed, inside)
        return Summary(
            place=words_of_place(map_id, near, radius_m, polygon),
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
        """Situations like one, and the reward that they let expect.

        Args:
            what: the id of a memory, or a vector; ``None`` for the newest memory that has a vector.
            k: most of them.
            map_id: ``None`` for all maps.
            kinds, states: any of them.

        Raises:
            UnknownMemoryError: an id that no memory has, or a memory without a vector.
            DimensionError: a vector of another length.
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
        """Whether something like this was seen on an earlier visit; of a place, whether the robot was here.

        A visit ends where nothing alike was seen for ``gap_s``. Sights of the visit that is going on are not
        earlier ones: what has been in view for a minute was not seen before because of that. What is alike is
        said by vectors, which tell sorts and sizes and not one person from another. So sights of one map must
        also be near each other: places within :data:`memory.questions.recognising.HERE_M`, all else within
        the store's ``merging.max_distance_m``. Places of one map within
        :data:`memory.questions.recognising.SAME_PLACE_M` are the same whatever they look like: there the pose
        decides, and vectors need not be there. What has moved farther is not known again, and the answer
        names it and how far it is away. A vector alone is nowhere: it is compared by looks only.

        Args:
            what: the id of a memory, or a vector; ``None`` for the newest memory of the kind with a vector.
            kind: of what ``None`` stands for, and of what a vector is compared with.
            map_id: ``None`` for all maps.
            gap_s: pause that ends a visit.
            k: most memories in the answer.

        Raises:
            UnknownMemoryError: an id that no memory has, or there is no vector to compare.
            DimensionError: a vector of another length.
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
        distance_m: float = 1.0,
        coming_from: tuple[float, ...] | None = None,
        half_life_s: float = 86_400.0,
    ) -> DrivePose:
        """A pose from which to look at something that is believed to be there.

        Of its latest memories that are not gone or moved away, the one is taken whose
        confidence, halved for every ``half_life_s`` that it is older than the newest and divided by one plus
        the standard deviation of its position in metres, is the largest. The pose lies ``distance_m`` before
        it and faces it: on the side where the robot comes from, or else where the thing is heading. A place
        is driven to itself, with the yaw that it was remembered with.

        Args:
            what: see the class.
            map_id: ``None`` for all maps.
            near, radius_m: metres; only around this point.
            distance_m: from the thing; not for places.
            coming_from: x, y (and z, which the pose then has) of the robot in the map of the thing.
            half_life_s: of the confidence.

        Raises:
            UnknownMemoryError: an id that no memory has.
            DimensionError: a vector of another length.
        """
        if check_numbers("distance_m", (distance_m,), 1)[0] < 0.0:
            raise ValueError(f"distance_m must not be negative, got {distance_m}")
        if check_numbers("half_life_s", (half_life_s,), 1)[0] <= 0.0:
            raise ValueError(f"half_life_s must be above 0, got {half_life_s}")
        meant = self._meanings.of(what, map_id, circle=circle_of(near, radius_m))
        return pose_to(
            self._meanings, meant,
            distance_m=distance_m, coming_from=coming_from, half_life_s=half_life_s,
        )  # fmt: skip
