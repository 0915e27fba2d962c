"""Answers about relations, distances and comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from memory.questions.answers import Answer, between_words, quoted
from memory.questions.boxes import AROUND_ROBOT_M, MEANINGS, Measure, Order, Relation, RobotPose
from memory.questions.ranking import value_words
from memory.types import Memory
from memory.wording.words import listed, moment, name, plural, point


@dataclass(frozen=True)
class Related(Answer):
    """Memories in a relation to others.

    Attributes:
        relation: to the landmarks.
        what: object in words; empty for all.
        landmarks: memories that the relation refers to; empty for the robot.
        memories: the last seen first.
        between_ns: first and last nanosecond; ``None`` for what is there now.
        pose: x, y in metres and yaw in radians of the robot, if the relation needs it.
        unclear: memories whose boxes do not tell whether they are in the relation.
    """

    question: Literal["related"] = field(default="related", init=False)
    relation: Relation
    what: str
    landmarks: tuple[Memory, ...]
    memories: tuple[Memory, ...]
    between_ns: tuple[int, int] | None = None
    pose: RobotPose | None = None
    unclear: tuple[Memory, ...] = ()

    def __str__(self) -> str:
        around = " and ".join(name(memory) for memory in self.landmarks) or "the robot"
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        where = f"{self.relation} {around}{when}"
        means = f"{MEANINGS[self.relation]}."
        if not self.landmarks:
            means = f"Sides are a quarter of the circle each, within {AROUND_ROBOT_M:g} m."
        if not self.memories:
            return f"No memories{f' of {quoted(self.what)}' if self.what else ''} {where}. {means}"
        parts = [
            f"{name(memory)} at {point(memory.position)}, last seen on {moment(memory.last_sight_ns)}"
            for memory in self.memories
        ]
        count = plural(len(self.memories), "memory", "memories")
        if self.unclear:
            means += f" The boxes do not tell it of {listed([name(memory) for memory in self.unclear])}."
        return f"{count}{f' of {self.what}' if self.what else ''} {where}: {listed(parts)}. {means}"


@dataclass(frozen=True)
class Distance(Answer):
    """Distance between two objects, or of one from a point.

    Attributes:
        what, other: both in words.
        memories: of both, of one if the other is a point; fewer if something is unknown.
        distance_m: between the positions in the plane, in metres; ``None`` if something is unknown.
        gap_m: between the outlines in the plane, if both have a size.
    """

    question: Literal["distance"] = field(default="distance", init=False)
    what: str
    other: str
    memories: tuple[Memory, ...]
    distance_m: float | None
    gap_m: float | None = None

    def __str__(self) -> str:
        if self.distance_m is None:
            known = self.memories[0].label.lower() == self.what.lower() if self.memories else False
            return f"No memory of {quoted(self.other if known else self.what)} with a position."
        names = [f"{name(memory)} at {point(memory.position)}" for memory in self.memories]
        both = " and ".join(names if len(names) > 1 else [*names, self.other])
        gap = "" if self.gap_m is None else f", {self.gap_m:.1f} m between their outlines"
        return f"{self.distance_m:.1f} m between the centres of {both}{gap}."


#: What the values of a measure are, before a list of them.
_MEANS = {
    "size": "volume of the box: ", "length": "longest side of the box: ", "width": "width of the box: ",
    "height": "height of the box: ", "elevation": "top of the box: ", "speed": "speed: ",
}  # fmt: skip


class Side(NamedTuple):
    """One side of a comparison: its words, and a number or ``None`` if it is unknown."""

    words: str
    value: float | None


@dataclass(frozen=True)
class Comparison(Answer):
    """Numbers compared with each other.

    Attributes:
        measure: number of objects, or a measure of :mod:`memory.questions.ranking`.
        order: whether the most or the least is asked for; ``"same"`` for equality.
        what: what is counted or measured, in words.
        sides: the compared ones.
        holds: whether the first side has more (less, the same), if that is asked; otherwise ``None``.
        winner: words of the side with the most (least); ``None`` if unknown or equal.
        between_ns: first and last nanosecond of the observations; ``None`` for all.
    """

    question: Literal["compare"] = field(default="compare", init=False)
    measure: Measure
    order: Order
    what: str
    sides: tuple[Side, ...]
    holds: bool | None
    winner: str | None
    between_ns: tuple[int, int] | None = None

    def __str__(self) -> str:
        unknown = [side.words for side in self.sides if side.value is None]
        if unknown:
            return f"No memories of {quoted(unknown[0])} to compare."
        parts = [f"{side.words} {self._value(side.value or 0.0)}" for side in self.sides]
        start = "" if self.holds is None else "Yes: " if self.holds else "No: "
        tail = "" if self.winner is None or self.holds is not None else f"{self.winner}: "
        tie = "" if self.winner is not None or self.order == "same" else f" ({self._tie()})"
        means = f"distance from {self.what}: " if self.measure == "distance" else _MEANS.get(self.measure, "")
        means = "last observation before it left: " if self.what == "left" else means
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        return f"{start}{tail}{means}{listed(parts, most=len(parts))}{when}{tie}."

    def _value(self, value: float) -> str:
        if self.measure == "count":
            return f"{value:.0f}"
        if self.measure == "area":
            return f"{value:.1f} m²"
        return value_words(self.measure, value)

    def _tie(self) -> str:
        """Return which sides have the best number, if there are several."""
        first = _first(self.order, self.sides)
        return "equal" if len(first) == len(self.sides) else f"equal: {listed(first, most=len(first))}"


def _first(order: Order, sides: tuple[Side, ...]) -> list[str]:
    """Return the words of the sides with the most, or the least; a value must be known."""
    values = [side.value for side in sides if side.value is not None]
    best = min(values) if order == "less" else max(values)
    return [side.words for side in sides if side.value == best]


def compared(
    measure: Measure, order: Order, what: str, sides: tuple[Side, ...], *, yes_no: bool
) -> Comparison:
    """Return a comparison of sides, with the winner and whether it is the first one.

    Args:
        measure, order, what, sides: see :class:`Comparison`.
        yes_no: True if the question is whether the first side wins.
    """
    values = [side.value for side in sides]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return Comparison(measure, order, what, sides, None, None)
    first = _first(order, sides)
    winner = first[0] if len(first) == 1 and order != "same" else None
    holds = None
    if yes_no:
        holds = len(set(known)) == 1 if order == "same" else winner == sides[0].words
    return Comparison(measure, order, what, sides, holds, winner)
