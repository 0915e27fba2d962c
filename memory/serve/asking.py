"""Questions of requests: understood, put to the store, answered in a sentence and in parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from memory.questions import Questions
from memory.questions.words import hits_json, name, plural, point
from memory.serve.answers import shortened
from memory.serve.errors import ServiceError
from memory.serve.options import ServeOptions
from memory.serve.requests import AskBody, at_most, moment, plain, span, vector_of
from memory.serve.understanding import Understood, understand
from memory.serve.when import until_now
from memory.store import MemoryStore
from memory.types import Hit, Query

#: Fields that belong to a question in parts, not to one in words.
_PARTS = ("question", "what", "near", "radius_m", "polygon", "between", "since")
_ABOUT_SOMETHING = ("last_seen", "first_seen", "how_often", "still_there", "similar_situations", "pose_to")


def asked_of(body: AskBody, options: ServeOptions) -> Understood:
    """The question of a request.

    Raises:
        ServiceError, ValueError: it is not complete; names the field.
    """
    at_most("k", body.k, options.max_k)
    for field in ("text", "map_id"):
        plain(field, getattr(body, field))
    for label in body.labels or ():
        plain("labels", label)
    now = time.time_ns() if body.now is None else moment("now", body.now)
    if body.text is not None:
        for field in _PARTS:
            if getattr(body, field) is not None:
                raise ServiceError(422, "invalid", f"{field}: give text or the parts, not both", field)
        found = understand(body.text, now)
        found.map_id = found.map_id or body.map_id
        return found
    if body.question is None:
        raise ServiceError(422, "invalid", "question: give text or a question", "question")
    what: Any = body.what
    if isinstance(what, list):
        at_most("what", len(what), options.max_vector)
        what = vector_of("what", what)
    elif isinstance(what, str):
        plain("what", what)
    if what is None and body.question in _ABOUT_SOMETHING:
        message = f"what: {body.question} needs a label, words, the id of a memory or a vector"
        raise ServiceError(422, "invalid", message, "what")
    return Understood(
        body.question,
        what=what,
        near=None if body.near is None else tuple(body.near),
        radius_m=body.radius_m,
        between=None if body.between is None else span(body.between),  # type: ignore[arg-type]
        since=None if body.since is None else moment("since", body.since),
        map_id=body.map_id,
    )


def answer(
    store: MemoryStore,
    questions: Questions,
    asked: Understood,
    body: AskBody,
    *,
    labels: Mapping[str, int],
    most: int,
) -> dict[str, Any]:
    """The answer: a sentence, the parts, and what was understood.

    Args:
        store: that is asked.
        questions: to it.
        asked: the question.
        body: the other fields of the request.
        labels: that there are; words that are one but for case or plural mean it.
        most: memories in a list of changes.
    """
    if body.text is not None and isinstance(asked.what, str):
        asked.what = label_of(asked.what, labels)
    understood = asked.given()
    if isinstance(understood.get("what"), str | int) or "what" not in understood:
        shown = understood
    else:
        shown = understood | {"what": "a vector"}
    found = _ASKED[asked.question](store, questions, asked, body)
    if isinstance(found, _Search):
        sentence, parts = str(found), found.to_json()
    else:
        sentence, parts = str(found), shortened(found.to_json(), most)
    return {"question": asked.question, "sentence": sentence, "answer": parts, "understood": shown}


def label_of(words: str, labels: Mapping[str, int]) -> str:
    """The label that is meant: ``cars`` is ``Car`` where there is such a label; else the words."""
    if words in labels:
        return words
    lower: dict[str, str] = {}
    for label in labels:
        lower.setdefault(label.lower(), label)
    small = words.lower()
    forms = [small]
    if small.endswith("ies"):
        forms.append(small[:-3] + "y")
    if small.endswith("es"):
        forms.append(small[:-2])
    if small.endswith("s"):
        forms.append(small[:-1])
    return next((lower[form] for form in forms if form in lower), words)


class _Search:
    """Memories that words were found in."""

    def __init__(self, words: str, hits: list[Hit]) -> None:
        self._words = words
        self._hits = hits

    def __str__(self) -> str:
        """A sentence."""
        if not self._hits:
            return f"Nothing is remembered of {self._words}."
        first = self._hits[0].memory
        count = plural(len(self._hits), "memory", "memories")
        return (
            f"{count} of {self._words}, the first {name(first)} at {point(first.position)}"
            f" in map {first.map_id}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"question": "search", "what": self._words, "hits": hits_json(self._hits)}


def _search(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> _Search:
    """By label or words, or what is like a memory or vector; in the time and place that were given."""
    values: dict[str, Any] = {}
    words = "what was asked for"
    if isinstance(asked.what, str):
        words = asked.what
        labelled = store.query(Query(labels=[words], map_id=asked.map_id, k=1)) if not body.labels else []
        values = {"labels": [words]} if labelled else {"text": words}
    elif isinstance(asked.what, int):
        values, words = {"like": asked.what}, f"what is like memory {asked.what}"
    elif asked.what is not None:
        values, words = {"embedding": asked.what}, "what looks like this"
    if body.labels is not None:
        values["labels"] = body.labels
    query = Query(
        near=asked.near,
        radius_m=asked.radius_m,
        polygon=_corners(body),
        between_ns=_time(asked),
        kinds=body.kinds,
        map_id=asked.map_id,
        k=body.k,
        **values,
    )
    return _Search(words, store.query(query))


def _time(asked: Understood) -> tuple[int, int] | None:
    if asked.between is not None:
        return asked.between[0], asked.between[1]
    return None if asked.since is None else tuple(until_now(asked.since))  # type: ignore[return-value]


def _corners(body: AskBody) -> list[tuple[float, float]] | None:
    return None if body.polygon is None else [(corner[0], corner[1]) for corner in body.polygon]


def _near(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    position, map_id = asked.near, asked.map_id
    if position is None and asked.what is not None:
        seen = questions.last_seen(asked.what, map_id=map_id)
        if seen.memory is None:
            return seen
        position, map_id = seen.memory.position[:2], seen.memory.map_id
    if position is None:
        raise ServiceError(422, "invalid", "near: give a point, or what it is near to", "near")
    radius = 5.0 if asked.radius_m is None else asked.radius_m
    if _time(asked) is not None:
        asked.near, asked.radius_m, asked.map_id, asked.what = position, radius, map_id, None
        return _between(store, questions, asked, body)
    return questions.near(position, radius, map_id=map_id, labels=body.labels, kinds=body.kinds, k=body.k)


def _between(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    when = _time(asked)
    if when is None:
        raise ServiceError(422, "invalid", "between: give the first and last time", "between")
    text = asked.what if isinstance(asked.what, str) else None
    return questions.between(
        *when, map_id=asked.map_id, near=asked.near, radius_m=asked.radius_m, labels=body.labels,
        kinds=body.kinds, text=text, limit=body.k,
    )  # fmt: skip


def _changed(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    if asked.since is None:
        raise ServiceError(422, "invalid", "since: changed since when?", "since")
    return questions.changed_since(asked.since, asked.map_id, near=asked.near, radius_m=asked.radius_m)


def _summarise(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    return questions.summarise(
        map_id=asked.map_id, near=asked.near, radius_m=asked.radius_m, polygon=_corners(body),
        since_ns=asked.since,
    )  # fmt: skip


def _similar(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    if isinstance(asked.what, str):
        raise ServiceError(422, "invalid", "what: similar_situations takes an id or a vector", "what")
    assert asked.what is not None
    return questions.similar_situations(asked.what, k=body.k, map_id=asked.map_id, kinds=body.kinds)


def _go_to(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    start = None if body.coming_from is None else tuple(body.coming_from)
    return questions.pose_to(_what(asked), map_id=asked.map_id, distance_m=body.distance_m, coming_from=start)


def _about(method: Callable[[Questions], Callable[..., Any]]) -> Callable[..., Any]:
    def ask(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
        return method(questions)(asked.what, map_id=asked.map_id)

    return ask


def _how_often(store: MemoryStore, questions: Questions, asked: Understood, body: AskBody) -> Any:
    return questions.how_often(_what(asked), map_id=asked.map_id, between_ns=_time(asked), gap_s=body.gap_s)


_ASKED: dict[str, Callable[[MemoryStore, Questions, Understood, AskBody], Any]] = {
    "last_seen": _about(lambda questions: questions.last_seen),
    "first_seen": _about(lambda questions: questions.first_seen),
    "still_there": _about(lambda questions: questions.still_there),
    "how_often": _how_often,
    "near": _near,
    "between": _between,
    "changed_since": _changed,
    "summarise": _summarise,
    "similar_situations": _similar,
    "pose_to": _go_to,
    "search": _search,
}


def _what(asked: Understood) -> Any:
    return "" if asked.what is None else asked.what
