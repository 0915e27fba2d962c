"""Tools of the Model Context Protocol for language models."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from memory.errors import RecallError
from memory.exchange.times import parse_time
from memory.picture import draw_map
from memory.plain_values import to_plain
from memory.query import Filter, Query
from memory.questions import Questions
from memory.questions.guarantee.answering import guarantee_of
from memory.questions.reading.times import since_of, span_of
from memory.questions.replying import Reply, ReplyOptions, reply
from memory.questions.translation.query import FIELDS, QUESTIONS, parse_query
from memory.serve.answers import explanation_answer, memory_answer, shortened
from memory.store import MemoryStore
from memory.types import Kind, Memory, State

#: Maximum memories in a list of changes, and in a picture.
_MOST, _MOST_DRAWN = 100, 20_000
What = Annotated[
    str | int,
    Field(description="The object: a label (see stats), words of its caption, or the id of a memory"),
]
AreaName = Annotated[str | None, Field(description="Only this area, by its name (see stats)")]
MapId = Annotated[str | None, Field(description="Only this map; default: all maps")]
When = Annotated[
    str,
    Field(description="ISO 8601 such as 2026-01-02T10:00:00Z or 2026-01-02, now, yesterday, or 2 hours ago"),
]
Labels = Annotated[list[str] | None, Field(description="Only these labels")]
Kinds = Annotated[list[Kind] | None, Field(description="Only these kinds")]
States = Annotated[list[State] | None, Field(description="Only objects in these states")]
X = Annotated[float, Field(description="In metres")]
Coordinate = Annotated[
    float | None, Field(description="In metres. Give x and y, or neither if the place is unknown")
]
Radius = Annotated[float, Field(description="Radius in metres", ge=0.0)]
Most = Annotated[int, Field(description="Maximum number of memories", ge=1, le=100)]
Id = Annotated[int, Field(description="Id of a memory", ge=1)]
Now = Annotated[
    str | None,
    Field(description="Time that 'yesterday' refers to; newest: the time of the newest memory"),
]
Confidence = Annotated[
    float | None,
    Field(
        description="Also answer yes, no or unknown with an error of at most 1 - confidence, for 'is it still"
        " there?' and 'have I been here?'",
        ge=0.5,
        lt=1.0,
    ),
]


class StoreTools:
    """MCP tools, one per method. Models read the docstrings.

    Args:
        store: open store; the caller closes it.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._questions = Questions(store)

    def query(
        self,
        text: Annotated[str | None, Field(description="Words in label or caption, or a sentence")] = None,
        like: Annotated[int | None, Field(description="Id of a memory to compare with")] = None,
        x: Annotated[float | None, Field(description="In metres; needs y and radius_m")] = None,
        y: Annotated[float | None, Field(description="In metres")] = None,
        radius_m: Annotated[float | None, Field(description="Radius around x, y in metres", ge=0.0)] = None,
        start: Annotated[
            str | None, Field(description="First time: ISO 8601, yesterday, 2 hours ago")
        ] = None,
        end: Annotated[str | None, Field(description="Last time")] = None,
        labels: Labels = None,
        kinds: Kinds = None,
        states: States = None,
        map_id: MapId = None,
        area: AreaName = None,
        order: Annotated[
            Literal["relevance", "recency", "distance"] | None, Field(description="Sort order")
        ] = None,
        k: Most = 10,
    ) -> dict[str, Any]:
        """Search memories by text, similarity, place, time and label. Hits match all given conditions."""
        near, between = _point(x, y), _span(start, end)
        hits = self._store.query(
            Query(
                text=text, like=like, near=near, radius_m=radius_m, between_ns=between, labels=labels,
                kinds=kinds, states=states, map_id=map_id, area=area, order=order, k=k,
            )
        )  # fmt: skip
        return {"hits": to_plain(hits)}

    def ask(
        self,
        question: Annotated[
            str, Field(description="A question in plain English, such as: where is the car?")
        ],
        now: Now = None,
        map_id: MapId = None,
        area: AreaName = None,
        pose: Annotated[
            tuple[float, float, float] | None,
            Field(description="x, y in metres and yaw in radians of the robot, for 'near me' or 'left of'"),
        ] = None,
        k: Most = 10,
        confidence: Confidence = None,
    ) -> dict[str, Any]:
        """Answer a question in plain English: where, when, how many, what is nearest, on or under it."""
        at = self._now(now)
        asked = self._questions.understand(question, at)
        found = reply(
            self._questions,
            replace(asked, map_id=asked.map_id or map_id),
            ReplyOptions(k=k, pose=pose, area=area),
        )
        return self._guaranteed(found, confidence, at)

    def ask_query(
        self,
        query: Annotated[
            dict[str, Any],
            Field(
                description="Structured query. question is one of "
                + "; ".join(f"{name} ({text})" for name, text in QUESTIONS.items())
                + ". Other fields: "
                + "; ".join(f"{name}: {text}" for name, text in FIELDS.items() if name != "question"),
            ),
        ],
        pose: Annotated[
            tuple[float, float, float] | None,
            Field(description="x, y in metres and yaw in radians of the robot, for left of or behind"),
        ] = None,
        k: Most = 10,
        confidence: Confidence = None,
        now: Now = None,
    ) -> dict[str, Any]:
        """Answer a structured query: translate a question into it that ask refuses."""
        found = reply(self._questions, parse_query(query), ReplyOptions(k=k, pose=pose))
        return self._guaranteed(found, confidence, self._now(now))

    def _now(self, now: str | None) -> int:
        return time.time_ns() if now is None else self._store.newest_ns if now == "newest" else _since(now)

    def _guaranteed(self, found: Reply, confidence: float | None, now_ns: int) -> dict[str, Any]:
        """Return an answer, with its guarantee if a confidence is given."""
        parts = shortened(found.answer.to_json(), _MOST)
        if confidence is None:
            return {"sentence": found.sentence, **parts}
        guaranteed = guarantee_of(self._store, found.answer, confidence, now_ns=now_ns)
        return {"sentence": f"{found.sentence} {guaranteed}", **parts, "guarantee": to_plain(guaranteed)}

    def last_seen(self, what: What, map_id: MapId = None) -> dict[str, Any]:
        """Find where and when an object was last seen. Use it for 'where is ...?'"""
        return _answer(self._questions.last_seen(what, map_id=map_id))

    def first_seen(self, what: What, map_id: MapId = None) -> dict[str, Any]:
        """Find where and when an object was first seen."""
        return _answer(self._questions.first_seen(what, map_id=map_id))

    def near(
        self, x: X, y: X, radius_m: Radius = 5.0, map_id: MapId = None, labels: Labels = None,
        kinds: Kinds = None, states: States = None, k: Most = 20,
    ) -> dict[str, Any]:  # fmt: skip
        """List memories around a point, the closest first, with distances in metres."""
        return _answer(
            self._questions.near(
                (x, y), radius_m, map_id=map_id, labels=labels, kinds=kinds, states=states, k=k
            )
        )

    def between(
        self, start: When, end: When, map_id: MapId = None, labels: Labels = None, kinds: Kinds = None,
        states: States = None,
        text: Annotated[str | None, Field(description="Words in label or caption")] = None, limit: Most = 50,
    ) -> dict[str, Any]:  # fmt: skip
        """List the memories of a time range, in order of time."""
        return _answer(
            self._questions.between(
                _since(start), _until(end), map_id=map_id, labels=labels, kinds=kinds, states=states,
                text=text, limit=limit,
            )
        )  # fmt: skip

    def changed_since(self, since: When, map_id: MapId = None) -> dict[str, Any]:
        """List what is new, gone or moved since a time."""
        return _answer(self._questions.changed_since(_since(since), map_id))

    def how_often(
        self,
        what: What,
        start: Annotated[str | None, Field(description="Only from this time")] = None,
        end: Annotated[str | None, Field(description="Only up to this time")] = None,
        map_id: MapId = None,
    ) -> dict[str, Any]:
        """Count how often, on how many days and for how long an object was seen."""
        return _answer(self._questions.how_often(what, map_id=map_id, between_ns=_span(start, end)))

    def how_many(
        self,
        what: Annotated[
            str | int | None, Field(description="Label, words or id; default: everything")
        ] = None,
        start: Annotated[str | None, Field(description="Only from this time")] = None,
        end: Annotated[str | None, Field(description="Only up to this time")] = None,
        x: Annotated[float | None, Field(description="In metres; needs y and radius_m")] = None,
        y: Annotated[float | None, Field(description="In metres")] = None,
        radius_m: Annotated[float | None, Field(description="Radius around x, y in metres", ge=0.0)] = None,
        map_id: MapId = None,
    ) -> dict[str, Any]:
        """Count memories by label and state, and the distinct objects among them."""
        return _answer(
            self._questions.how_many(
                what, map_id=map_id, between_ns=_span(start, end), near=_point(x, y), radius_m=radius_m
            )
        )

    def still_there(self, what: What, map_id: MapId = None) -> dict[str, Any]:
        """Judge whether an object is still where it was last seen, and why."""
        return _answer(self._questions.still_there(what, map_id=map_id))

    def summarise(
        self,
        map_id: MapId = None,
        x: Annotated[float | None, Field(description="In metres; needs y and radius_m")] = None,
        y: Annotated[float | None, Field(description="In metres")] = None,
        radius_m: Annotated[float | None, Field(description="Radius around x, y in metres", ge=0.0)] = None,
        since: Annotated[str | None, Field(description="Also list changes since this time")] = None,
    ) -> dict[str, Any]:
        """Summarise the memories of a place or of everything: counts and the most important ones."""
        near = _point(x, y)
        since_ns = None if since is None else _since(since)
        return _answer(
            self._questions.summarise(map_id=map_id, near=near, radius_m=radius_m, since_ns=since_ns)
        )

    def similar_situations(self, id: Id, k: Most = 10, map_id: MapId = None) -> dict[str, Any]:
        """Find memories similar to one, and the reward to expect from them."""
        return _answer(self._questions.similar_situations(id, k=k, map_id=map_id))

    def explain(self, id: Id) -> dict[str, Any]:
        """Explain why a memory was kept, merged or forgotten, with its history."""
        found = self._store.explain(id)
        try:
            (memory,) = self._store.get([id])
        except RecallError:
            return explanation_answer(found, None)
        return explanation_answer(found, memory)

    def stats(self) -> dict[str, Any]:
        """Count memories by map, kind and label; also returns the named areas and the last operation."""
        found = self._store.stats().to_json()
        summary = self._questions.summarise(most=1)
        labels = sorted(summary.by_label.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST]
        totals = {name: found[name] for name in ("memories", "by_map", "by_kind", "vectors", "generation")}
        totals |= {"areas": [{"name": area.name, "map_id": area.map_id} for area in self._store.areas()]}
        return totals | {"by_label": dict(labels), "first_ns": summary.first_ns, "last_ns": summary.last_ns}

    def picture(
        self,
        map_id: Annotated[
            str | None, Field(description="The map; default: the one with most memories")
        ] = None,
    ) -> dict[str, Any]:
        """Draw the memories of a map from above: objects, gone objects, places and trajectories."""
        maps = self._store.stats().by_map
        if map_id is None:
            map_id = max(maps, key=lambda name: (maps[name], name), default="default")
        memories = self._store.find(Filter(map_id=map_id), limit=_MOST_DRAWN, vectors=False)
        drawn = io.BytesIO()
        draw_map(drawn, memories, title=f"{len(memories)} memories of map {map_id}")
        return {"map_id": map_id, "memories": len(memories), "picture": drawn.getvalue()}

    def add_note(
        self,
        text: Annotated[str, Field(description="What to remember", min_length=1, max_length=10_000)],
        label: Annotated[str, Field(description="A name to find it by")] = "",
        x: Coordinate = None,
        y: Coordinate = None,
        map_id: Annotated[str, Field(description="Map that x and y refer to")] = "default",
        important: Annotated[bool, Field(description="Protect it from automatic forgetting")] = False,
    ) -> dict[str, Any]:
        """Store a note. Use it only when asked to remember something.

        Without x and y, its place is unknown.
        """
        if (x is None) != (y is None):
            raise ValueError("x and y belong together. Give both, or neither if the place is unknown")
        note = Memory(
            time_ns=time.time_ns(), position=None if x is None or y is None else (x, y, 0.0),
            map_id=map_id, kind="note", label=label,
            caption=text, marked=important, provenance="mcp",
        )  # fmt: skip
        (id,) = self._store.add([note])
        return {"id": id, "memory": memory_answer(self._store.get([id])[0])}

    def forget(
        self,
        ids: Annotated[list[int], Field(description="Ids of the memories", min_length=1, max_length=1000)],
        reason: Annotated[str, Field(description="Reason, shown by explain", max_length=500)] = "asked for",
    ) -> dict[str, Any]:
        """Forget memories. Use it only when asked to. undo reverts the returned operation."""
        known = sorted(set(ids))
        return {"operation": self._store.forget(known, reason=reason), "forgotten": known}

    def undo(
        self, operation: Annotated[int, Field(description="Number of the operation", ge=1)]
    ) -> dict[str, Any]:
        """Undo an operation, such as forgetting memories."""
        return {"operation": self._store.undo(operation), "undone": operation}


def _answer(answer: Any) -> dict[str, Any]:
    return {"sentence": str(answer), **shortened(answer.to_json(), _MOST)}


def _point(x: float | None, y: float | None) -> tuple[float, float] | None:
    if (x is None) != (y is None):
        raise ValueError("x and y belong together. Give both or neither")
    return None if x is None or y is None else (x, y)


def _span(start: str | None, end: str | None) -> tuple[int, int] | None:
    if start is None and end is None:
        return None
    return (-(2**63) if start is None else _since(start), 2**63 - 1 if end is None else _until(end))


def _since(text: str) -> int:
    try:
        return since_of(text, time.time_ns())
    except ValueError:
        return parse_time(text)


def _until(text: str) -> int:
    try:
        return span_of(text, time.time_ns()).last
    except ValueError:
        return parse_time(text, end=True)
