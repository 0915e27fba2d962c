"""Places of questions: the robot, areas, maps and landmarks, before a question is answered."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from memory.areas import find_area
from memory.query import Filter
from memory.questions.asking import Questions
from memory.questions.boxes import RobotPose
from memory.questions.errors import QuestionError, pose_missing
from memory.questions.measuring import Where, answer_related, area_of
from memory.questions.places import areas_around
from memory.questions.reading.parsed import NEARBY_M, RELATED, ParsedQuestion, by_distance
from memory.terms import fold
from memory.types import AWAY, Kind
from memory.wording.words import listed, name

#: Questions about one memory.
OF_ONE = ("last_seen", "first_seen", "left", "still_there", "pose_to")
#: Kinds that are in an area; places are what areas are made of.
THINGS: tuple[Kind, ...] = ("object", "note", "event")


class Surroundings(NamedTuple):
    """Options of a question that concern its place.

    Attributes:
        pose: x, y in metres and yaw in radians of the robot.
        area: name of an area that limits the question.
        k: maximum number of memories.
    """

    pose: RobotPose | None
    area: str | None
    k: int


def located(questions: Questions, parsed: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question whose words for places are replaced by points, areas, maps and memories.

    Raises:
        QuestionError: the pose of the robot or an area is not known.
    """
    parsed = _object_described(questions, _in_room_of(questions, _at_robot(parsed, options)))
    parsed = _in_map(questions, _in_area(questions, parsed, options))
    if parsed.relation is not None and parsed.robot is None:
        parsed = _related(questions, parsed, options)
    return parsed


def _at_robot(parsed: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question with the pose of the robot in place of words such as *near me*."""
    if parsed.robot is None:
        return parsed
    if options.pose is None:
        raise QuestionError("text", pose_missing(parsed.robot))
    if parsed.relation is not None:
        return parsed
    bounded = parsed.question != "search" and not by_distance(parsed)
    radius = NEARBY_M if parsed.radius_m is None and bounded else parsed.radius_m
    return replace(parsed, near=options.pose[:2], radius_m=radius)


def _object_described(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Return *describe the cat* as a question about the cat; of a place, its surroundings are meant."""
    placed = parsed.relation or parsed.inside or parsed.near or parsed.since
    if parsed.question != "summarise" or parsed.beside is None or placed:
        return parsed
    seen = questions.last_seen(parsed.beside, map_id=parsed.map_id).memory
    if seen is None or seen.kind == "place":
        return parsed
    return replace(
        parsed, question="last_seen", what=parsed.beside, beside=None, radius_m=None, describes=True
    )


def _in_room_of(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Return a question whose place is the area that an object is in, with the name of the area."""
    what = parsed.beside if parsed.room is None else parsed.room
    if not parsed.room_of or what is None:
        return parsed
    found = questions.candidates(what, Filter(map_id=parsed.map_id)).memories
    here = [memory for memory in found if memory.position is not None and memory.state not in AWAY]
    if not here:
        raise QuestionError("beside", f"I don't know where {what} is, and so not its room. Name the room")
    areas = questions.store.areas()
    rooms = {(memory.map_id, *areas_around(areas, *memory.place[:2], memory.map_id)) for memory in here}
    if len(rooms) != 1 or len(next(iter(rooms))) != 2:
        names = sorted({room for _, *names in rooms for room in names})
        where = f"in {listed(names, most=len(names))}" if names else "in no area that is set"
        verb = "is" if len(here) == 1 else "are"
        raise QuestionError(
            "beside", f"{listed([name(memory) for memory in here])} {verb} {where}. Name the room"
        )
    ((map_id, room),) = rooms
    parsed = replace(parsed, map_id=map_id, room_of=False)
    return replace(parsed, beside=room) if parsed.room is None else replace(parsed, room=room)


def _in_area(questions: Questions, parsed: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question whose place is the name of an area as a question about that area."""
    parsed = _about_place(questions, replace(parsed, area=parsed.area or options.area))
    if parsed.area is not None and parsed.map_id is None:
        parsed = replace(parsed, map_id=find_area(questions.store.areas(), parsed.area, None).map_id)
    if parsed.room is not None:
        room = area_of(questions, parsed.room, parsed.map_id)
        there = {fold(name): name for name in questions.store.maps()}.get(fold(parsed.room))
        if room is None and there is not None:
            room = Where(None, there)
        if room is None:
            raise QuestionError(
                "area",
                f"I don't know an area called {parsed.room!r}. Set it with recall area, or ask without it",
            )
        parsed = replace(parsed, room=None, area=room.area, map_id=room.map_id)
    about = parsed.question in ("near", "summarise") and parsed.beside is None
    if parsed.question in ("distance", "compare"):
        return parsed
    where = area_of(questions, parsed.what if about else parsed.beside, parsed.map_id)
    if by_distance(parsed):
        if where is None or questions.knows(str(parsed.beside)):
            return parsed
        centre = find_area(questions.store.areas(), where.area or "", where.map_id).centre
        return replace(parsed, beside=None, near=centre, map_id=where.map_id)
    if where is None or parsed.relation not in (None, "on", "inside", "next to") or parsed.area is not None:
        return parsed
    parsed = replace(parsed, beside=None, radius_m=None, relation=None, area=where.area, map_id=where.map_id)
    parsed = replace(parsed, what=None) if about else parsed
    return replace(parsed, question="search", kinds=THINGS) if parsed.question == "near" else parsed


def _about_place(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Return a question whose object is the name of a map or area as a summary of it."""
    if parsed.question not in ("last_seen", "search", "summarise") or not isinstance(parsed.what, str):
        return parsed
    if parsed.beside is not None or parsed.area is not None or questions.knows(parsed.what):
        return parsed
    found = {fold(name): name for name in questions.store.maps()}.get(fold(parsed.what))
    where = area_of(questions, parsed.what, parsed.map_id) or (None if found is None else Where(None, found))
    if where is None:
        return parsed
    return replace(parsed, question="summarise", what=None, area=where.area, map_id=where.map_id)


def _related(questions: Questions, parsed: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question with a relation as one that the answers know.

    The surroundings of a place are meant by *in*, *on* and *next to* it. A question about one object is asked
    about the latest memory in that relation.
    """
    if parsed.question == "related":
        return parsed
    seen = questions.last_seen(parsed.beside, map_id=parsed.map_id) if parsed.beside is not None else None
    place = None if seen is None or seen.memory is None else seen.memory
    if place is not None and place.kind == "place" and parsed.relation in ("on", "inside", "next to"):
        plain = replace(parsed, relation=None)
        return replace(plain, what=parsed.beside, beside=None) if parsed.question == "near" else plain
    if parsed.question in RELATED:
        return replace(parsed, question="related", radius_m=None)
    if parsed.question in ("ranked", "select"):
        return replace(parsed, radius_m=None)
    if parsed.question in (*OF_ONE, "how_often"):
        found = answer_related(questions, parsed, options.pose, options.k)
        if not found.memories:
            return replace(parsed, question="related")
        return replace(parsed, what=found.memories[0].id, beside=None, relation=None, radius_m=None)
    if parsed.question == "new_between":
        raise QuestionError(
            "relation",
            f"First observations have no '{parsed.relation}'; I can limit them by a room, a point or 'near'."
            f" Ask for example: 'what was new yesterday near the {parsed.beside}?'",
        )
    return replace(parsed, relation=None)


def _in_map(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Return a question whose place is the name of a map as a question about that map."""
    place = parsed.what if parsed.question == "near" and parsed.beside is None else parsed.beside
    if parsed.map_id is not None or not isinstance(place, str) or questions.knows(place):
        return parsed
    found = {fold(name): name for name in questions.store.maps()}.get(fold(place))
    if found is None:
        return parsed
    parsed = replace(parsed, map_id=found, beside=None, radius_m=None, relation=None)
    return replace(parsed, question="search", what=None) if parsed.question == "near" else parsed
