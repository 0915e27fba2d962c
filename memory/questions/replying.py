"""Answers to what was understood: the one way from a question in parts to a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from memory.query import Filter, Query
from memory.questions.answers import (
    Answer,
    Changed,
    Happened,
    Searched,
    Sighting,
    Similar,
    Summary,
    between_words,
)
from memory.questions.asking import Questions
from memory.questions.changes import only_changes
from memory.questions.recognising import SeenBefore
from memory.questions.times import until_now
from memory.questions.understanding import NEARBY_M, Understood
from memory.search.relevance import sentence_of
from memory.types import AWAY, Hit, Kind, Memory, State
from memory.wording import fold
from memory.wording.sentences import content_words
from memory.wording.words import STATE_WORDS, counted, moment, name, plural, point


class IncompleteError(ValueError):
    """A question lacks something.

    Attributes:
        part: which.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part


@dataclass(frozen=True, kw_only=True)
class ReplyOptions:
    """What can be said beside a question.

    Attributes:
        labels, kinds, states: of memories in lists, any of them.
        polygon: corners in metres, for searches and summaries.
        k: most memories in a list.
        gap_s: pause that ends a visit.
        distance_m: from a thing that is driven to.
        coming_from: x, y (and z) of the robot in metres.
    """

    labels: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None
    states: Sequence[State] | None = None
    polygon: Sequence[tuple[float, float]] | None = None
    k: int = 10
    gap_s: float = 60.0
    distance_m: float = 1.0
    coming_from: tuple[float, ...] | None = None


class Reply(NamedTuple):
    """An answer.

    Attributes:
        asked: what was understood, with the label that the store has for it.
        sentence: for people.
        answer: one of :mod:`memory.questions.answers`.
    """

    asked: Understood
    sentence: str
    answer: Answer


def reply(questions: Questions, asked: Understood, options: ReplyOptions | None = None) -> Reply:
    """The answer to a question.

    Args:
        questions: to the store.
        asked: the question.
        options: what else was said.

    Raises:
        IncompleteError: it lacks something.
        UnknownMemoryError: an id that no memory has.
        DimensionError: a vector of another length.
    """
    options = options or ReplyOptions()
    asked = understood_by(questions, asked)
    asked = _in_map(questions, asked)
    if asked.near is not None and asked.radius_m is None and asked.question != "search":
        asked = replace(asked, radius_m=NEARBY_M)
    if asked.beside is None or asked.near is not None:
        found = answer_of(questions, asked, options)
        return Reply(asked, _sentence(questions, asked, found), found)
    places = _places(questions, asked)
    if isinstance(places, Sighting):
        return Reply(asked, _sentence(questions, asked, places), places)
    tried = [_beside(questions, asked, options, place) for place in places]
    return next((each for each in tried if getattr(each.answer, "memory", None) is not None), tried[0])


def _in_map(questions: Questions, asked: Understood) -> Understood:
    """Return a question whose place is the name of a map as a question about that map."""
    place = asked.what if asked.question == "near" else asked.beside
    if asked.map_id is not None or not isinstance(place, str) or questions.knows(place):
        return asked
    found = {fold(name): name for name in questions.store.maps()}.get(fold(place))
    if found is None:
        return asked
    asked = replace(asked, map_id=found, beside=None, radius_m=None)
    return replace(asked, question="search", what=None) if asked.question == "near" else asked


def _places(questions: Questions, asked: Understood) -> list[Memory] | Sighting:
    """Whose place is meant, the latest first; what was found of it where that is nothing."""
    beside = asked.beside
    if beside is None:
        raise IncompleteError("near", "give a point, or what it is near to")
    seen = questions.last_seen(beside, map_id=asked.map_id)
    if seen.memory is None or asked.question not in _OF_ONE or not isinstance(beside, str):
        return seen if seen.memory is None else [seen.memory]
    # Of several doors any may be meant: the one that has beside it what is asked about.
    others = questions.sightings(beside, map_id=asked.map_id, limit=_MOST_PLACES)
    known = [seen.memory, *(memory for memory in others if memory.id != seen.memory.id)]
    return [memory for memory in known if memory.position is not None] or known[:1]


def _beside(questions: Questions, asked: Understood, options: ReplyOptions, place: Memory) -> Reply:
    """The answer for what is near a memory, which the sentence names."""
    if place.position is None:
        raise IncompleteError("near", f"it is not known where {name(place)} is: give a point, such as (3, 1)")
    radius = NEARBY_M if asked.radius_m is None and asked.question != "search" else asked.radius_m
    if asked.inside and radius is not None:
        radius = min(radius, _half_way_m(questions, place))
    asked = replace(asked, near=place.position[:2], map_id=place.map_id, radius_m=radius)
    found = answer_of(questions, asked, options)
    left = "" if place.state not in AWAY else f", which is {STATE_WORDS[place.state]}"
    means = "In" if asked.inside and place.kind == "place" else "Near"
    within = "Nearest" if radius is None else f"{means} means within {radius:.3g} m of"
    note = f"{within} {name(place)}{left}, last seen at {point(place.position)}."
    return Reply(asked, f"{_sentence(questions, asked, found)} {note}", found)


def _half_way_m(questions: Questions, place: Memory) -> float:
    """Return half the distance from a place to the next place of another name, in metres."""
    if place.kind != "place" or place.position is None:
        return math.inf
    x, y = place.position[:2]
    around = Filter(map_id=place.map_id, kinds=("place",), circle=(x, y, 2 * NEARBY_M))
    others = questions.store.find(around, vectors=False)
    away = [math.dist(other.place[:2], (x, y)) for other in others if other.label not in ("", place.label)]
    return min(away, default=math.inf) / 2


def answer_of(questions: Questions, asked: Understood, options: ReplyOptions) -> Answer:
    """The answer to exactly what was asked.

    Args:
        questions: to the store.
        asked: the question.
        options: what else was said.

    Raises:
        IncompleteError, UnknownMemoryError, DimensionError: as of :func:`reply`.
    """
    return _ASKED[asked.question](questions, asked, options)


def understood_by(questions: Questions, asked: Understood) -> Understood:
    """Return a question with the labels of the store.

    Args:
        questions: to the store.
        asked: the question.

    Raises:
        IncompleteError: a part of it is not understood; names it, and a question that works.
    """
    if asked.problem is not None and not questions.knows(str(asked.typed)):
        raise IncompleteError("text", asked.problem.replace("{thing}", _example(questions)))
    for part in ("between", "since", "near", "beside"):
        if getattr(asked, part) is not None and part not in _USED[asked.question]:
            raise IncompleteError(part, f"{asked.question} does not depend on it: ask without")
    return replace(asked, what=_known(questions, asked.what), beside=_known(questions, asked.beside))


def _known(questions: Questions, what: Any) -> Any:
    """The label of the store that words are but for case and ending; else the words."""
    return questions.label_of(what) or what if isinstance(what, str) else what


def _sentence(questions: Questions, asked: Understood, found: Any) -> str:
    """What the answer says; where it is that there is nothing, also what there is."""
    unknown = asked.typed is not None and asked.what not in questions.store.label_counts()
    if isinstance(found, Searched) and not found.hits and unknown:
        return f"{found} {_ask_such_as(questions)} {_there(questions)}"
    sentence = str(found)
    nothing = ("Nothing is remembered", "Nothing like ")
    unknown_here = " is not remembered"
    if sentence.endswith(_NOTHING) and asked.near is not None and asked.radius_m is not None:
        # It may well be remembered elsewhere, as what there is then tells.
        here = f"{unknown_here} within {asked.radius_m:g} m of {point(asked.near)}"
        sentence = sentence.replace(unknown_here, here, 1)
        return f"{sentence} {_there(questions, timed=_time(asked) is not None)}"
    if sentence.endswith("is not remembered.") or sentence.startswith(nothing):
        return f"{sentence} {_there(questions, timed=_time(asked) is not None)}"
    return sentence


def _ask_such_as(questions: Questions) -> str:
    """Questions that work, about what the store has."""
    thing = _example(questions)
    examples = [f"“{each.format(thing=thing, things=thing + 's')}”" for each in _EXAMPLES]
    return f"Ask such as {', '.join(examples[:-1])} or {examples[-1]}"


def _example(questions: Questions) -> str:
    """The label that is there most often."""
    labels = sorted(questions.store.label_counts().items(), key=lambda entry: (-entry[1], entry[0]))
    return next((label.lower() for label, _ in labels if label), "mug")


def _there(questions: Questions, *, timed: bool = False) -> str:
    """What the store has."""
    counts = questions.store.label_counts()
    if not counts:
        return "The store is empty."
    if timed:
        return f"The newest memory is of {moment(questions.store.newest_ns)}."
    return f"There are {plural(sum(counts.values()), 'memory', 'memories')}: {counted(counts)}."


def _time(asked: Understood) -> tuple[int, int] | None:
    if asked.between is not None:
        return asked.between[0], asked.between[1]
    return None if asked.since is None else tuple(until_now(asked.since))  # type: ignore[return-value]


def _place(asked: Understood) -> dict[str, Any]:
    return {"map_id": asked.map_id, "near": asked.near, "radius_m": asked.radius_m}


def _search(questions: Questions, asked: Understood, options: ReplyOptions) -> Searched | Happened:
    """Search by label or words, or by similarity to a memory or vector, in a time and place."""
    if _time(asked) is not None and (asked.what is None or isinstance(asked.what, str)):
        return _between(questions, asked, options)
    values: dict[str, Any] = {}
    words = ""
    if isinstance(asked.what, str):
        words = asked.what
        # All words that say something: those of a question that is not understood are not enough.
        named = options.labels is None and _is_label(questions, asked)
        values = {"labels": [words]} if named else {"text": content_words(words)}
    elif isinstance(asked.what, int):
        values, words = {"like": asked.what}, f"what is like memory {asked.what}"
    elif asked.what is not None:
        values, words = {"embedding": asked.what}, "what looks like this"
    if options.labels is not None:
        values["labels"] = options.labels
    nearest = asked.near is not None and asked.radius_m is None
    query = Query(
        **_place(asked), polygon=options.polygon, between_ns=_time(asked), kinds=options.kinds,
        states=options.states or asked.states, k=options.k, order="distance" if nearest else None, **values,
    )  # fmt: skip
    hits = questions.store.query(query)
    return Searched(words, tuple(hits), _total(questions, query, hits), _within(asked))


def _is_label(questions: Questions, asked: Understood) -> bool:
    """Return True if the store has a label of these words in the map."""
    return bool(questions.store.query(Query(labels=[asked.what], map_id=asked.map_id, k=1)))


def _total(questions: Questions, query: Query, hits: list[Hit]) -> int | None:
    """How many pass a query; ``None`` where that is no question, as of what is alike."""
    if len(hits) < query.k:
        return len(hits)
    if query.like is not None or query.embedding is not None or sentence_of(query) or hits[0].reason:
        return None
    return questions.store.count(query.filter)


def _within(asked: Understood) -> str:
    """Place and time in words."""
    parts = []
    if asked.near is not None and asked.radius_m is not None:
        parts.append(f" within {asked.radius_m:g} m of {point(asked.near)}")
    when = _time(asked)
    if when is not None:
        parts.append(f" {between_words(when)}")
    return "".join(parts)


def _near(questions: Questions, asked: Understood, options: ReplyOptions) -> Answer:
    if asked.what is not None:
        around: dict[str, Any] = {}
        if asked.near is not None:
            around = {"near": asked.near, "radius_m": NEARBY_M if asked.radius_m is None else asked.radius_m}
        seen = questions.last_seen(asked.what, map_id=asked.map_id, **around)
        if seen.memory is None:
            return seen
        if seen.memory.position is None:
            raise IncompleteError("near", f"it is not known where {name(seen.memory)} is: give a point")
        asked = replace(asked, near=seen.memory.position[:2], map_id=seen.memory.map_id, what=None)
        if asked.inside:
            radius = NEARBY_M if asked.radius_m is None else asked.radius_m
            asked = replace(asked, radius_m=min(radius, _half_way_m(questions, seen.memory)))
    if asked.near is None:
        raise IncompleteError("near", "give a point, or what it is near to")
    radius = NEARBY_M if asked.radius_m is None else asked.radius_m
    if _time(asked) is not None:
        return _between(questions, replace(asked, radius_m=radius, what=None), options)
    return questions.near(
        asked.near, radius, map_id=asked.map_id, labels=options.labels, kinds=options.kinds,
        states=options.states or asked.states, k=options.k,
    )  # fmt: skip


def _between(questions: Questions, asked: Understood, options: ReplyOptions) -> Happened:
    when = _time(asked)
    if when is None:
        raise IncompleteError("between", "give the first and last time")
    text = asked.what if isinstance(asked.what, str) else None
    labels = options.labels
    if text is not None and labels is None and _is_label(questions, asked):
        labels, text = [text], None
    return questions.between(
        *when, **_place(asked), labels=labels, kinds=options.kinds, states=options.states or asked.states,
        text=text, limit=options.k,
    )  # fmt: skip


def _changed(questions: Questions, asked: Understood, options: ReplyOptions) -> Changed:
    if asked.since is None:
        raise IncompleteError("since", "changed since when?")
    return only_changes(questions.changed_since(asked.since, **_place(asked)), asked.changes)


def _summarise(questions: Questions, asked: Understood, options: ReplyOptions) -> Summary:
    return questions.summarise(**_place(asked), polygon=options.polygon, since_ns=asked.since)


def _similar(questions: Questions, asked: Understood, options: ReplyOptions) -> Similar:
    if isinstance(asked.what, str):
        raise IncompleteError("what", "similar_situations takes an id or a vector")
    return questions.similar_situations(
        asked.what, k=options.k, map_id=asked.map_id, kinds=options.kinds, states=options.states
    )


def _seen_before(questions: Questions, asked: Understood, options: ReplyOptions) -> SeenBefore:
    if isinstance(asked.what, str):
        raise IncompleteError("what", f"{asked.question} takes an id, a vector, or nothing for the newest")
    kind: Kind = "place" if asked.question == "been_here" else (options.kinds or ("object",))[0]
    return questions.seen_before(asked.what, kind=kind, map_id=asked.map_id, gap_s=options.gap_s, k=options.k)


def _go_to(questions: Questions, asked: Understood, options: ReplyOptions) -> Answer:
    return questions.pose_to(
        _needed(asked),
        **_place(asked),
        distance_m=options.distance_m,
        coming_from=options.coming_from,
    )


def _how_often(questions: Questions, asked: Understood, options: ReplyOptions) -> Answer:
    return questions.how_often(_needed(asked), **_place(asked), between_ns=_time(asked), gap_s=options.gap_s)


def _how_many(questions: Questions, asked: Understood, options: ReplyOptions) -> Answer:
    return questions.how_many(asked.what, **_place(asked), between_ns=_time(asked))


def _needed(asked: Understood) -> Any:
    if asked.what is None:
        raise IncompleteError(
            "what", f"{asked.question} needs a label, words, the id of a memory or a vector"
        )
    return asked.what


#: Questions that work, with an object of the store.
_EXAMPLES = (
    "where is the {thing}?", "how many {things} are there?", "what did you see this morning?",
    "what changed since yesterday?", "what is near (0, 0)?",
)  # fmt: skip
#: What a sentence ends with that says that there is nothing.
_NOTHING = ("is not remembered.", "is not remembered: there is nowhere to drive to.")
#: Questions about one memory.
_OF_ONE = ("last_seen", "first_seen", "still_there", "pose_to")
#: Places of one name that are looked at.
_MOST_PLACES = 64
_WHERE, _WHEN = ("near", "beside"), ("between", "since")
#: Parts that a question uses besides what it is about; another one is refused, never left out.
_USED: dict[str, tuple[str, ...]] = {
    "last_seen": _WHERE,
    "first_seen": _WHERE,
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
}
_ASKED: dict[str, Callable[[Questions, Understood, ReplyOptions], Answer]] = {
    "last_seen": lambda questions, asked, _: questions.last_seen(_needed(asked), **_place(asked)),
    "first_seen": lambda questions, asked, _: questions.first_seen(_needed(asked), **_place(asked)),
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
}
