"""Places of questions: the robot, areas, maps and landmarks, before a question is answered."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from memory.areas import find_area
from memory.questions.asking import Questions
from memory.questions.boxes import RobotPose
from memory.questions.errors import QuestionError, pose_missing
from memory.questions.measuring import Where, answer_related, area_of
from memory.questions.reading.understanding import NEARBY_M, RELATED, ParsedQuestion, by_distance
from memory.terms import fold
from memory.types import Kind

#: Questions about one memory.
OF_ONE = ("last_seen", "first_seen", "left", "still_there", "pose_to")
#: Kinds that are in an area; places are what areas are made of.
_THINGS: tuple[Kind, ...] = ("object", "note", "event")


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


def located(questions: Questions, asked: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question whose words for places are replaced by points, areas, maps and memories.

    Raises:
        QuestionError: the pose of the robot or an area is not known.
    """
    asked = _in_map(questions, _in_area(questions, _at_robot(asked, options), options))
    if asked.relation is not None and asked.robot is None:
        asked = _related(questions, asked, options)
    return asked


def _at_robot(asked: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question with the pose of the robot in place of words such as *near me*."""
    if asked.robot is None:
        return asked
    if options.pose is None:
        raise QuestionError("text", pose_missing(asked.robot))
    if asked.relation is not None:
        return asked
    bounded = asked.question != "search" and not by_distance(asked)
    radius = NEARBY_M if asked.radius_m is None and bounded else asked.radius_m
    return replace(asked, near=options.pose[:2], radius_m=radius)


def _in_area(questions: Questions, asked: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question whose place is the name of an area as a question about that area."""
    asked = _about_place(questions, replace(asked, area=asked.area or options.area))
    if asked.area is not None and asked.map_id is None:
        asked = replace(asked, map_id=find_area(questions.store.areas(), asked.area, None).map_id)
    if asked.room is not None:
        room = area_of(questions, asked.room, asked.map_id)
        there = {fold(name): name for name in questions.store.maps()}.get(fold(asked.room))
        if room is None and there is not None:
            room = Where(None, there)
        if room is None:
            raise QuestionError(
                "area",
                f"I don't know an area called {asked.room!r}. Set it with recall area, or ask without it",
            )
        asked = replace(asked, room=None, area=room.area, map_id=room.map_id)
    about = asked.question in ("near", "summarise") and asked.beside is None
    if asked.question in ("distance", "compare"):
        return asked
    where = area_of(questions, asked.what if about else asked.beside, asked.map_id)
    if by_distance(asked):
        if where is None or questions.knows(str(asked.beside)):
            return asked
        centre = find_area(questions.store.areas(), where.area or "", where.map_id).centre
        return replace(asked, beside=None, near=centre, map_id=where.map_id)
    if where is None or asked.relation not in (None, "on", "inside", "next to") or asked.area is not None:
        return asked
    asked = replace(asked, beside=None, radius_m=None, relation=None, area=where.area, map_id=where.map_id)
    asked = replace(asked, what=None) if about else asked
    return replace(asked, question="search", kinds=_THINGS) if asked.question == "near" else asked


def _about_place(questions: Questions, asked: ParsedQuestion) -> ParsedQuestion:
    """Return a question whose object is the name of a map or area as a summary of it."""
    if asked.question not in ("last_seen", "search", "summarise") or not isinstance(asked.what, str):
        return asked
    if asked.beside is not None or asked.area is not None or questions.knows(asked.what):
        return asked
    found = {fold(name): name for name in questions.store.maps()}.get(fold(asked.what))
    where = area_of(questions, asked.what, asked.map_id) or (None if found is None else Where(None, found))
    if where is None:
        return asked
    return replace(asked, question="summarise", what=None, area=where.area, map_id=where.map_id)


def _related(questions: Questions, asked: ParsedQuestion, options: Surroundings) -> ParsedQuestion:
    """Return a question with a relation as one that the answers know.

    The surroundings of a place are meant by *in*, *on* and *next to* it. A question about one object is asked
    about the latest memory in that relation.
    """
    if asked.question == "related":
        return asked
    seen = questions.last_seen(asked.beside, map_id=asked.map_id) if asked.beside is not None else None
    place = None if seen is None or seen.memory is None else seen.memory
    if place is not None and place.kind == "place" and asked.relation in ("on", "inside", "next to"):
        plain = replace(asked, relation=None)
        return replace(plain, what=asked.beside, beside=None) if asked.question == "near" else plain
    if asked.question in RELATED:
        return replace(asked, question="related", radius_m=None)
    if asked.question == "ranked":
        return replace(asked, radius_m=None)
    if asked.question in (*OF_ONE, "how_often"):
        found = answer_related(questions, asked, options.pose, options.k)
        if not found.memories:
            return replace(asked, question="related")
        return replace(asked, what=found.memories[0].id, beside=None, relation=None, radius_m=None)
    return replace(asked, relation=None)


def _in_map(questions: Questions, asked: ParsedQuestion) -> ParsedQuestion:
    """Return a question whose place is the name of a map as a question about that map."""
    place = asked.what if asked.question == "near" and asked.beside is None else asked.beside
    if asked.map_id is not None or not isinstance(place, str) or questions.knows(place):
        return asked
    found = {fold(name): name for name in questions.store.maps()}.get(fold(place))
    if found is None:
        return asked
    asked = replace(asked, map_id=found, beside=None, radius_m=None, relation=None)
    return replace(asked, question="search", what=None) if asked.question == "near" else asked
