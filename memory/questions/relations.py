"""Questions about relations, distances and comparisons, one method each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from memory.query import Filter, Query
from memory.questions.boxes import (
    AROUND_ROBOT_M,
    BESIDE_M,
    JUDGES,
    SIDES,
    SIZED,
    UNCERTAIN,
    Box,
    Order,
    RankMeasure,
    Relation,
    RobotPose,
    box_of,
    gap_m,
    is_between,
    side_of,
    side_of_robot,
)
from memory.questions.comparisons import Comparison, Distance, Related, Side, compared
from memory.questions.errors import QuestionError, pose_missing
from memory.questions.meaning import Meanings, Target, What, is_subject
from memory.questions.places import circle_of
from memory.questions.ranking import Ordering, ranked, rooms_of, value_of
from memory.store import MemoryStore
from memory.types import AWAY, Kind, Memory, State
from memory.wording.words import name, point

#: Maximum landmarks of one name, and maximum candidates around each.
MOST_LANDMARKS, MOST_CANDIDATES = 64, 2000
#: Maximum memories that a superlative reads.
MOST_RANKED = 20_000
_NOW: tuple[State, ...] = ("present", "unknown")
_THINGS: tuple[Kind, ...] = ("object", "note")


class _Wanted(NamedTuple):
    """The object that is asked for (None: any), its area, time (None: now) and states (None: not left)."""

    what: What | None
    area: str | None
    between_ns: tuple[int, int] | None
    states: Sequence[State] | None


class CandidateList(NamedTuple):
    """The memories of a list, and the words of the object that it is about."""

    words: str
    memories: list[Memory]


class _Matches(NamedTuple):
    """A landmark, the memories in a relation to it, and those for which the boxes do not decide."""

    landmark: Memory
    memories: list[Memory]
    uncertain: list[Memory]


class SpatialQuestions:
    """Base of :class:`memory.questions.Questions`: questions that compare positions and boxes."""

    _store: MemoryStore
    _meanings: Meanings

    def category_of(self, words: str) -> list[str]:
        """Return the labels of a category (``furniture``: ``table``, ``chair``), unless words are a label."""
        return self._meanings.category_of(words)

    def related(
        self,
        relation: Relation,
        landmark: What | None,
        second: What | None = None,
        *,
        what: What | None = None,
        map_id: str | None = None,
        area: str | None = None,
        between_ns: tuple[int, int] | None = None,
        states: Sequence[State] | None = None,
        pose: RobotPose | None = None,
        limit: int = 50,
    ) -> Related:
        """Find memories in a relation to an object, by the boxes of both.

        The thresholds are those of :mod:`memory.questions.boxes`.

        Args:
            relation: to the landmark.
            landmark: label, words, id or vector; ``None`` for the robot.
            second: the other landmark of ``"between"``.
            what: object that is asked for; ``None`` for all.
            map_id, area: where; ``None`` for everywhere.
            between_ns: time in which it was seen; ``None`` for what is there now.
            states: any of them; ``None`` for what did not leave, or for all in a time.
            pose: x, y in metres and yaw in radians of the robot, for left, right, in front and behind.
            limit: maximum number of memories.

        Raises:
            QuestionError: the pose, the second landmark or the size of the landmark is missing.
        """
        words = "" if what is None else self._meanings.of(what, map_id).words
        wanted = _Wanted(what, area, between_ns, states)
        if relation in SIDES and pose is None:
            raise QuestionError("text", pose_missing(relation))
        if landmark is None:
            if pose is None or relation not in SIDES:
                raise QuestionError("beside", f"'{relation}' needs an object, such as the table")
            around = self._candidates(wanted, map_id, (pose[0], pose[1], AROUND_ROBOT_M))
            at_side = [memory for memory, box in around if side_of_robot(box, pose) == relation]
            return Related(relation, words, (), tuple(at_side[:limit]), between_ns, pose)
        landmarks = self._landmarks(landmark, map_id, area)
        others = None if second is None else self._landmarks(second, map_id, area)
        if not landmarks or others == []:
            missing = self._meanings.of(landmark if not landmarks or second is None else second, map_id)
            raise QuestionError("beside", self._unknown(missing))
        if relation == "between":
            if others is None:
                raise QuestionError("beside", "'between' needs two objects, such as the sofa and the door")
            return self._between(landmarks, others, wanted, words, limit)
        _check_size(relation, landmarks)
        matches = [self._matches(relation, mark, box, wanted, pose) for mark, box in landmarks]
        related = {memory.id or 0: memory for match in matches for memory in match.memories}
        uncertain = [(memory, match.landmark) for match in matches for memory in match.uncertain]
        if not related and uncertain:
            memory, mark = uncertain[0]
            raise QuestionError(
                "beside",
                f"The boxes do not tell whether {name(memory)} is {relation} {name(mark)}, in whose outline"
                f" it is. Ask for example: 'what is next to the {mark.label.lower()}?'",
            )
        marks = tuple(match.landmark for match in matches if match.memories) or (landmarks[0][0],)
        unsure = tuple(memory for memory, _ in uncertain if memory.id not in related)
        latest = _latest_first(related.values())[:limit]
        return Related(relation, words, marks, latest, between_ns, pose, unsure)

    def _matches(
        self, relation: Relation, landmark: Memory, box: Box, wanted: _Wanted, pose: RobotPose | None
    ) -> _Matches:
        """Return the memories around a landmark that are in the relation, and those that may be."""
        reach = math.hypot(box.length, box.width) + 2 * BESIDE_M
        around = self._candidates(wanted, landmark.map_id, (box.x, box.y, reach))
        others = [(memory, other) for memory, other in around if memory.id != landmark.id]
        if relation in JUDGES:
            related = [memory for memory, other in others if JUDGES[relation](other, box)]
        else:
            related = [memory for memory, other in others if pose and side_of(other, box, pose) == relation]
        may_be = UNCERTAIN.get(relation)
        uncertain = [memory for memory, other in others if may_be is not None and may_be(other, box)]
        return _Matches(landmark, related, uncertain)

    def _between(
        self,
        firsts: Sequence[tuple[Memory, Box]],
        seconds: Sequence[tuple[Memory, Box]],
        wanted: _Wanted,
        words: str,
        limit: int,
    ) -> Related:
        """Answer for the closest pair of landmarks."""
        closest = _closest(firsts, seconds)
        if closest is None:
            raise QuestionError("beside", "Both objects of 'between' must be different and in one map")
        length, (first, start), (second, end) = closest
        circle = ((start.x + end.x) / 2, (start.y + end.y) / 2, length)
        inside = [
            memory
            for memory, box in self._candidates(wanted, first.map_id, circle)
            if memory.id not in (first.id, second.id)
            and is_between(box, start, end)
            and not (start.covers(box.x, box.y) or end.covers(box.x, box.y))
        ]
        latest = _latest_first(inside)[:limit]
        return Related("between", words, (first, second), latest, wanted.between_ns)

    def distance(
        self,
        what: What,
        other: What | None = None,
        *,
        near: tuple[float, ...] | None = None,
        map_id: str | None = None,
        area: str | None = None,
    ) -> Distance:
        """Measure the distance between two objects, or of one from a point.

        Of several objects of one name, the two that are closest to each other are meant.

        Args:
            what, other: see :class:`memory.questions.Questions`.
            near: x, y in metres, in place of ``other``.
            map_id, area: where; ``None`` for everywhere.

        Raises:
            QuestionError: the objects are in different maps, or the second one is missing.
        """
        words = self._meanings.of(what, map_id).words
        first = self._landmarks(what, map_id, area)
        if near is not None:
            ends = [(math.dist(box[:2], near[:2]), memory) for memory, box in first]
            if not ends:
                return Distance(words, point(near), (), None)
            far, memory = min(ends, key=lambda end: end[0])
            return Distance(words, point(near), (memory,), far)
        if other is None:
            raise QuestionError("beside", "'distance' needs a second object or a point")
        second = self._landmarks(other, map_id, area)
        named = self._meanings.of(other, map_id).words
        if not first or not second:
            return Distance(words, named, tuple(memory for memory, _ in (*first[:1], *second[:1])), None)
        closest = _closest(first, second)
        if closest is None:
            raise QuestionError("beside", f"{words} and {named} are not two objects of one map")
        far, (one, box), (two, end) = closest
        gap = gap_m(box, end) if box.volume and end.volume else None
        return Distance(words, named, (one, two), far, gap)

    def closer(
        self,
        anchor: What,
        choices: Sequence[str | int],
        *,
        order: Order,
        yes_no: bool,
        map_id: str | None = None,
    ) -> Comparison:
        """Compare the distances of several objects from one."""
        sides = []
        for choice in choices:
            sides.append(
                Side(self._words_of(choice, map_id), self.distance(choice, anchor, map_id=map_id).distance_m)
            )
        return compared(
            "distance", order, self._meanings.of(anchor, map_id).words, tuple(sides), yes_no=yes_no
        )

    def compare_by(
        self,
        measure: RankMeasure,
        choices: Sequence[str | int],
        *,
        order: Order,
        yes_no: bool,
        map_id: str | None = None,
        area: str | None = None,
        between_ns: tuple[int, int] | None = None,
        among: Literal["there", "all", "left"] = "there",
    ) -> Comparison:
        """Compare objects by a measure such as size or number of observations.

        Of several objects of one name, the observations add up, and otherwise the one with the most (least)
        counts.

        Args:
            measure: what is compared.
            choices: the objects.
            order: whether the most or the least is asked for.
            yes_no: True if the question is whether the first one wins.
            map_id, area: where; ``None`` for everywhere.
            between_ns: time of the observations; ``None`` for all.
            among: memories that count: those that are there, or else all; all; or those that left.

        Raises:
            QuestionError: the measure of an object is not known, or an object did not leave.
        """
        sides = []
        for choice in choices:
            meant = self._meanings.of(choice, map_id, between_ns, None, area)
            found = self._meanings.memories(meant, newest_first=between_ns is None, limit=MOST_CANDIDATES)
            away = [memory for memory in found if memory.state in AWAY]
            if found and among == "left":
                if not away:
                    raise QuestionError(
                        "what",
                        f"I don't know that {choice} left. Ask for example: 'is the {choice} still there?'",
                    )
                found = away
            if among == "there" and measure not in ("speed", "observations"):
                found = [memory for memory in found if memory.state not in AWAY] or found
            ranks = [value_of(memory, measure, order, None, between_ns) for memory in found]
            known = [rank.value for rank in ranks if rank is not None]
            if found and not known:
                raise QuestionError(
                    "what",
                    f"The {measure.replace('_', ' ')} of {choice} is not known. I can answer where, when and"
                    f" how many. Ask for example: 'where is the {choice}?'",
                )
            best = sum if measure == "observations" else min if order == "less" else max
            sides.append(Side(self._words_of(choice, map_id), best(known) if known else None))
        what = "left" if among == "left" else ""
        found_sides = compared(measure, order, what, tuple(sides), yes_no=yes_no)
        return replace(found_sides, between_ns=between_ns)

    def ranked(
        self,
        measure: RankMeasure,
        order: Order,
        what: What | None = None,
        *,
        nth: int = 1,
        map_id: str | None = None,
        area: str | None = None,
        near: tuple[float, ...] | None = None,
        radius_m: float | None = None,
        between_ns: tuple[int, int] | None = None,
        past: bool = False,
        kinds: Sequence[Kind] | None = None,
        among: Sequence[Memory] | None = None,
        without: int | None = None,
        limit: int = 10,
    ) -> Ordering:
        """Put memories in the order of a measure, such as the nearest or the largest first.

        Memories of what is there now are compared, or else those of what left. With a time or ``past``, both
        are compared.

        Args:
            measure, order: what puts them in order, and whether the most or the least comes first.
            what: see :class:`memory.questions.Questions`; ``None`` for all objects.
            nth: 2 for the second in this order.
            map_id, area: where; ``None`` for everywhere.
            near: x, y in metres that distances are measured from.
            radius_m: maximum distance from ``near``; ``None`` for any.
            between_ns: time in which they were seen; ``None`` for all times.
            past: True compares what left as well.
            kinds: of memories; ``("place",)`` compares rooms.
            among: these memories instead of all.
            without: id of a memory that does not count, such as the landmark.
            limit: maximum number of the memories that follow.

        Raises:
            QuestionError: more than :data:`MOST_RANKED` memories match, or the measure of none is known.
        """
        words = "" if what is None else self._meanings.of(what, map_id).words
        if among is None:
            circle = circle_of(near, radius_m) if radius_m is not None else None
            plain: tuple[Kind, ...] = ("object", "event") if past or between_ns else ("object",)
            chosen = tuple(kinds or plain) if what is None or kinds else None
            limits = Filter(kinds=chosen, map_id=map_id, area=area, circle=circle, between_ns=between_ns)
            origin = None if order == "more" else near
            among = self.candidates(what, limits, past=past, origin=origin).memories
        found = [memory for memory in among if memory.id != without]
        values = [value_of(memory, measure, order, near, between_ns) for memory in found]
        if found and not any(values):
            raise QuestionError(
                "what",
                f"The {measure.replace('_', ' ')} of {words or 'these memories'} is not known. Ask for"
                f" example: 'where is the {found[0].label.lower() or 'car'}?'",
            )
        if kinds == ("place",):
            values = rooms_of([each for each in values if each is not None], self._store.areas(), measure)
        place = f" {point(near)}" if measure == "distance" and near is not None else ""
        place += f" in {area}" if area else ""
        return ranked(
            values, measure=measure, order=order, nth=nth, what=words, place=place, between_ns=between_ns,
            most=limit,
        )  # fmt: skip

    def candidates(
        self,
        what: What | None,
        limits: Filter,
        *,
        past: bool = False,
        origin: tuple[float, ...] | None = None,
    ) -> CandidateList:
        """Return the memories that superlatives and conditions compare.

        Args:
            what: see :class:`memory.questions.Questions`; ``None`` for all objects.
            limits: place, time, kinds and states.
            past: False prefers what is there: what left counts only if there is nothing else.
            origin: x, y in metres; of too many memories, those nearest to it are returned.

        Raises:
            QuestionError: more than :data:`MOST_RANKED` memories match.
        """
        words = ""
        limits = self._store.database.resolve(limits)
        if what is not None:
            meant = self._meanings.of(what, limits.map_id, circle=limits.circle)
            words = meant.words
            if meant.ids is not None:
                only = meant._replace(filter=replace(meant.filter, region=limits.region))
                return CandidateList(words, self._meanings.memories(only, newest_first=True))
            limits = replace(limits, labels=limits.labels or meant.filter.labels, text=meant.filter.text)
        if limits.between_ns is not None:
            found, total = self._store.find_seen(limits, limit=MOST_RANKED, vectors=False)
        else:
            now = limits if past or limits.states is not None else replace(limits, states=_NOW)
            limits = now if past or self._store.count(now) else limits
            total = self._store.count(limits)
            if total <= MOST_RANKED:
                found = self._store.find(limits, vectors=False)
            elif origin is not None:
                query = Query(near=origin[:2], where=limits, k=MOST_LANDMARKS, order="distance")
                return CandidateList(words, [hit.memory for hit in self._store.query(query)])
        if total > MOST_RANKED:
            raise QuestionError(
                "what",
                f"{total} memories match, and a superlative or condition reads at most {MOST_RANKED}. Limit"
                " it by an area, a place or a time",
            )
        if limits.text is not None:
            found = [memory for memory in found if is_subject(limits.text, memory)]
        return CandidateList(words, found)

    def _landmarks(self, what: What, map_id: str | None, area: str | None) -> list[tuple[Memory, Box]]:
        """Return the memories of a landmark with their boxes: those that are there, else those that left."""
        meant = self._meanings.of(what, map_id, area=area)
        found = self._meanings.memories(meant, newest_first=True, limit=MOST_LANDMARKS)
        if meant.filter.text is not None:
            # A wall in the caption of crutches is no landmark.
            found = [memory for memory in found if is_subject(meant.filter.text, memory)]
        boxes = [(memory, box) for memory in found if (box := box_of(memory)) is not None]
        boxes = [pair for pair in boxes if pair[0].kind != "event"] or boxes
        return [pair for pair in boxes if pair[0].state not in AWAY] or boxes

    def _candidates(
        self, wanted: _Wanted, map_id: str | None, circle: tuple[float, float, float]
    ) -> list[tuple[Memory, Box]]:
        """Return memories in a circle with their boxes: what is there now, or was seen in a time."""
        what, area, between_ns, states = wanted
        if what is not None:
            meant = self._meanings.of(what, map_id, between_ns, circle, area)
            found = self._meanings.memories(meant, newest_first=between_ns is None, limit=MOST_CANDIDATES)
        else:
            parts: dict[str, Any] = {"map_id": map_id, "area": area, "circle": circle}
            if between_ns is None:
                limits = Filter(kinds=_THINGS, states=states or _NOW, **parts)
                found = self._store.find(limits, limit=MOST_CANDIDATES, vectors=False)
            else:
                limits = Filter(kinds=(*_THINGS, "event"), between_ns=between_ns, **parts)
                found = self._store.find_seen(limits, limit=MOST_CANDIDATES, vectors=False)[0]
        if states is not None:
            there = [memory for memory in found if memory.state in states]
        else:
            there = [memory for memory in found if between_ns is not None or memory.state not in AWAY]
        return [(memory, box) for memory in there if (box := box_of(memory)) is not None]

    def _words_of(self, choice: str | int, map_id: str | None) -> str:
        """Return an object of a comparison in words."""
        return choice if isinstance(choice, str) else self._meanings.of(choice, map_id).words

    def _unknown(self, meant: Target) -> str:
        counts = self._store.label_counts()
        known = next((label for label in sorted(counts, key=lambda label: -counts[label]) if label), "mug")
        return (
            f"I don't know an object called '{meant.words}' with a position. Ask for example: 'what is near"
            f" the {known.lower()}?'"
        )


def _check_size(relation: Relation, landmarks: Sequence[tuple[Memory, Box]]) -> None:
    """Raise ``QuestionError`` if the relation needs a size and no landmark has one."""
    if relation in SIZED and all(box.volume == 0.0 for _, box in landmarks):
        mark = landmarks[0][0]
        raise QuestionError(
            "beside",
            f"The size of {name(mark)} is not known, so I cannot say what is {relation} it. Ask for"
            f" example: 'what is near the {mark.label.lower()}?'",
        )


def _closest(
    firsts: Sequence[tuple[Memory, Box]], seconds: Sequence[tuple[Memory, Box]]
) -> tuple[float, tuple[Memory, Box], tuple[Memory, Box]] | None:
    """Return the distance of the closest two different objects of one map in metres, and both; else None."""
    pairs = (
        (math.dist(a[1][:2], b[1][:2]), a, b)
        for a in firsts
        for b in seconds
        if a[0].id != b[0].id and a[0].map_id == b[0].map_id
    )
    return min(pairs, key=lambda pair: pair[0], default=None)


def _latest_first(memories: Any) -> tuple[Memory, ...]:
    ordered = sorted(memories, key=lambda memory: (memory.last_sight_ns, memory.id or 0), reverse=True)
    return tuple(ordered)
