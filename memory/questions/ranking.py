"""The first of several memories by a measure: nearest, largest, seen most often, seen first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory.areas import Area
from memory.plain_values import OMITTED
from memory.questions.answers import Answer, between_words
from memory.questions.boxes import Box, Order, RankMeasure, box_of
from memory.questions.places import areas_around
from memory.questions.visits import first_within, visits_of
from memory.types import AWAY, Memory
from memory.wording.words import STATE_WORDS, duration, listed, moment, name, plural, point

#: Pause that ends a visit, in seconds.
_GAP_S = 60.0
#: Words of the most and the least of each measure.
_WORDS: Mapping[RankMeasure, tuple[str, str]] = {
    "distance": ("Farthest from", "Nearest to"),
    "size": ("Largest box", "Smallest box"),
    "length": ("Longest box", "Shortest box"),
    "width": ("Widest box", "Narrowest box"),
    "height": ("Tallest box", "Flattest box"),
    "elevation": ("Highest", "Lowest"),
    "speed": ("Fastest", "Slowest"),
    "observations": ("Most often seen", "Least often seen"),
    "duration": ("Longest from first to last observation", "Shortest from first to last observation"),
    "first_seen": ("Newest", "Earliest seen"),
    "last_seen": ("Latest seen", "Longest unseen"),
}
_ORDINALS = {2: "Second", 3: "Third", 4: "Fourth"}
#: Units of measures that are not in metres.
_UNITS = {"size": "m³", "speed": "m/s"}
#: Measures in metres, and the volume of a box, whose sides are.
LENGTHS: tuple[RankMeasure, ...] = ("distance", "size", "length", "width", "height", "elevation")
#: Largest share of its other sides that the depth of a board or screen has.
_PANEL_SHARE = 0.25
#: Lengths and volumes of a box; 0 if its size is not known.
_SIDES: Mapping[RankMeasure, Callable[[Box], float]] = {
    "size": lambda box: box.volume,
    "length": lambda box: max(box.length, box.width),
    "width": lambda box: max(box.length, box.width) if _is_panel(box) else box.width,
    "height": lambda box: box.height,
}


def _is_panel(box: Box) -> bool:
    """Return True for an upright board or screen, whose short side is its depth."""
    depth = min(box.length, box.width)
    return depth <= _PANEL_SHARE * max(box.length, box.width) and depth <= _PANEL_SHARE * box.height


@dataclass(frozen=True)
class Ranked:
    """A memory with its value.

    Attributes:
        memory: the object, or the place of a room.
        value: metres, cubic metres, metres a second, observations, or nanoseconds.
        room: name of the room, if rooms are compared.
    """

    memory: Memory
    value: float
    room: str = ""

    def __str__(self) -> str:
        return self.room or name(self.memory)


@dataclass(frozen=True)
class Ordering(Answer):
    """Memories in the order of a measure.

    Attributes:
        measure: what puts them in order.
        order: whether the most or the least comes first.
        what: object in words; empty for all.
        nth: 1 for the first, 2 for the second.
        first: the memory at this place; several if their values are equal.
        following: the next ones.
        compared: number of memories with a value.
        unknown: number of memories without a value, such as a size.
        place: place of the memories, or what distances are measured from, in words.
        between_ns: first and last nanosecond of the observations; ``None`` for all.
        holds: whether it is the object that the question names; ``None`` if it names none.
    """

    question: Literal["ranked"] = field(default="ranked", init=False)
    measure: RankMeasure
    order: Order
    what: str
    nth: int
    first: tuple[Ranked, ...]
    following: tuple[Ranked, ...]
    compared: int
    unknown: int
    place: str
    between_ns: tuple[int, int] | None = None
    holds: bool | None = field(default=None, metadata=OMITTED)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The memories at the place that is asked for."""
        return tuple(each.memory for each in self.first)

    def __str__(self) -> str:
        what = f" of {self.what!r}" if self.what else ""
        when = "" if self.between_ns is None else f" {between_words(self.between_ns)}"
        if not self.first:
            return f"No memories{what}{self.place}{when}."
        verdict = {True: "Yes: ", False: "No: ", None: ""}[self.holds]
        word = f"{verdict}{_WORDS[self.measure][self.order == 'less']}"
        if self.nth > 1:
            word = f"{_ORDINALS[self.nth]} {word.lower()}"
        best = [f"{each} at {point(each.memory.position)}" for each in self.first]
        away = {STATE_WORDS[each.memory.state] for each in self.first if each.memory.state in AWAY}
        state = f", {' and '.join(sorted(away))} now" if away and len(self.first) == 1 else ""
        equal = "" if len(best) == 1 else f"{len(best)} equal: "
        text = f"{word}{self.place}{when}: {equal}{listed(best)}, {self._value(self.first[0])}{state}."
        if self.following:
            after = [f"{each}, {self._value(each)}" for each in self.following]
            text += f" Then {listed(after, most=2, total=self.compared - self.nth + 1 - len(self.first))}."
        stay = (each for each in self.following if each.memory.state not in AWAY)
        there = next((each for each in stay if each.memory.kind != "event"), None)
        if away and there is not None and (self.measure, self.order) == ("last_seen", "less"):
            text += f" Of those that did not leave: {there}, {self._value(there)}."
        if self.unknown:
            text += (
                f" {plural(self.unknown, 'more memory', 'more memories')} without a known {self._known()}."
            )
        return text

    def _known(self) -> str:
        return {"speed": "speed", "distance": "position"}.get(self.measure, "size")

    def _value(self, each: Ranked) -> str:
        box = box_of(each.memory) if self.measure == "size" else None
        sides = "" if box is None else f" ({box.length:.2f} x {box.width:.2f} x {box.height:.2f} m)"
        return f"{value_words(self.measure, each.value)}{sides}"


def value_words(measure: RankMeasure, value: float) -> str:
    """Return a value with its unit."""
    if measure in ("first_seen", "last_seen"):
        return f"{measure.replace('_', ' ')} on {moment(int(value))}"
    if measure == "observations":
        return plural(int(value), "observation")
    if measure == "duration":
        return duration(value)
    digits = 3 if measure == "size" else 2
    return f"{value:.{digits}f} {_UNITS.get(measure, 'm')}"


def ranked(
    values: Sequence[Ranked | None], *, measure: RankMeasure, order: Order, nth: int, what: str, place: str,
    between_ns: tuple[int, int] | None, most: int,
) -> Ordering:  # fmt: skip
    """Return memories in order.

    Args:
        values: one per memory; None if the value is not known.
        measure, order, nth, what, place, between_ns: see :class:`Ordering`.
        most: maximum number of the following ones.
    """
    known = [each for each in values if each is not None]
    known.sort(key=lambda each: (each.value if order == "less" else -each.value, -(each.memory.id or 0)))
    first: list[Ranked] = []
    if len(known) >= nth:
        first = [each for each in known if each.value == known[nth - 1].value]
    after = [each for each in known[nth - 1 :] if each not in first]
    return Ordering(
        measure, order, what, nth, tuple(first), tuple(after[:most]), len(known), len(values) - len(known),
        place, between_ns,
    )  # fmt: skip


def value_of(
    memory: Memory,
    measure: RankMeasure,
    order: Order,
    origin: Sequence[float] | None,
    between_ns: tuple[int, int] | None,
) -> Ranked | None:
    """Return a memory with its value; None if it is not known."""
    if measure == "observations":
        count = memory.count if between_ns is None else visits_of([memory], _GAP_S, between_ns).sightings
        return Ranked(memory, count)
    if measure in ("first_seen", "last_seen"):
        return Ranked(memory, _time_of(memory, measure, between_ns))
    if measure == "duration":
        first, last = (_time_of(memory, time, between_ns) for time in ("first_seen", "last_seen"))
        return Ranked(memory, (last - first) / 1e9)
    if measure == "speed":
        speed = memory.payload.get("speed_m_s", memory.speed_m_s)
        return Ranked(memory, float(speed)) if isinstance(speed, int | float) else None
    box = box_of(memory)
    if box is None:
        return None
    if measure == "distance":
        return None if origin is None else Ranked(memory, math.dist(box[:2], origin[:2]))
    if measure == "elevation":
        return Ranked(memory, box.top if order == "more" else box.bottom) if box.volume else None
    value = _SIDES[measure](box)
    return Ranked(memory, value) if value else None


def _time_of(memory: Memory, measure: RankMeasure, between_ns: tuple[int, int] | None) -> int:
    """Return the first or last observation, within a time if one is given."""
    if measure == "first_seen":
        return memory.first_sight_ns if between_ns is None else first_within(memory, between_ns)
    if between_ns is None:
        return memory.last_sight_ns
    return max((last for _, last in visits_of([memory], _GAP_S, between_ns).spans), default=memory.time_ns)


def rooms_of(values: Sequence[Ranked], areas: tuple[Area, ...], measure: RankMeasure) -> list[Ranked | None]:
    """Return one value per room of places: by the label of a place, or else by the areas around it."""
    rooms: dict[tuple[str, str], Ranked] = {}
    for memory, value in ((each.memory, each.value) for each in values):
        here = memory.position
        around = [] if here is None else areas_around(areas, here[0], here[1], memory.map_id)
        for room in [memory.label] if memory.label else around:
            before = rooms.get((memory.map_id, room), Ranked(memory, 0, room))
            joined = {"observations": before.value + value, "first_seen": min(before.value or value, value)}
            rooms[memory.map_id, room] = Ranked(memory, joined.get(measure, max(before.value, value)), room)
    return list(rooms.values())
