"""Questions over HTTP."""

from __future__ import annotations

import time
from typing import Any

from memory.plain_values import to_plain
from memory.questions import Questions
from memory.questions.guarantee.answering import guarantee_of
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.replying import ReplyOptions, reply
from memory.questions.translation.query import parse_query
from memory.serve.answers import shortened
from memory.serve.errors import ServiceError
from memory.serve.names import unknown
from memory.serve.openapi.requests import QUESTIONS, AskBody, at_most, moment, plain, span, vector_of
from memory.serve.options import ServeOptions
from memory.store import MemoryStore

#: Fields of a named question, which a question in words does not accept.
_PARTS = ("what", "near", "radius_m", "polygon", "between", "since")
_ABOUT_SOMETHING = ("last_seen", "first_seen", "how_often", "left", "still_there", "pose_to")


def asked_of(body: AskBody, options: ServeOptions, store: MemoryStore) -> ParsedQuestion:
    """Return the question of a request, or raise for a missing or invalid field."""
    at_most("k", body.k, options.max_k)
    words = body.words
    for field, text in (("question", words), ("map_id", body.map_id), ("area", body.area)):
        plain(field, text)
    for label in body.labels or ():
        plain("labels", label)
    if body.query is not None:
        if words is not None or body.question is not None:
            raise ServiceError(422, "invalid", "query: exclude question. Give one of them", "query")
        return parse_query(body.query)
    now = _now(body.now, store)
    if words is not None:
        for field in _PARTS:
            if getattr(body, field) is not None:
                raise unknown("question in parts", words, QUESTIONS, "question")
        found = Questions(store).understand(words, now)
        found.map_id = found.map_id or body.map_id
        return found
    if body.question is None:
        message = "question: missing. Give a question in words, or a named question with its parts"
        raise ServiceError(422, "invalid", message, "question")
    what: Any = body.what
    if isinstance(what, list):
        at_most("what", len(what), options.max_vector)
        what = vector_of("what", what)
    elif isinstance(what, str):
        plain("what", what)
    if what is None and body.question in _ABOUT_SOMETHING:
        message = f"what: {body.question} needs an object: a label, words, the id of a memory or a vector"
        raise ServiceError(422, "invalid", message, "what")
    return ParsedQuestion(
        body.question,
        what=what,
        near=None if body.near is None else tuple(body.near),
        radius_m=body.radius_m,
        between=None if body.between is None else span(body.between),  # type: ignore[arg-type]
        since=None if body.since is None else moment("since", body.since),
        map_id=body.map_id,
    )


def _now(value: str | int | None, store: MemoryStore) -> int:
    if value is None:
        return time.time_ns()
    return store.newest_ns if value == "newest" else moment("now", value)


def answer(questions: Questions, asked: ParsedQuestion, body: AskBody, *, most: int) -> dict[str, Any]:
    """Return the sentence, the answer and the parsed question; ``most`` limits lists of changes."""
    options = ReplyOptions(
        labels=body.labels,
        kinds=body.kinds,
        states=body.states,
        polygon=None if body.polygon is None else [(corner[0], corner[1]) for corner in body.polygon],
        k=body.k,
        gap_s=body.gap_s,
        distance_m=body.distance_m,
        coming_from=None if body.coming_from is None else tuple(body.coming_from),
        pose=None if body.pose is None else (body.pose[0], body.pose[1], body.pose[2]),
        area=body.area,
    )
    found = reply(questions, asked, options)
    guaranteed = None
    if body.confidence is not None:
        now_ns = _now(body.now, questions.store)
        guaranteed = guarantee_of(questions.store, found.answer, body.confidence, now_ns=now_ns)
    shown = found.parsed.given()
    if not isinstance(shown.get("what", ""), str | int):
        shown["what"] = "a vector"
    return {
        "question": asked.question,
        "sentence": found.sentence if guaranteed is None else f"{found.sentence} {guaranteed}",
        "answer": shortened(found.answer.to_json(), most),
        "understood": shown,
        "guarantee": to_plain(guaranteed),
    }
