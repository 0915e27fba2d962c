"""Answers to parsed questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from memory.query import Filter, Query
from memory.questions.answers import (
    SIMILAR_TO,
    THAT_LEFT,
    Answer,
    Changed,
    SearchResult,
    Sighting,
    Similar,
    Summary,
    between_words,
)
from memory.questions.asking import Questions
from memory.questions.boxes import RobotPose
from memory.questions.changes import MOST_NEW, FirstSeen, Happened, first_seen_in, only_changes, with_certain
from memory.questions.errors import QuestionError
from memory.questions.matching.labels import match_labels
from memory.questions.matching.landmarks import OF_ONE, THINGS, Surroundings, located
from memory.questions.meaning import is_subject
from memory.questions.measuring import (
    answer_comparison,
    answer_distance,
    answer_ranked,
    answer_related,
    time_of,
)
from memory.questions.places import circle_of, half_way_m, words_of_place
from memory.questions.reading.parsed import NEARBY_M, ParsedQuestion, by_distance
from memory.questions.recognising import SeenBefore
from memory.questions.relations import MOST_RANKED
from memory.questions.rooms import answer_rooms, answer_same_room, compared_rooms
from memory.questions.selections.answers import AnswerList, Selection
from memory.questions.selections.evaluation import AskedList, ListOptions, answer_kinds, answer_selected
from memory.questions.sentences import EMPTY, answer_sentence, is_empty, mention_of, synonyms_note
from memory.search.relevance import sentence_of
from memory.types import AWAY, Hit, Kind, Memory, State
from memory.wording.sentences import content_words
from memory.wording.words import STATE_WORDS, name, point


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
        parsed: the question with labels of the store.
        sentence: the answer for people.
        answer: one of :mod:`memory.questions.answers`.
        note: the end of the sentence, which says what the words for a place mean.
    """

    parsed: ParsedQuestion
    sentence: str
    answer: Answer
    note: str = ""


def reply(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions | None = None) -> Reply:
    """Answer a parsed question.

    Raises:
        QuestionError: a part is missing or not supported.
        UnknownMemoryError: no memory has the id.
        DimensionError: the vector has another length than those of the store.
    """
    try:
        return _reply_all(questions, parsed, options or ReplyOptions())
    except QuestionError as error:
        if parsed.problem is None and is_empty(questions) and not str(error).startswith(EMPTY):
            raise QuestionError(error.part, f"{EMPTY} {error}") from error
        raise


def _reply_all(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Reply:
    """Answer a question, or each part of it."""
    if parsed.parts:
        parts = [replace(part, map_id=part.map_id or parsed.map_id) for part in parsed.parts]
        replies = [reply(questions, part, options) for part in parts]
        answers = AnswerList(tuple(found.answer for found in replies))
        return Reply(
            # Parts may have one answer, such as that the store is empty.
            parsed,
            " ".join([*dict.fromkeys(found.sentence for found in replies), *_asides_note(parsed)]),
            answers,
        )
    plain = _reply(questions, parsed, options)
    note = synonyms_note(questions, parsed)
    notes = [note] if note else []
    return plain._replace(sentence=" ".join([plain.sentence, *notes, *_asides_note(parsed)]))


def _asides_note(parsed: ParsedQuestion) -> list[str]:
    """Return the remarks on words that were left out, if there are any, as one sentence."""
    return [f"({' '.join(parsed.asides)})"] if parsed.asides else []


def _reply(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Reply:
    parsed = match_labels(questions, parsed)
    parsed = located(questions, parsed, Surroundings(options.pose, options.area, options.k))
    if parsed.nearest and parsed.near is not None:
        parsed = _about_nearest(questions, parsed)
    if parsed.near is not None and parsed.radius_m is None and not _is_unbounded(parsed):
        parsed = replace(parsed, radius_m=NEARBY_M)
    related = parsed.question in ("related", "distance", "compare") or parsed.relation is not None
    if parsed.beside is None or parsed.near is not None or related:
        answer = answer_of(questions, parsed, options)
        return Reply(parsed, answer_sentence(questions, parsed, answer), answer)
    landmarks = _landmark_memories(questions, parsed)
    if isinstance(landmarks, Sighting):
        return Reply(parsed, answer_sentence(questions, parsed, landmarks), landmarks)
    replies = [_reply_near(questions, parsed, options, landmark) for landmark in landmarks]
    with_memory = (one for one in replies if getattr(one.answer, "memory", None) is not None)
    return next(with_memory, replies[0])


def _about_nearest(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Return a question about the object that is closest to its point."""
    found = answer_ranked(questions, replace(parsed, radius_m=None), None, None, 1)
    if not found.first:
        return replace(parsed, near=None)
    return replace(parsed, what=found.first[0].memory.id, near=None, nearest=False)


def _is_unbounded(parsed: ParsedQuestion) -> bool:
    """Return True if a point of the question is no limit."""
    return parsed.question == "search" or parsed.nearest or by_distance(parsed)


def _landmark_memories(questions: Questions, parsed: ParsedQuestion) -> list[Memory] | Sighting:
    """Return the memories whose place is meant, the latest first; the empty answer if there are none."""
    beside = parsed.beside
    if beside is None:
        raise QuestionError("near", _NO_PLACE)
    seen = questions.last_seen(beside, map_id=parsed.map_id)
    if seen.memory is None and isinstance(beside, str) and parsed.question != "ranked":
        # A person at the door is near the door; the sentence names the person.
        mention = mention_of(questions, beside)
        same = mention is not None and isinstance(parsed.what, str) and is_subject(parsed.what, mention)
        # Of the beds, only one may be "by the window", so it does not show where the window is.
        person = same and mention is not None and mention.kind == "event"
        if mention is None or mention.position is None or (same and not person):
            return seen
        return [mention]
    if seen.memory is None or parsed.question not in OF_ONE or not isinstance(beside, str):
        return seen if seen.memory is None else [seen.memory]
    # Of several doors, the one with the requested object near it is meant.
    others = questions.sightings(beside, map_id=parsed.map_id, limit=_MOST_PLACES)
    known = [seen.memory, *(memory for memory in others if memory.id != seen.memory.id)]
    return [memory for memory in known if memory.position is not None] or known[:1]


def _reply_near(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions, place: Memory) -> Reply:
    """Answer a question about the surroundings of a memory, which the sentence names."""
    if place.position is None:
        raise QuestionError(
            "near", f"the position of {name(place)} is not known. Give a point, such as (3, 1)"
        )
    radius = NEARBY_M if parsed.radius_m is None and not _is_unbounded(parsed) else parsed.radius_m
    if parsed.inside and radius is not None:
        radius = min(radius, half_way_m(questions.store, place, NEARBY_M))
    itself = place.id if parsed.nearest or parsed.question == "ranked" else parsed.beside
    parsed = replace(parsed, near=place.position[:2], map_id=place.map_id, radius_m=radius, beside=itself)
    if parsed.nearest:
        parsed = _about_nearest(questions, parsed)
    found = answer_of(questions, parsed, options)
    left = "" if place.state not in AWAY else f", which is {STATE_WORDS[place.state]}"
    means = "In" if parsed.inside and place.kind == "place" else "Near"
    within = "Distances are from" if radius is None else f"{means} means within {radius:.3g} m of"
    note = f"{within} {name(place)}{left}, last seen at {point(place.position)}."
    return Reply(parsed, f"{answer_sentence(questions, parsed, found)} {note}", found, note)


def answer_of(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    """Answer a question without matching its words to labels; raises the errors of :func:`reply`."""
    return _ANSWERERS[parsed.question](questions, parsed, options)


def _place(parsed: ParsedQuestion) -> dict[str, Any]:
    return {"map_id": parsed.map_id, "near": parsed.near, "radius_m": parsed.radius_m, "area": parsed.area}


def _answer_search(
    questions: Questions, parsed: ParsedQuestion, options: ReplyOptions
) -> SearchResult | Happened | Sighting:
    """Search by label, words or similarity, limited by time and place."""
    if time_of(parsed) is not None and (parsed.what is None or isinstance(parsed.what, str)):
        return _answer_between(questions, parsed, options)
    values: dict[str, Any] = {}
    words = ""
    if isinstance(parsed.what, str):
        words = parsed.what
        members = questions.category_of(words)
        if options.labels is None and _is_label(questions, parsed):
            values = {"labels": [words]}
        elif members:
            values, words = {"labels": members}, f"{' or '.join(members)} (read for {words!r})"
        else:
            values = {"text": content_words(words)}
    elif isinstance(parsed.what, int) and time_of(parsed) is None:
        return questions.last_seen(parsed.what, **_place(parsed))  # Show memory 12.
    elif isinstance(parsed.what, int):
        values, words = {"like": parsed.what}, f"{SIMILAR_TO}memory {parsed.what}"
    elif parsed.what is not None:
        values, words = {"embedding": parsed.what}, f"{SIMILAR_TO}this vector"
    if options.labels is not None:
        values["labels"] = options.labels
    nearest = parsed.near is not None and parsed.radius_m is None
    query = Query(
        **_place(parsed), polygon=options.polygon, between_ns=time_of(parsed),
        kinds=options.kinds or parsed.kinds, states=options.states or parsed.states, k=options.k,
        order="distance" if nearest else None, **values,
    )  # fmt: skip
    hits = questions.store.query(query)
    return SearchResult(words, tuple(hits), _total(questions, query, hits), _limits_in_words(parsed))


def _is_label(questions: Questions, parsed: ParsedQuestion) -> bool:
    """Return True if the store has a label of these words in the map."""
    return bool(questions.store.query(Query(labels=[parsed.what], map_id=parsed.map_id, k=1)))


def _total(questions: Questions, query: Query, hits: list[Hit]) -> int | None:
    """Return how many memories match; ``None`` for searches that rank instead of filter."""
    if len(hits) < query.k:
        return len(hits)
    if query.like is not None or query.embedding is not None or sentence_of(query) or hits[0].reason:
        return None
    return questions.store.count(query.filter)


def _limits_in_words(parsed: ParsedQuestion) -> str:
    """Return place and time in words."""
    parts = [THAT_LEFT] if parsed.states == AWAY else []
    if parsed.area is not None:
        parts.append(f" in area {parsed.area}")
    if parsed.near is not None and parsed.radius_m is not None:
        parts.append(f" within {parsed.radius_m:g} m of {point(parsed.near)}")
    when = time_of(parsed)
    if when is not None:
        parts.append(f" {between_words(when)}")
    return "".join(parts)


def _answer_near(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    landmark: Memory | None = None
    radius = NEARBY_M if parsed.radius_m is None else parsed.radius_m
    if parsed.what is not None:
        around: dict[str, Any] = {}
        if parsed.near is not None:
            around = {"near": parsed.near, "radius_m": radius}
        seen = questions.last_seen(parsed.what, map_id=parsed.map_id, **around)
        if seen.memory is None:
            return seen
        if seen.memory.position is None:
            raise QuestionError(
                "near", f"the position of {name(seen.memory)} is not known. Give a point, such as (3, 1)"
            )
        landmark = seen.memory
        parsed = replace(parsed, near=seen.memory.position[:2], map_id=seen.memory.map_id, what=None)
        if parsed.inside:
            radius = min(radius, half_way_m(questions.store, seen.memory, NEARBY_M))
    if parsed.near is None:
        raise QuestionError("near", _NO_PLACE)
    if time_of(parsed) is not None:
        return _answer_between(questions, replace(parsed, radius_m=radius, what=None), options)
    # Places count only if nothing else is near.
    for kinds in (options.kinds or parsed.kinds or THINGS, options.kinds or parsed.kinds):
        found = questions.near(
            parsed.near, radius, map_id=parsed.map_id, area=parsed.area, labels=options.labels,
            kinds=kinds, states=options.states or parsed.states, k=options.k + 1,
        )  # fmt: skip
        if found.hits:
            break
    # The landmark itself is not near the landmark.
    hits = [hit for hit in found.hits if landmark is None or hit.memory.id != landmark.id]
    total = found.total - (len(found.hits) - len(hits))
    return replace(found, total=total, hits=tuple(hits[: options.k]))


def _named(
    questions: Questions, parsed: ParsedQuestion, options: ReplyOptions
) -> tuple[Sequence[str] | None, str | None]:
    """Return the labels that limit a list, or the words of label and caption that do."""
    words = parsed.what if isinstance(parsed.what, str) else None
    if words is None or options.labels is not None:
        return options.labels, words
    if _is_label(questions, parsed):
        return [words], None
    members = questions.category_of(words)
    return (members, None) if members else (None, words)


def _answer_between(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Happened:
    when = _time_needed(parsed)
    labels, text = _named(questions, parsed, options)
    found = questions.between(
        *when, **_place(parsed), labels=labels, kinds=options.kinds or parsed.kinds,
        states=options.states or parsed.states, text=text, limit=options.k,
    )  # fmt: skip
    return replace(found, what=f"{found.what or 'objects'}{THAT_LEFT}") if parsed.states == AWAY else found


def _answer_new(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> FirstSeen:
    when = _time_needed(parsed)
    if parsed.what is not None and not isinstance(parsed.what, str):
        raise QuestionError("what", "'new_between' needs a label or words, not an id or a vector")
    labels, text = _named(questions, parsed, options)
    limits = Filter(
        between_ns=when, map_id=parsed.map_id, area=parsed.area,
        circle=circle_of(parsed.near, parsed.radius_m), labels=labels,
        kinds=options.kinds or parsed.kinds, states=options.states,
        text=None if text is None else content_words(text),
    )  # fmt: skip
    limited = any(part is not None for part in (parsed.map_id, parsed.near, parsed.area))
    where = words_of_place(parsed.map_id, parsed.near, parsed.radius_m, None, parsed.area) if limited else ""
    return first_seen_in(questions.store, limits, MOST_NEW, str(parsed.what or ""), where)


def _time_needed(parsed: ParsedQuestion) -> tuple[int, int]:
    when = time_of(parsed)
    if when is None:
        raise QuestionError("between", "the time is missing. Give the first and the last time")
    return when


def _answer_changed(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Changed:
    if parsed.since is None:
        raise QuestionError(
            "since", "the start time is missing. Ask for example: 'what changed since yesterday?'"
        )
    found = only_changes(questions.changed_since(parsed.since, **_place(parsed)), parsed.changes)
    return found if parsed.lately else with_certain(found)


def _answer_summarise(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Summary:
    return questions.summarise(**_place(parsed), polygon=options.polygon, since_ns=parsed.since)


def _answer_similar(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Similar:
    if isinstance(parsed.what, str):
        raise QuestionError("what", "similar_situations needs the id of a memory or a vector, not words")
    return questions.similar_situations(
        parsed.what, k=options.k, map_id=parsed.map_id, kinds=options.kinds, states=options.states
    )


def _answer_seen_before(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> SeenBefore:
    if isinstance(parsed.what, str):
        raise QuestionError(
            "what", f"{parsed.question} needs the id of a memory, a vector or nothing, not words"
        )
    kind: Kind = "place" if parsed.question == "been_here" else (options.kinds or ("object",))[0]
    return questions.seen_before(
        parsed.what, kind=kind, map_id=parsed.map_id, gap_s=options.gap_s, k=options.k
    )


def _answer_pose_to(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    return questions.pose_to(
        _object_of(parsed),
        **_place(parsed),
        distance_m=options.distance_m,
        coming_from=options.coming_from,
    )


def _answer_how_often(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    return questions.how_often(
        _object_of(parsed),
        **_place(parsed),
        between_ns=time_of(parsed),
        gap_s=options.gap_s,
    )


def _answer_how_many(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    if parsed.distinct:
        return answer_kinds(questions, parsed, _limits_in_words(parsed))
    found = questions.how_many(parsed.what, **_place(parsed), between_ns=time_of(parsed), kinds=parsed.kinds)
    found = replace(found, past=parsed.past)
    if parsed.kinds is not None and "note" not in parsed.kinds and parsed.what is None:
        notes = questions.how_many(**_place(parsed), between_ns=time_of(parsed), kinds=("note",))
        found = replace(found, notes=notes.memories)
    if parsed.bound is None or not found.memories:
        return found
    every = parsed.past or found.between_ns is not None
    count = found.memories if every else found.by_state.get("present", 0)
    return replace(found, holds=parsed.bound.holds(count))


def _answer_select(
    questions: Questions, parsed: ParsedQuestion, options: ReplyOptions, k: int | None = None
) -> Selection:
    """Return the memories of a list that meet conditions."""

    def ask(asked: ParsedQuestion) -> AskedList:
        found = reply(questions, asked, ReplyOptions(k=MOST_RANKED, pose=options.pose))
        notes = (*getattr(found.answer, "notes", ()), *([found.note] if found.note else []))
        return AskedList(found.answer, notes, found.sentence)

    where = _limits_in_words(replace(parsed, between=None, since=None))
    if parsed.relation is not None:
        where = f" {parsed.relation} {parsed.beside if parsed.beside is not None else 'the robot'}{where}"
    of = ListOptions(
        options.pose, options.labels, options.kinds, options.states, options.k if k is None else k, where
    )
    return answer_selected(questions, parsed, of, ask)


def _answer_compared(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    rooms = compared_rooms(questions, parsed)
    if rooms is not None:
        return rooms
    return answer_comparison(questions, parsed, lambda side: reply(questions, side, options).answer)


def _answer_ranked(questions: Questions, parsed: ParsedQuestion, options: ReplyOptions) -> Answer:
    rooms = compared_rooms(questions, parsed)
    if rooms is not None:
        return rooms
    if not parsed.conditions:
        return answer_ranked(questions, parsed, options.pose, options.kinds, options.k)
    chosen = _answer_select(questions, parsed, options, MOST_RANKED)
    found = answer_ranked(questions, parsed, options.pose, options.kinds, options.k, chosen.memories)
    return replace(found, place=f"{found.place} {' and '.join(chosen.conditions)}")


def _object_of(parsed: ParsedQuestion) -> Any:
    if parsed.what is None:
        raise QuestionError(
            "what", f"{parsed.question} needs an object: a label, words, the id of a memory or a vector"
        )
    return parsed.what


_NO_PLACE = "the place is missing. Give a point such as (3, 1), or an object"
#: Maximum number of places of one name.
_MOST_PLACES = 64
_ANSWERERS: dict[str, Callable[[Questions, ParsedQuestion, ReplyOptions], Answer]] = {
    "last_seen": lambda questions, parsed, _: questions.last_seen(_object_of(parsed), **_place(parsed)),
    "first_seen": lambda questions, parsed, _: questions.first_seen(_object_of(parsed), **_place(parsed)),
    "left": lambda questions, parsed, _: questions.departure(_object_of(parsed), **_place(parsed)),
    "still_there": lambda questions, parsed, _: questions.still_there(_object_of(parsed), **_place(parsed)),
    "how_often": _answer_how_often,
    "how_many": _answer_how_many,
    "near": _answer_near,
    "between": _answer_between,
    "new_between": _answer_new,
    "changed_since": _answer_changed,
    "summarise": _answer_summarise,
    "similar_situations": _answer_similar,
    "seen_before": _answer_seen_before,
    "been_here": _answer_seen_before,
    "pose_to": _answer_pose_to,
    "search": _answer_search,
    "related": lambda questions, parsed, options: answer_related(questions, parsed, options.pose, options.k),
    "ranked": _answer_ranked,
    "select": _answer_select,
    "rooms": lambda questions, parsed, _: answer_rooms(questions, parsed),
    "same_room": lambda questions, parsed, _: answer_same_room(questions, parsed),
    "distance": lambda questions, parsed, _: answer_distance(questions, parsed),
    "compare": _answer_compared,
}
