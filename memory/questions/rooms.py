"""Answers about areas: which have an object, how large they are, and whether two objects share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory.areas import Area
from memory.query import Filter
from memory.questions.answers import Answer
from memory.questions.asking import Questions
from memory.questions.boxes import Order
from memory.questions.comparisons import Comparison, Side, compared
from memory.questions.errors import QuestionError
from memory.questions.measuring import area_of
from memory.questions.places import areas_around, room_meant
from memory.questions.reading.parsed import CountBound, ParsedQuestion, Quantifier
from memory.terms import fold
from memory.types import AWAY, Memory
from memory.wording.words import listed, name, plural

_NO_AREAS = "No areas are set, so there are no rooms to compare. Set them with recall area"


@dataclass(frozen=True)
class RoomList(Answer):
    """The areas that have so many objects.

    Attributes:
        what: object in words.
        condition: how many of them, in words.
        quantifier: how many areas have to have so many; ``None`` for a list.
        holds: whether that many do; ``None`` for a list.
        rooms: names of the areas.
        counts: names of all areas with the number of objects that are there.
    """

    question: Literal["rooms"] = field(default="rooms", init=False)
    what: str
    condition: str
    quantifier: Quantifier | None
    holds: bool | None
    rooms: tuple[str, ...]
    counts: tuple[Side, ...]

    def __str__(self) -> str:
        if not self.what:
            return f"{plural(len(self.rooms), 'area')}: {listed(self.rooms, most=len(self.rooms))}."
        verdict = {True: "Yes: ", False: "No: ", None: ""}[self.holds]
        verb = "has" if len(self.rooms) == 1 else "have"
        names = f": {listed(self.rooms, most=len(self.rooms))}" if self.rooms else ""
        counts = listed(
            [f"{side.words} {side.value or 0:.0f}" for side in self.counts], most=len(self.counts)
        )
        areas = plural(len(self.counts), "area")
        text = f"{len(self.rooms)} of {areas} {verb} {self.condition} {self.what}{names}."
        return f"{verdict}{text} Numbers of {self.what}: {counts}."


@dataclass(frozen=True)
class SameRoom(Answer):
    """Areas of two objects, and the answer whether they share one.

    Attributes:
        holds: the answer to the question.
        memories: of both objects, those that are there.
        rooms: names of the areas of each memory.
    """

    question: Literal["same_room"] = field(default="same_room", init=False)
    holds: bool
    memories: tuple[Memory, ...]
    rooms: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        parts = [
            f"{name(memory)} is in {listed(rooms, most=len(rooms)) if rooms else 'no area'}"
            for memory, rooms in zip(self.memories, self.rooms, strict=True)
        ]
        return f"{'Yes' if self.holds else 'No'}: {listed(parts, most=len(parts))}."


def answer_rooms(questions: Questions, parsed: ParsedQuestion) -> RoomList:
    """Return the areas that have as many objects as a question says.

    Raises:
        QuestionError: no area is set, or the object is not known.
    """
    areas = _areas(questions, parsed.map_id)
    bound = parsed.bound or CountBound("at least", 1)
    if parsed.what is None:
        names = tuple(area.name for area in areas)
        return RoomList("", "", None, None, names, ())
    if not questions.knows(str(parsed.what)):
        raise QuestionError(
            "what", f"I don't know an object called '{parsed.what}'. Ask for example: 'what is there?'"
        )
    counts = [
        questions.how_many(parsed.what, map_id=area.map_id, area=area.name).by_state.get("present", 0)
        for area in areas
    ]
    rooms = tuple(area.name for area, count in zip(areas, counts, strict=True) if bound.holds(count))
    holds = None
    if parsed.quantifier is not None:
        holds = bool(rooms) if parsed.quantifier == "any" else len(rooms) == len(areas)
    sides = tuple(Side(area.name, count) for area, count in zip(areas, counts, strict=True))
    return RoomList(str(parsed.what), str(bound), parsed.quantifier, holds, rooms, sides)


def answer_same_room(questions: Questions, parsed: ParsedQuestion) -> SameRoom:
    """Answer whether two objects are in one area.

    Raises:
        QuestionError: where an object is is not known, or several objects of its name are in several areas.
    """
    if parsed.comparing is None:
        raise QuestionError("comparing", "'same_room' needs two objects")
    areas = _areas(questions, parsed.map_id)
    memories: list[Memory] = []
    around: list[set[tuple[str, str]]] = []
    for what in parsed.comparing.choices:
        found = questions.candidates(what, Filter(map_id=parsed.map_id)).memories
        here = [memory for memory in found if memory.position is not None and memory.state not in AWAY]
        if not here:
            raise QuestionError(
                "what", f"I don't know where {what} is now. Ask for example: 'where is the {what}?'"
            )
        rooms = [_rooms_of(areas, memory) for memory in here]
        if any(len(each) != 1 for each in rooms):
            raise QuestionError(
                "what", f"{name(here[0])} is in no area, or in several. Set the areas of the map"
            )
        memories += here
        around.append({each for each, *_ in rooms})
    first, second = around
    if len(first | second) > 1 and first & second:
        raise QuestionError(
            "what", "Some of these objects share an area and others don't. Ask about one of them"
        )
    same = first == second
    names = tuple(tuple(room for _, room in _rooms_of(areas, memory)) for memory in memories)
    return SameRoom(same is (parsed.comparing.order == "same"), tuple(memories), names)


def compared_rooms(questions: Questions, parsed: ParsedQuestion) -> Comparison | None:
    """Return the sizes of the areas that a comparison or superlative names; ``None`` if it names objects."""
    comparing = parsed.comparing
    if comparing is None or comparing.measure not in ("area", "size"):
        return None
    names = comparing.choices if parsed.question == "compare" else (parsed.what,)
    rooms = [area_of(questions, each, parsed.map_id) for each in names]
    if comparing.measure == "size" and (None in rooms or not rooms):
        return None
    found = [room.area for room in rooms if room is not None and room.area is not None]
    return area_sizes(questions, found, comparing.order, parsed.map_id, yes_no=comparing.yes_no)


def area_sizes(
    questions: Questions, names: Sequence[str], order: Order, map_id: str | None, *, yes_no: bool
) -> Comparison:
    """Compare areas by their size in square metres; all areas without names.

    Raises:
        QuestionError: no area is set, or one is not an outline.
    """
    areas = _areas(questions, map_id)
    if names:
        meant = [fold(room_meant(questions.store, each) or each) for each in names]
        chosen = [next(area for area in areas if fold(area.name) == each) for each in meant]
        # One room is compared with all others.
        areas = [*chosen, *(area for area in areas if yes_no and len(names) == 1 and area not in chosen)]
    for area in areas:
        if not area.polygon:
            raise QuestionError(
                "area", f"The area {area.name} is the surroundings of places, which have no size"
            )
    sides = tuple(Side(area.name, _square_metres(area)) for area in areas)
    return compared("area", order, "area", sides, yes_no=yes_no)


def _areas(questions: Questions, map_id: str | None) -> list[Area]:
    areas = [area for area in questions.store.areas() if map_id in (None, area.map_id)]
    if not areas:
        raise QuestionError("area", _NO_AREAS)
    return areas


def _rooms_of(areas: Sequence[Area], memory: Memory) -> list[tuple[str, str]]:
    x, y = memory.place[:2]
    return [(memory.map_id, room) for room in areas_around(tuple(areas), x, y, memory.map_id)]


def _square_metres(area: Area) -> float:
    """Return the size of a polygon by the shoelace formula."""
    corners = area.polygon
    following = (*corners[1:], *corners[:1])
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(corners, following, strict=True))) / 2
