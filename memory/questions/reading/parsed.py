"""A question in parts, as the grammar reads it and programs write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from memory.questions.boxes import RankMeasure, Relation
from memory.questions.changes import Change
from memory.questions.reading.comparing import Comparing
from memory.questions.reading.times import Span
from memory.types import Kind, State

#: Radius around a point if the question gives none, in metres.
NEARBY_M = 5.0
#: Questions that a relation to an object can limit.
RELATED = ("between", "how_many", "last_seen", "near", "search", "still_there", "summarise")
#: How a value compares with the bound of a condition.
Bound = Literal["more", "less", "at least", "at most", "exactly"]
BOUNDS: tuple[Bound, ...] = get_args(Bound)
#: How many of several objects have to meet the conditions.
Quantifier = Literal["all", "any", "both", "none"]
QUANTIFIERS: tuple[Quantifier, ...] = get_args(Quantifier)


class CountBound(NamedTuple):
    """How many objects there have to be."""

    bound: Bound
    number: int

    def holds(self, count: int) -> bool:
        """Return True if a number of objects is within the bound."""
        return {
            "more": count > self.number,
            "less": count < self.number,
            "at least": count >= self.number,
            "at most": count <= self.number,
            "exactly": count == self.number,
        }[self.bound]

    def __str__(self) -> str:
        if self == ("exactly", 0):
            return "no"
        words = {"more": "more than", "less": "fewer than"}.get(self.bound, self.bound)
        return f"{words} {self.number}"


@dataclass(frozen=True)
class ObjectCondition:
    """A condition on each object of a list: lists that it has to be in, or a bound of a measure.

    Attributes:
        words: the condition in words, such as *not in the kitchen*.
        asked: questions for lists. An object meets the condition if one of their answers has it.
        measure, bound: of a bound.
        value: metres, cubic metres, metres a second, observations or nanoseconds.
        anchor: label, words or id of the object whose value is the bound, or from which distances are
            measured.
        near: x, y in metres that distances are measured from.
        negated: True if the opposite must hold.
    """

    words: str
    asked: tuple[ParsedQuestion, ...] = ()
    measure: RankMeasure | None = None
    bound: Bound = "more"
    value: float | None = None
    anchor: str | int | None = None
    near: tuple[float, ...] | None = None
    negated: bool = False


@dataclass
class ParsedQuestion:
    """A question in parts; ``None`` for parts that were not given.

    Attributes:
        question: intent; ``"search"`` for words without one.
        what: label or words, the id of a memory, or a vector.
        near: x, y (and z) in metres.
        beside: label, words or id of a memory whose place is meant instead of a point.
        radius_m: around it.
        between: first and last nanosecond.
        since: nanoseconds.
        lately: the question has no start time, so ``since`` is a day ago.
        map_id: of the map.
        unit: of the distance that is asked for, as typed.
        area: name of an area of the store.
        relation: to ``beside``, or to the robot.
        beside_too: the second landmark of *between*.
        room: words of the place that limits a relation.
        robot: the words that mean the place of the robot.
        comparing: a comparison of distances or sizes, or of the counts of all areas; or a superlative.
        sides: two counts that are compared.
        conditions: on each object of a list; all must hold.
        quantifier: the question is whether all, both or none of the objects meet the conditions.
        bound: how many of the objects there have to be, or a room has to have, for a yes.
        distinct: the question is how many kinds of objects there are, not how many objects.
        room_of: the place is not ``beside``, but the area that it is in.
        parts: questions that are answered one after the other.
        inside: the place means a room or area, not what is around it.
        nearest: of several objects, the one closest to the place is meant.
        past: the question is what was there, not what is.
        described: ``what`` is a word of captions, such as *grey* of *anything grey*.
        describes: the object is to be described, not only located.
        many: the question is where several objects are.
        now_ns: the moment of the question, if it asks how long ago something was.
        time_unit: unit of the duration that is asked for: hours, days.
        stayed: the question is how long something was there, not how long it was seen.
        kinds, states: any of them.
        changes: any of new, gone and moved.
        typed: the words, if they have no intent.
        problem: reason of a refusal, with ``{thing}`` for an object of the store. It does not count if the
            store knows the words.
        nouns: noun phrases of a refused question.
        asides: remarks on words that were left out, because the store cannot check them.
    """

    question: str
    what: Any = None
    near: tuple[float, ...] | None = None
    beside: str | int | None = None
    radius_m: float | None = None
    between: Span | None = None
    since: int | None = None
    lately: bool = False
    map_id: str | None = None
    unit: str | None = None
    area: str | None = None
    relation: Relation | None = None
    beside_too: str | int | None = None
    room: str | None = None
    robot: str | None = None
    comparing: Comparing | None = None
    sides: tuple[ParsedQuestion, ParsedQuestion] | None = None
    conditions: tuple[ObjectCondition, ...] = ()
    quantifier: Quantifier | None = None
    bound: CountBound | None = None
    distinct: bool = False
    room_of: bool = False
    parts: tuple[ParsedQuestion, ...] = ()
    inside: bool = False
    nearest: bool = False
    past: bool = False
    described: bool = False
    describes: bool = False
    many: bool = False
    now_ns: int | None = None
    time_unit: str | None = None
    stayed: bool = False
    kinds: tuple[Kind, ...] | None = None
    states: tuple[State, ...] | None = None
    changes: tuple[Change, ...] | None = None
    typed: str | None = None
    problem: str | None = None
    nouns: tuple[str, ...] = ()
    asides: tuple[str, ...] | None = None

    def given(self) -> dict[str, Any]:
        """Return the parts that were given."""
        hidden = (
            "comparing",
            "inside",
            "lately",
            "distinct",
            "nearest",
            "past",
            "described",
            "describes",
            "many",
            "now_ns",
            "time_unit",
            "stayed",
            "kinds",
            "states",
            "changes",
            "typed",
            "problem",
            "nouns",
            "sides",
            "conditions",
            "parts",
            "bound",
        )
        found = {
            name: value
            for name, value in vars(self).items()
            if value is not None and value is not False and name not in hidden
        }
        if self.conditions:
            found["conditions"] = [condition.words for condition in self.conditions]
        if self.parts:
            found["parts"] = [part.given() for part in self.parts]
        return found


def by_distance(asked: ParsedQuestion) -> bool:
    """Return True if a question is for the nearest or the most distant object."""
    return (
        asked.question == "ranked" and asked.comparing is not None and asked.comparing.measure == "distance"
    )
