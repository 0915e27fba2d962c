"""Answers to parsed questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from memory.query import Filter, Query
from memory.questions.answers import (
    SIMILAR_TO,
    Answer,
    Changed,
    Departure,
    DrivePose,
    Happened,
    HowOften,
    SearchResult,
    Sighting,
    Similar,
    StillThere,
    Summary,
    between_words,
    quoted,
)
from memory.questions.asking import Questions
from memory.questions.boxes import RobotPose
from memory.questions.changes import only_changes
from memory.questions.errors import QuestionError
from memory.questions.landmarks import OF_ONE, Surroundings, located
from memory.questions.measuring import (
    answer_comparison,
    answer_distance,
    answer_ranked,
    answer_related,
)
from memory.questions.places import areas_around
from memory.questions.reading.refusals import EXAMPLES
from memory.questions.reading.times import until_now
from memory.questions.reading.understanding import NEARBY_M, ParsedQuestion, by_distance
from memory.questions.recognising import SeenBefore
from memory.search.relevance import sentence_of
from memory.types import AWAY, Hit, Kind, Memory, State
from memory.wording.sentences import content_words
from memory.wording.words import STATE_WORDS, counted, listed, moment, name, plural, point


@dataclass(frozen=True, kw_only=True)
class ReplyOptions:
    """Options of a question.

    Attributes:
        labels, kinds, states: filters of memories in lists.
        polygon: corners in metres, for searches and summaries.
        k: maximum number of memories in a list.
        gap_s: pause that ends a visit, in seconds.
        distance_m: distance from an object to drive to.
        coming_from: x, y (and z) of the robot in metres.
        pose: x, y in metres and yaw in radians of the robot, for *near me* and *left of the table*.
        area: name of an area that limits every question.
    """

    labels: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None
    states: Sequence[State] | None = None
    polygon: Sequence[tuple[float, float]] | None = None
    k: int = 10
    gap_s: float = 60.0
    distance_m: float = 1.0
    coming_from: tuple[float, ...] | None = None
    pose: RobotPose | None = None
    area: str | None = None


class Reply(NamedTuple):
    """An answer.

    Attributes:
        asked: the question with labels of the store.
        sentence: the answer for people.
        answer: one of :mod:`memory.questions.answers`.
    """

    asked: ParsedQuestion
    sentence: str
    answer: Answer


def reply(questions: Questions, asked: ParsedQuestion, options: ReplyOptions | None = None) -> Reply:
    """Answer a parsed question.

    Raises:
        QuestionError: a part is missing or not supported.
        UnknownMemoryError: no memory has the id.
        DimensionError: the vector has another length than those of the store.
    """
    options = options or ReplyOptions()
    found = _reply(questions, asked, options)
    note = _note(questions, asked)
    return found._replace(sentence=f"{found.sentence} {note}") if note else found


def _note(questions: Questions, asked: ParsedQuestion) -> str:
    """Return which words were read as a label that means the same."""
    words = [each for each in (asked.what, asked.beside, asked.beside_too) if isinstance(each, str)]
    read = {each: questions.synonym_of(each) for each in words if questions.label_of(each) is None}
    notes = [f"'{word}' read as '{label}'" for word, label in read.items() if label is not None]
    return f"({', '.join(notes)}.)" if notes else ""


def _reply(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Reply:
    asked = match_labels(questions, asked)
    asked = located(questions, asked, Surroundings(options.pose, options.area, options.k))
    if asked.nearest and asked.near is not None:
        asked = _nearest(questions, asked)
    if asked.near is not None and asked.radius_m is None and not _is_unbounded(asked):
        asked = replace(asked, radius_m=NEARBY_M)
    related = asked.question in ("related", "distance", "compare") or asked.relation is not None
    if asked.beside is None or asked.near is not None or related:
        found = answer_of(questions, asked, options)
        return Reply(asked, answer_sentence(questions, asked, found), found)
    places = _places(questions, asked)
    if isinstance(places, Sighting):
        return Reply(asked, answer_sentence(questions, asked, places), places)
    tried = [_near_memory(questions, asked, options, place) for place in places]
    return next((each for each in tried if getattr(each.answer, "memory", None) is not None), tried[0])


def _nearest(questions: Questions, asked: ParsedQuestion) -> ParsedQuestion:
    """Return a question about the object that is closest to its point."""
    found = answer_ranked(questions, replace(asked, radius_m=None), None, None, 1)
    if not found.first:
        return replace(asked, near=None)
    return replace(asked, what=found.first[0].memory.id, near=None, nearest=False)


def _is_unbounded(asked: ParsedQuestion) -> bool:
    """Return True if a point of the question is no limit."""
    return asked.question == "search" or asked.nearest or by_distance(asked)


def _places(questions: Questions, asked: ParsedQuestion) -> list[Memory] | Sighting:
    """Return the memories whose place is meant, the latest first; the empty answer if there are none."""
    beside = asked.beside
    if beside is None:
        raise QuestionError("near", _NO_PLACE)
    seen = questions.last_seen(beside, map_id=asked.map_id)
    if seen.memory is None or asked.question not in OF_ONE or not isinstance(beside, str):
        return seen if seen.memory is None else [seen.memory]
    # Of several doors, the one with the requested object near it is meant.
    others = questions.sightings(beside, map_id=asked.map_id, limit=_MOST_PLACES)
    known = [seen.memory, *(memory for memory in others if memory.id != seen.memory.id)]
    return [memory for memory in known if memory.position is not None] or known[:1]


def _near_memory(questions: Questions, asked: ParsedQuestion, options: ReplyOptions, place: Memory) -> Reply:
    """Answer a question about the surroundings of a memory, which the sentence names."""
    if place.position is None:
        raise QuestionError(
            "near", f"the position of {name(place)} is not known. Give a point, such as (3, 1)"
        )
    radius = NEARBY_M if asked.radius_m is None and not _is_unbounded(asked) else asked.radius_m
    if asked.inside and radius is not None:
        radius = min(radius, _half_way_m(questions, place))
    itself = place.id if asked.nearest or asked.question == "ranked" else asked.beside
    asked = replace(asked, near=place.position[:2], map_id=place.map_id, radius_m=radius, beside=itself)
    if asked.nearest:
        asked = _nearest(questions, asked)
    found = answer_of(questions, asked, options)
    left = "" if place.state not in AWAY else f", which is {STATE_WORDS[place.state]}"
    means = "In" if asked.inside and place.kind == "place" else "Near"
    within = "Distances are from" if radius is None else f"{means} means within {radius:.3g} m of"
    note = f"{within} {name(place)}{left}, last seen at {point(place.position)}."
    return Reply(asked, f"{answer_sentence(questions, asked, found)} {note}", found)


def _half_way_m(questions: Questions, place: Memory) -> float:
    """Return half the distance from a place to the next place of another name, in metres."""
    if place.kind != "place" or place.position is None:
        return math.inf
    x, y = place.position[:2]
    around = Filter(map_id=place.map_id, kinds=("place",), circle=(x, y, 2 * NEARBY_M))
    others = questions.store.find(around, vectors=False)
    away = [math.dist(other.place[:2], (x, y)) for other in others if other.label not in ("", place.label)]
    return min(away, default=math.inf) / 2


def answer_of(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Answer:
    """Answer a question without matching its words to labels; raises the errors of :func:`reply`."""
    return _ASKED[asked.question](questions, asked, options)


def match_labels(questions: Questions, asked: ParsedQuestion) -> ParsedQuestion:
    """Replace the words of a question by labels of the store.

    Raises:
        QuestionError: a part is not understood.
    """
    if asked.problem is not None and not questions.knows(str(asked.typed)):
        raise QuestionError("text", asked.problem.replace("{thing}", _example(questions)))
    for part in ("between", "since", "near", "beside", "area"):
        if getattr(asked, part) is not None and part not in _USED[asked.question]:
            limit = "place" if part in _WHERE else "time"
            raise QuestionError(
                part,
                f"The question '{asked.question}' cannot be limited by {limit}. Ask it without the {limit}",
            )
    beside, too = _known(questions, asked.beside), _known(questions, asked.beside_too)
    return replace(asked, what=_known(questions, asked.what), beside=beside, beside_too=too)


def _known(questions: Questions, what: Any) -> Any:
    """Return the label that matches the words except for case and ending, or means the same; or the words."""
    if not isinstance(what, str):
        return what
    return questions.label_of(what) or questions.synonym_of(what) or what


def answer_sentence(questions: Questions, asked: ParsedQuestion, found: Answer) -> str:
    """Return the sentence of an answer. If nothing was found, add what the store has."""
    sentence = str(found)
    if not sentence.startswith("No memor"):
        return f"{sentence}{_area_sentence(questions, found)}"
    words = found.what if isinstance(found, SearchResult) else getattr(found, "what", "")
    if words and not isinstance(found, Similar) and not questions.knows(words.partition(" (read for ")[0]):
        unknown = (
            f"No memories match {quoted(words)}."
            if asked.typed
            else f"I don't know an object called {quoted(words)}."
        )
        # Without "house" the question is another one, so "house keys" is not read as "keys".
        head = questions.label_of(words.split()[-1]) if len(words.split()) > 1 else None
        if head is not None:
            return f"{unknown} Ask for {head} alone, for example: 'where is the {head.lower()}?'"
        return f"{unknown} {_examples(questions)} {_contents(questions)}"
    if isinstance(found, Sighting | Departure | DrivePose | HowOften | StillThere):
        # The object may be known elsewhere, so name the place.
        limit = "" if asked.map_id is None else f" in map {asked.map_id}"
        limit = limit if asked.area is None else f" in area {asked.area}{limit}"
        if asked.near is not None and asked.radius_m is not None:
            limit = f" within {asked.radius_m:g} m of {point(asked.near)}{limit}"
        sentence = f"{sentence[:-1]}{limit}."
    return f"{sentence} {_contents(questions, timed=_time(asked) is not None)}"


def _area_sentence(questions: Questions, found: Answer) -> str:
    """Return in which areas an object was seen."""
    memory = found.memory if isinstance(found, Sighting) else None
    if memory is None or memory.position is None:
        return ""
    names = areas_around(questions.store.areas(), *memory.position[:2], memory.map_id)
    return f" That is in {listed(names)}." if names else ""


def _examples(questions: Questions) -> str:
    """Return example questions that the store can answer."""
    if not questions.store.label_counts():
        return "Add memories to the store first."
    *others, last = (f"'{each.format(thing=_example(questions))}'" for each in EXAMPLES)
    return f"Ask for example: {', '.join(others)} or {last}."


def _example(questions: Questions) -> str:
    """Return the most frequent label, for example questions."""
    labels = sorted(questions.store.label_counts().items(), key=lambda entry: (-entry[1], entry[0]))
    return next((label.lower() for label, _ in labels if label), "mug")


def _contents(questions: Questions, *, timed: bool = False) -> str:
    """Return a sentence about the memories of the store, or about the newest one."""
    counts = questions.store.label_counts()
    if not counts:
        return "The store is empty."
    if timed:
        return f"The newest memory is of {moment(questions.store.newest_ns)}."
    return f"The store has {plural(sum(counts.values()), 'memory', 'memories')}: {counted(counts)}."


def _time(asked: ParsedQuestion) -> tuple[int, int] | None:
    if asked.between is not None:
        return asked.between[0], asked.between[1]
    return None if asked.since is None else tuple(until_now(asked.since))  # type: ignore[return-value]


def _place(asked: ParsedQuestion) -> dict[str, Any]:
    return {"map_id": asked.map_id, "near": asked.near, "radius_m": asked.radius_m, "area": asked.area}


def _search(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> SearchResult | Happened:
    """Search by label, words or similarity, limited by time and place."""
    if _time(asked) is not None and (asked.what is None or isinstance(asked.what, str)):
        return _between(questions, asked, options)
    values: dict[str, Any] = {}
    words = ""
    if isinstance(asked.what, str):
        words = asked.what
        named = options.labels is None and _is_label(questions, asked)
        values = {"labels": [words]} if named else {"text": content_words(words)}
    elif isinstance(asked.what, int):
        values, words = {"like": asked.what}, f"{SIMILAR_TO}memory {asked.what}"
    elif asked.what is not None:
        values, words = {"embedding": asked.what}, f"{SIMILAR_TO}this vector"
    if options.labels is not None:
        values["labels"] = options.labels
    nearest = asked.near is not None and asked.radius_m is None
    query = Query(
        **_place(asked), polygon=options.polygon, between_ns=_time(asked), kinds=options.kinds or asked.kinds,
        states=options.states or asked.states, k=options.k, order="distance" if nearest else None, **values,
    )  # fmt: skip
    hits = questions.store.query(query)
    return SearchResult(words, tuple(hits), _total(questions, query, hits), _within(asked))


def _is_label(questions: Questions, asked: ParsedQuestion) -> bool:
    """Return True if the store has a label of these words in the map."""
    return bool(questions.store.query(Query(labels=[asked.what], map_id=asked.map_id, k=1)))


def _total(questions: Questions, query: Query, hits: list[Hit]) -> int | None:
    """Return how many memories match; ``None`` for searches that rank instead of filter."""
    if len(hits) < query.k:
        return len(hits)
    if query.like is not None or query.embedding is not None or sentence_of(query) or hits[0].reason:
        return None
    return questions.store.count(query.filter)


def _within(asked: ParsedQuestion) -> str:
    """Return place and time in words."""
    parts = [] if asked.area is None else [f" in area {asked.area}"]
    if asked.near is not None and asked.radius_m is not None:
        parts.append(f" within {asked.radius_m:g} m of {point(asked.near)}")
    when = _time(asked)
    if when is not None:
        parts.append(f" {between_words(when)}")
    return "".join(parts)


def _near(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Answer:
    if asked.what is not None:
        around: dict[str, Any] = {}
        if asked.near is not None:
            around = {"near": asked.near, "radius_m": NEARBY_M if asked.radius_m is None else asked.radius_m}
        seen = questions.last_seen(asked.what, map_id=asked.map_id, **around)
        if seen.memory is None:
            return seen
        if seen.memory.position is None:
            raise QuestionError(
                "near", f"the position of {name(seen.memory)} is not known. Give a point, such as (3, 1)"
            )
        asked = replace(asked, near=seen.memory.position[:2], map_id=seen.memory.map_id, what=None)
        if asked.inside:
            radius = NEARBY_M if asked.radius_m is None else asked.radius_m
            asked = replace(asked, radius_m=min(radius, _half_way_m(questions, seen.memory)))
    if asked.near is None:
        raise QuestionError("near", _NO_PLACE)
    radius = NEARBY_M if asked.radius_m is None else asked.radius_m
    if _time(asked) is not None:
        return _between(questions, replace(asked, radius_m=radius, what=None), options)
    return questions.near(
        asked.near, radius, map_id=asked.map_id, area=asked.area, labels=options.labels,
        kinds=options.kinds or asked.kinds, states=options.states or asked.states, k=options.k,
    )  # fmt: skip


def _between(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Happened:
    when = _time(asked)
    if when is None:
        raise QuestionError("between", "the time is missing. Give the first and the last time")
    text = asked.what if isinstance(asked.what, str) else None
    labels = options.labels
    if text is not None and labels is None and _is_label(questions, asked):
        labels, text = [text], None
    return questions.between(
        *when, **_place(asked), labels=labels, kinds=options.kinds or asked.kinds,
        states=options.states or asked.states, text=text, limit=options.k,
    )  # fmt: skip


def _changed(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Changed:
    if asked.since is None:
        raise QuestionError(
            "since", "the start time is missing. Ask for example: 'what changed since yesterday?'"
        )
    return only_changes(questions.changed_since(asked.since, **_place(asked)), asked.changes)


def _summarise(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Summary:
    return questions.summarise(**_place(asked), polygon=options.polygon, since_ns=asked.since)


def _similar(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Similar:
    if isinstance(asked.what, str):
        raise QuestionError("what", "similar_situations needs the id of a memory or a vector, not words")
    return questions.similar_situations(
        asked.what, k=options.k, map_id=asked.map_id, kinds=options.kinds, states=options.states
    )


def _seen_before(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> SeenBefore:
    if isinstance(asked.what, str):
        raise QuestionError(
            "what", f"{asked.question} needs the id of a memory, a vector or nothing, not words"
        )
    kind: Kind = "place" if asked.question == "been_here" else (options.kinds or ("object",))[0]
    return questions.seen_before(asked.what, kind=kind, map_id=asked.map_id, gap_s=options.gap_s, k=options.k)


def _go_to(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Answer:
    return questions.pose_to(
        _needed(asked),
        **_place(asked),
        distance_m=options.distance_m,
        coming_from=options.coming_from,
    )


def _how_often(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Answer:
    return questions.how_often(_needed(asked), **_place(asked), between_ns=_time(asked), gap_s=options.gap_s)


def _how_many(questions: Questions, asked: ParsedQuestion, options: ReplyOptions) -> Answer:
    found = questions.how_many(asked.what, **_place(asked), between_ns=_time(asked), kinds=asked.kinds)
    return replace(found, past=asked.past)


def _needed(asked: ParsedQuestion) -> Any:
    if asked.what is None:
        raise QuestionError(
            "what", f"{asked.question} needs an object: a label, words, the id of a memory or a vector"
        )
    return asked.what


_NO_PLACE = "the place is missing. Give a point such as (3, 1), or an object"
#: Maximum number of places of one name.
_MOST_PLACES = 64
_WHERE, _WHEN = ("near", "beside", "area"), ("between", "since")
#: Parts that a question supports. Others are refused, never dropped.
_USED: dict[str, tuple[str, ...]] = {
    "last_seen": _WHERE,
    "first_seen": _WHERE,
    "left": _WHERE,
    "still_there": _WHERE,
    "pose_to": _WHERE,
    "how_often": (*_WHERE, *_WHEN),
    "how_many": (*_WHERE, *_WHEN),
    "near": (*_WHERE, *_WHEN),
    "between": (*_WHERE, *_WHEN),
    "search": (*_WHERE, *_WHEN),
    "changed_since": (*_WHERE, "since"),
    "summarise": (*_WHERE, "since"),
    "similar_situations": (),
    "seen_before": (),
    "been_here": (),
    "related": (*_WHERE, *_WHEN),
    "distance": _WHERE,
    "ranked": (*_WHERE, *_WHEN),
    "compare": (*_WHEN, "area"),
}
_ASKED: dict[str, Callable[[Questions, ParsedQuestion, ReplyOptions], Answer]] = {
    "last_seen": lambda questions, asked, _: questions.last_seen(_needed(asked), **_place(asked)),
    "first_seen": lambda questions, asked, _: questions.first_seen(_needed(asked), **_place(asked)),
    "left": lambda questions, asked, _: questions.departure(_needed(asked), **_place(asked)),
    "still_there": lambda questions, asked, _: questions.still_there(_needed(asked), **_place(asked)),
    "how_often": _how_often,
    "how_many": _how_many,
    "near": _near,
    "between": _between,
    "changed_since": _changed,
    "summarise": _summarise,
    "similar_situations": _similar,
    "seen_before": _seen_before,
    "been_here": _seen_before,
    "pose_to": _go_to,
    "search": _search,
    "related": lambda questions, asked, options: answer_related(questions, asked, options.pose, options.k),
    "ranked": lambda questions, asked, options: answer_ranked(
        questions, asked, options.pose, options.kinds, options.k
    ),
    "distance": lambda questions, asked, _: answer_distance(questions, asked),
    "compare": lambda questions, asked, options: answer_comparison(
        questions, asked, lambda side: reply(questions, side, options).answer
    ),
}
