"""What requests hold, and how their bodies are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from memory.exchange.records import memory_from_record
from memory.exchange.times import parse_time
from memory.query import Order, Query
from memory.serve.errors import ServiceError
from memory.serve.options import ServeOptions
from memory.types import MOST_CORNERS, MOST_LABELS, MOST_VISITS, Kind, Memory, State

#: An integer of 64 bits; ``true`` is none.
Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Vector = Annotated[list[Number], Field(min_length=1, fail_fast=True)]
Point = Annotated[list[Number], Field(min_length=2, max_length=3, description="x, y (and z) in metres")]
Corner = Annotated[list[Number], Field(min_length=2, max_length=2)]
Polygon = Annotated[
    list[Corner],
    Field(min_length=3, max_length=MOST_CORNERS, fail_fast=True, description="corners x, y in metres"),
]
Moment = Annotated[
    str | Integer, Field(description="ISO 8601 (UTC without a zone), now, or integer nanoseconds")
]
Span = Annotated[list[Moment], Field(min_length=2, max_length=2)]
Visit = Annotated[list[Moment], Field(min_length=3, max_length=3)]
Flag = Annotated[bool, Field(strict=True)]
#: A name, of which a memory has one and a question some: not a text.
Name = Annotated[str, Field(max_length=1000)]
Labels = Annotated[list[Name], Field(max_length=MOST_LABELS, fail_fast=True)]
Kinds = Annotated[list[Kind], Field(max_length=MOST_LABELS, fail_fast=True)]
States = Annotated[list[State], Field(max_length=MOST_LABELS, fail_fast=True)]
Words = Annotated[str, Field(max_length=1_000_000)]
Ids = Annotated[list[Integer], Field(min_length=1, fail_fast=True)]


class Body(BaseModel):
    """Of a request: fields that it does not have are refused."""

    model_config = ConfigDict(extra="forbid")


class MemoryRecord(TypedDict, total=False):
    """A memory to store: the fields of the library's ``Memory`` by name; only a time is needed.

    ``time``, ``first_seen`` and ``last_seen`` are ISO 8601 and stand for those in nanoseconds. An ``id`` is
    read over: the store gives its own.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    time_ns: Integer | None
    time: str | None
    position: Point | None
    x: Number | None
    y: Number | None
    z: Number | None
    yaw: Number | None
    covariance: Annotated[list[Annotated[list[Number], Field(fail_fast=True)]], Field(fail_fast=True)] | None
    map_id: Name | None
    kind: Kind | None
    label: Name | None
    caption: str | None
    embedding: Vector | None
    embeddings: dict[Name, Vector] | None
    confidence: Annotated[Number, Field(ge=0.0, le=1.0)] | None
    reward: Number | None
    payload: dict[str, Any] | None
    evidence: str | None
    provenance: str | None
    marked: Flag | None
    count: Annotated[Integer, Field(ge=1)] | None
    first_seen_ns: Integer | None
    last_seen_ns: Integer | None
    first_seen: str | None
    last_seen: str | None
    visits: Annotated[
        Annotated[list[Visit], Field(max_length=MOST_VISITS, fail_fast=True)] | None,
        Field(description="rows of first time, last time and count"),
    ]
    state: State | None
    importance: Number | None
    id: Integer | None


class AddBody(Body):
    """Memories to store, all of them or none."""

    memories: Annotated[list[MemoryRecord], Field(fail_fast=True)]
    observe: Flag = Field(False, description="score them, and keep only those that matter")


class QueryBody(Body):
    """What is searched; every part that is given must hold."""

    text: Words | None = Field(
        None, description="words of label or caption, or a sentence that they should fit"
    )
    embedding: Vector | None = Field(None, description="that hits should be similar to")
    like: Integer | None = Field(None, description="id of a memory that hits should be similar to")
    encoder: Name = "default"
    near: Point | None = None
    radius_m: Annotated[Number, Field(ge=0.0)] | None = None
    polygon: Polygon | None = None
    between_ns: Annotated[list[Integer], Field(min_length=2, max_length=2)] | None = None
    between: Span | None = None
    labels: Labels | None = None
    kinds: Kinds | None = None
    states: States | None = None
    map_id: Name | None = None
    min_confidence: Number = 0.0
    k: Annotated[Integer, Field(ge=1)] = 10
    order: Order | None = None
    aggregate: Flag = Field(False, description="also what attention makes of the memories around")


#: Questions that are asked in parts.
QUESTIONS = (
    "last_seen", "first_seen", "near", "between", "changed_since", "how_often", "how_many", "still_there",
    "summarise", "similar_situations", "seen_before", "been_here", "pose_to", "search",
)  # fmt: skip


class AskBody(Body):
    """A question as people type it, or the name of one with the parts that it needs."""

    question: str | None = Field(
        None,
        max_length=500,
        description=f"such as: where is the red mug? Or, with the other fields: {', '.join(QUESTIONS)}",
    )
    text: str | None = Field(
        None, max_length=500, deprecated=True, description="the old name of question, for words"
    )
    what: Name | Integer | Vector | None = Field(None, description="label or words, id of a memory, vector")
    near: Point | None = None
    radius_m: Annotated[Number, Field(ge=0.0)] | None = None
    polygon: Polygon | None = None
    between: Span | None = None
    since: Moment | None = None
    labels: Labels | None = None
    kinds: Kinds | None = None
    states: States | None = None
    map_id: Name | None = None
    k: Annotated[Integer, Field(ge=1)] = 10
    gap_s: Annotated[Number, Field(ge=0.0)] = 60.0
    distance_m: Annotated[Number, Field(ge=0.0)] = 1.0
    coming_from: Point | None = None
    now: Moment | None = Field(
        None, description="that words such as yesterday count from; newest: the time of the newest memory"
    )

    @property
    def words(self) -> str | None:
        """The question in words; ``None`` for one in parts.

        Raises:
            ServiceError: it is given by both names.
        """
        # Not as an attribute, whose use warns.
        old = vars(self)["text"]
        if old is not None and self.question is not None:
            raise ServiceError(422, "invalid", "text: it is the old name of question; give question", "text")
        return old if old is not None else None if self.question in QUESTIONS else self.question


class ForgetBody(Body):
    """Memories to forget."""

    ids: Ids
    secure: Flag = Field(False, description="erase them from the files for good; cannot be undone")
    reason: str = Field("asked for", max_length=500)


class MarkBody(Body):
    """What became of things."""

    ids: Ids
    state: State = Field("gone", description="what they are; the memories stay as history")
    at: Moment | None = Field(None, description="when that was found, by the robot's clock")
    why: str = Field("", max_length=500, description="it stays in the log")


class UndoBody(Body):
    """An operation to take back."""

    generation: Annotated[Integer, Field(ge=1)]


class ConsolidateBody(Body):
    """When freshness is judged at."""

    now: Moment | None = None


class SyncBody(Body):
    """Part of what a store has and the service lacks, as ``recall sync`` sends it."""

    batch: dict[str, Any]


class PullBody(Body):
    """How far a robot has what others saw, as ``recall sync --pull`` tells it."""

    position: dict[str, Any]
    name: Name = Field("shared", min_length=1, description="that the robot has the service's store by")
    maps: Labels | None = Field(None, description="of which memories are wanted; all without")


#: Of each address that something is sent to.
BODIES: dict[str, type[BaseModel]] = {
    "/api/memories": AddBody,
    "/api/query": QueryBody,
    "/api/ask": AskBody,
    "/api/forget": ForgetBody,
    "/api/mark": MarkBody,
    "/api/undo": UndoBody,
    "/api/consolidate": ConsolidateBody,
    "/api/sync": SyncBody,
    "/api/pull": PullBody,
}


def memories_of(body: AddBody, options: ServeOptions, dims: dict[str, int]) -> list[Memory]:
    """The memories to store.

    Args:
        body: of the request.
        options: limits.
        dims: length of the vectors by encoder.

    Raises:
        ServiceError: one is not right; names it.
    """
    at_most("memories", len(body.memories), options.max_batch)
    known = len(dims)
    found = []
    for row, record in enumerate(body.memories):
        try:
            for vector in (record.get("embedding"), *(record.get("embeddings") or {}).values()):
                at_most("vectors", len(vector or ()), options.max_vector)
            found.append(memory_from_record(record, dims))
        except (ValueError, TypeError, OverflowError) as error:
            raise ServiceError(422, "invalid", f"memories[{row}]: {error}", f"memories[{row}]") from error
    at_most("new encoders", len(dims) - known, options.max_new_encoders)
    return found


def query_of(body: QueryBody, options: ServeOptions) -> Query:
    """The query of a request.

    Raises:
        ServiceError, ValueError, TypeError: a field is not right; names it.
    """
    at_most("k", body.k, options.max_k)
    at_most("embedding", len(body.embedding or ()), options.max_vector)
    if body.between is not None and body.between_ns is not None:
        raise ServiceError(422, "invalid", "give between or between_ns, not both", "between")
    values: dict[str, Any] = body.model_dump(exclude={"between"})
    if body.between is not None:
        values["between_ns"] = span(body.between)
    elif body.between_ns is not None:
        values["between_ns"] = tuple(body.between_ns)
    if body.embedding is not None:
        values["embedding"] = vector_of("embedding", body.embedding)
    for name in ("text", "encoder", "map_id"):
        plain(name, values[name])
    return Query(**values)


def vector_of(name: str, numbers: Sequence[float]) -> Any:
    """(dim,) float32.

    Raises:
        ValueError: a number is too large for single precision.
    """
    with np.errstate(over="ignore"):
        vector = np.asarray(numbers, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be of numbers that single precision holds")
    return vector


def moment(name: str, value: str | int, *, end: bool = False) -> int:
    """Nanoseconds of a time.

    Raises:
        ServiceError: none; names the field.
    """
    if isinstance(value, int):
        return value
    try:
        return parse_time(value, end=end)
    except ValueError as error:
        raise ServiceError(422, "invalid", f"{name}: {error}", name) from error


def span(values: Sequence[str | int], name: str = "between") -> tuple[int, int]:
    """First and last nanosecond.

    Raises:
        ServiceError: no times, or they do not rise.
    """
    first, last = moment(name, values[0]), moment(name, values[1], end=True)
    if first > last:
        raise ServiceError(422, "invalid", f"{name} must rise", name)
    return first, last


def at_most(name: str, found: int, most: int) -> None:
    """Raise :class:`ServiceError` where more is asked for than is given."""
    if found > most:
        raise ServiceError(422, "invalid", f"{name}: at most {most} at a time, got {found}", name)


def plain(name: str, text: str | None) -> None:
    """Raise ``ServiceError`` for text that SQLite or UTF-8 does not hold."""
    if text is None:
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ServiceError(422, "invalid", f"{name} is not valid Unicode", name) from error
    if "\0" in text:
        raise ServiceError(422, "invalid", f"{name} must not contain a zero character", name)
