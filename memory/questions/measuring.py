"""Answers to parsed questions about relations, distances and comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from memory.areas import find_area
from memory.query import Filter
from memory.questions.answers import Answer, HowMany
from memory.questions.asking import Questions
from memory.questions.boxes import RobotPose
from memory.questions.comparisons import Comparison, Distance, Related, Side, compared
from memory.questions.errors import QuestionError
from memory.questions.places import room_meant
from memory.questions.ranking import Ordering
from memory.questions.reading.comparing import Comparing
from memory.questions.reading.parsed import NEARBY_M, ParsedQuestion
from memory.questions.reading.times import until_now
from memory.questions.relations import MOST_CANDIDATES
from memory.terms import fold
from memory.types import Kind, Memory

_ID = re.compile(r"#\d+$")


class Where(NamedTuple):
    """An area, or None for all of a map, and the map."""

    area: str | None
    map_id: str


def area_of(questions: Questions, words: Any, map_id: str | None) -> Where | None:
    """Return the area that words name, or ``None``.

    Raises:
        UnknownAreaError: areas of several maps have the name.
    """
    if not isinstance(words, str) or not words:
        return None
    areas = questions.store.areas()
    meant = room_meant(questions.store, words) or words
    found = [each for each in areas if fold(each.name) == fold(meant)]
    found = [each for each in found if map_id in (None, each.map_id)]
    if len(found) > 1:
        find_area(found, words, map_id)  # Raises with the names of the maps.
    return Where(found[0].name, found[0].map_id) if found else None


def answer_related(questions: Questions, parsed: ParsedQuestion, pose: RobotPose | None, k: int) -> Related:
    """Answer a question with a relation."""
    if parsed.relation is None:
        raise QuestionError("relation", "'related' needs a relation, such as on or next to")
    beside = parsed.beside
    if parsed.near is not None and beside is not None:
        # Of several objects of one name, the one at the given point is meant.
        end = questions.distance(beside, near=parsed.near, map_id=parsed.map_id)
        if end.distance_m is None or end.distance_m > NEARBY_M:
            raise QuestionError("near", f"I don't know a {beside} within {NEARBY_M:g} m of {end.other}")
        beside = end.memories[0].id
    span = time_of(parsed)
    return questions.related(
        parsed.relation, beside, parsed.beside_too, what=parsed.what, map_id=parsed.map_id, area=parsed.area,
        between_ns=span, states=parsed.states, pose=pose, limit=k,
    )  # fmt: skip


def answer_ranked(
    questions: Questions,
    parsed: ParsedQuestion,
    pose: RobotPose | None,
    kinds: Sequence[Kind] | None,
    k: int,
    among: Sequence[Memory] | None = None,
) -> Ordering:
    """Answer a superlative; ``among`` are the memories that meet its conditions."""
    comparing = parsed.comparing
    if comparing is None or comparing.measure == "count" or comparing.measure == "area":
        raise QuestionError("measure", "'ranked' needs a measure, such as size or distance")
    if comparing.measure == "distance" and parsed.near is None:
        raise QuestionError("near", "a distance needs a point or an object that it is measured from")
    if among is None and parsed.relation is not None:
        among = answer_related(questions, parsed, pose, MOST_CANDIDATES).memories
    found = questions.ranked(
        comparing.measure, comparing.order, parsed.what, nth=comparing.nth, map_id=parsed.map_id,
        area=parsed.area, near=parsed.near, radius_m=parsed.radius_m, between_ns=time_of(parsed),
        past=parsed.past, kinds=kinds or parsed.kinds, among=among, limit=k,
        without=parsed.beside if isinstance(parsed.beside, int) else None,
    )  # fmt: skip
    if not comparing.choices:
        return found
    # Is the sofa the biggest object?
    limits = Filter(map_id=parsed.map_id)
    named = [questions.candidates(each, limits, past=True).memories for each in comparing.choices]
    ids = {memory.id for memories in named for memory in memories}
    return replace(found, holds=any(each.memory.id in ids for each in found.first))


def time_of(parsed: ParsedQuestion) -> tuple[int, int] | None:
    """Return the time of a question; None for now."""
    span = parsed.between if parsed.since is None else until_now(parsed.since)
    return None if span is None else (span[0], span[1])


def answer_distance(questions: Questions, parsed: ParsedQuestion) -> Distance:
    """Answer how far two objects are apart."""
    if parsed.what is None:
        raise QuestionError("what", "'distance' needs an object")
    if parsed.near is None and isinstance(parsed.beside, str) and not questions.knows(parsed.beside):
        where = area_of(questions, parsed.beside, parsed.map_id)
        if where is not None:
            centre = find_area(questions.store.areas(), where.area or "", where.map_id).centre
            return questions.distance(parsed.what, near=centre, map_id=where.map_id)
    return questions.distance(
        parsed.what, parsed.beside, near=parsed.near, map_id=parsed.map_id, area=parsed.area
    )


def answer_comparison(
    questions: Questions, parsed: ParsedQuestion, ask: Callable[[ParsedQuestion], Answer]
) -> Comparison:
    """Answer a comparison; ``ask`` answers the questions of its sides."""
    comparing = parsed.comparing
    if comparing is None:
        raise QuestionError("comparing", "'compare' needs a measure and what is compared")
    choices = tuple(int(each[1:]) if _ID.match(each) else each for each in comparing.choices)
    if comparing.measure == "distance":
        return questions.closer(
            parsed.what,
            choices,
            order=comparing.order,
            yes_no=comparing.yes_no,
            map_id=parsed.map_id,
        )
    if comparing.measure == "area":
        raise QuestionError("measure", "sizes of areas are compared with each other only")
    if comparing.measure != "count":
        return questions.compare_by(
            comparing.measure,
            choices,
            order=comparing.order,
            yes_no=comparing.yes_no,
            map_id=parsed.map_id,
            area=parsed.area,
            between_ns=time_of(parsed),
            among=comparing.among,
        )
    if parsed.sides is not None:
        sides = [
            Side(
                words if str(side.what) in words else f"{side.what} {words}", _count_of(questions, ask(side))
            )
            for words, side in zip(comparing.choices, parsed.sides, strict=True)
        ]
    else:
        places = _compared_places(questions, parsed, comparing)
        span = time_of(parsed)
        sides = []
        for place in places:
            count = questions.how_many(
                parsed.what, map_id=place.map_id, area=place.area, between_ns=span, kinds=parsed.kinds
            )
            name = place.area or place.map_id
            sides.append(Side(name, _count_of(questions, replace(count, past=parsed.past))))
        if (
            parsed.what is not None
            and not questions.knows(str(parsed.what))
            and all(not side.value for side in sides)
        ):
            sides = [Side(str(parsed.what), None)]
    what = "objects" if parsed.what is None else str(parsed.what)
    return compared("count", comparing.order, what, tuple(sides), yes_no=comparing.yes_no)


def _compared_places(questions: Questions, parsed: ParsedQuestion, comparing: Comparing) -> list[Where]:
    """Return the maps or areas that are compared."""
    if comparing.maps:
        return [Where(None, map_id) for map_id in questions.store.maps()]
    areas = [each for each in questions.store.areas() if parsed.map_id in (None, each.map_id)]
    if not areas:
        raise QuestionError(
            "area",
            "No areas are set, so there are no rooms to compare. Set them with recall area, or ask for"
            f" example: 'how many {parsed.what or 'things'} are there?'",
        )
    return [Where(area.name, area.map_id) for area in areas]


def _count_of(questions: Questions, answer: Answer) -> float | None:
    """Return the number of an answer: what is there now, or was seen in a time; None if it is unknown."""
    if isinstance(answer, Related):
        return len(answer.memories)
    if not isinstance(answer, HowMany):
        return None
    words, _, read = answer.what.partition(" (read for ")
    if answer.memories == 0 and not questions.knows(read.strip("')") or words):
        return None
    return (
        answer.memories if answer.between_ns is not None or answer.past else answer.by_state.get("present", 0)
    )
