"""Request bodies, and their conversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from memory.areas import PLACE_RADIUS_M
from memory.exchange.records import memory_from_record
from memory.exchange.times import parse_time
from memory.query import Order, Query
from memory.serve.errors import ServiceError
from memory.serve.options import ServeOptions
from memory.types import MOST_CORNERS, MOST_LABELS, MOST_VISITS, Kind, Memory, State

#: A 64-bit integer; ``true`` is not accepted.
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
    str | Integer, Field(description="ISO 8601 (default zone: UTC), now, or integer nanoseconds")
]
Span = Annotated[list[Moment], Field(min_length=2, max_length=2)]
Visit = Annotated[list[Moment], Field(min_length=3, max_length=3)]
Flag = Annotated[bool, Field(strict=True)]
#: A label, map or encoder name.
Name = Annotated[str, Field(max_length=1000)]
Labels = Annotated[list[Name], Field(max_length=MOST_LABELS, fail_fast=True)]
Kinds = Annotated[list[Kind], Field(max_length=MOST_LABELS, fail_fast=True)]
States = Annotated[list[State], Field(max_length=MOST_LABELS, fail_fast=True)]
Words = Annotated[str, Field(max_length=1_000_000)]
Ids = Annotated[list[Integer], Field(min_length=1, fail_fast=True)]


class Body(BaseModel):
    """Request body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class MemoryRecord(TypedDict, total=False):
    """A memory to store. It has the fields of ``Memory`` in the library; only a time is required.

    ``time``, ``first_seen`` and ``last_seen`` are ISO 8601 alternatives to nanoseconds. ``id`` is ignored.
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
    velocity: Annotated[Point | None, Field(description="x, y, z in m/s in the map frame")]
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
        Field(description="rows of first time, last time and number of observations"),
    ]
    state: State | None
    importance: Number | None
    id: Integer | None


class AddBody(Body):
    """Memories to store, all or none."""

    memories: Annotated[list[MemoryRecord], Field(fail_fast=True)]
    observe: Flag = Field(False, description="score the memories and store only important ones")


class QueryBody(Body):
    """A search; hits match all given conditions."""

    text: Words | None = Field(None, description="words in label or caption, or a sentence")
    embedding: Vector | None = Field(None, description="vector to compare with")
    like: Integer | None = Field(None, description="id of a memory to compare with")
    encoder: Name = "default"
    near: Point | None = None
    radius_m: Annotated[Number, Field(ge=0.0)] | None = None
    polygon: Polygon | None = None
    area: Name | None = Field(None, description="name of an area, see /api/areas")
    between_ns: Annotated[list[Integer], Field(min_length=2, max_length=2)] | None = None
    between: Span | None = None
    labels: Labels | None = None
    kinds: Kinds | None = None
    states: States | None = None
    map_id: Name | None = None
    min_confidence: Number = 0.0
    moving: Flag | None = Field(
        None, description="true: moved when last observed, false: stood; unknown is neither"
    )
    k: Annotated[Integer, Field(ge=1)] = 10
    order: Order | None = None
    aggregate: Flag = Field(False, description="also return attention weights and the aggregated vector")


#: Names of questions.
QUESTIONS = (
    "last_seen", "first_seen", "near", "between", "changed_since", "how_often", "how_many", "left",
    "still_there", "summarise", "similar_situations", "seen_before", "been_here", "pose_to", "search",
)  # fmt: skip


class AskBody(Body):
    """A question in plain English, or the name of a question with its parts."""

    question: str | None = Field(
        None,
        max_length=500,
        description=f"in English, such as: where is the red mug? Or a name: {', '.join(QUESTIONS)}",
    )
    text: str | None = Field(None, max_length=500, deprecated=True, description="old name of question")
    query: dict[str, Any] | None = Field(
        None, description="a structured query in place of question, with the fields of docs/ask.md"
    )
    what: Name | Integer | Vector | None = Field(
        None, description="a label or words, the id of a memory, or a vector"
    )
    near: Point | None = None
    radius_m: Annotated[Number, Field(ge=0.0)] | None = None
    polygon: Polygon | None = None
    area: Name | None = Field(None, description="name of an area, see /api/areas")
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
    pose: Annotated[list[Number], Field(min_length=3, max_length=3)] | None = Field(
        None, description="x, y in metres and yaw in radians of the robot, for 'near me' and 'left of'"
    )
    now: Moment | None = Field(
        None, description="time that 'yesterday' refers to; newest: the time of the newest memory"
    )
    confidence: Annotated[Number, Field(ge=0.5, lt=1.0)] | None = Field(
        None,
        description="also answer yes, no or unknown with an error of at most 1 - confidence; for 'is it still"
        " there?' and 'have I been here?'",
    )

    @property
    def words(self) -> str | None:
        """The question in words, or ``None`` for a named question."""
        # Access through the attribute would warn.
        old = vars(self)["text"]
        if old is not None and self.question is not None:
            raise ServiceError(
                422, "invalid", "text: this is the old name of question. Give only question", "text"
            )
        return old if old is not None else None if self.question in QUESTIONS else self.question


class ForgetBody(Body):
    """Memories to forget."""

    ids: Ids
    secure: Flag = Field(False, description="erase them from all files; this cannot be undone")
    reason: str = Field("asked for", max_length=500)


class MarkBody(Body):
    """New state of objects."""

    ids: Ids
    state: State = Field("gone", description="new state; the memories stay as history")
    at: Moment | None = Field(None, description="time of the state, by the robot's clock")
    why: str = Field("", max_length=500, description="reason, kept in the log")


class AreaBody(Body):
    """A named part of a map: a polygon, a box, or what surrounds some places."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    polygon: Polygon | None = None
    box: Annotated[list[Number], Field(min_length=4, max_length=4)] | None = Field(
        None, description="x0, y0, x1, y1 in metres"
    )
    places: Ids | None = Field(None, description="ids of memories that the area surrounds")
    radius_m: Annotated[Number, Field(gt=0.0)] = Field(
        PLACE_RADIUS_M, description="radius around each of the places in metres"
    )
    map_id: Name | None = Field(None, description="default: the only map, or that of the places")


class RemoveAreaBody(Body):
    """The name of an area."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    map_id: Name | None = None


class UndoBody(Body):
    """An operation to undo."""

    generation: Annotated[Integer, Field(ge=1)]


class ConsolidateBody(Body):
    """Time at which the age of memories is judged."""

    now: Moment | None = None


class SyncBody(Body):
    """A batch of ``recall sync``."""

    batch: dict[str, Any]


class AreaSyncBody(Body):
    """The areas of a store in ``recall sync``."""

    areas: dict[str, Any]


class AreaPullBody(Body):
    """The store that pulls areas in ``recall sync --pull``."""

    store: Annotated[str, Field(min_length=1, max_length=200, description="random name of the robot's store")]
    name: Name = Field("shared", min_length=1, description="name of the service's store at the robot")
    maps: Labels | None = Field(None, description="only these maps; default: all")


class PullBody(Body):
    """The position of a robot in ``recall sync --pull``."""

    position: dict[str, Any]
    name: Name = Field("shared", min_length=1, description="name of the service's store at the robot")
    maps: Labels | None = Field(None, description="only these maps; default: all")


class LocateBody(Body):
    """A scan without a pose."""

    detections: dict[str, Any] = Field(description="one line of the detections.jsonl of perceive detect")
    map_id: Name | None = Field(None, description="only this map; default: all maps")
    least_probability: Annotated[Number, Field(gt=0.0, lt=1.0)] = Field(
        0.9, description="smallest probability of an answer"
    )
    k: Annotated[Integer, Field(ge=1)] = Field(5, description="maximum number of candidates")


#: Body of each POST address.
BODIES: dict[str, type[BaseModel]] = {
    "/api/memories": AddBody,
    "/api/query": QueryBody,
    "/api/ask": AskBody,
    "/api/locate": LocateBody,
    "/api/forget": ForgetBody,
    "/api/mark": MarkBody,
    "/api/areas": AreaBody,
    "/api/areas/remove": RemoveAreaBody,
    "/api/undo": UndoBody,
    "/api/consolidate": ConsolidateBody,
    "/api/sync": SyncBody,
    "/api/areas/sync": AreaSyncBody,
    "/api/areas/pull": AreaPullBody,
    "/api/pull": PullBody,
}


def memories_of(body: AddBody, options: ServeOptions, dims: dict[str, int]) -> list[Memory]:
    """Return the memories to store; ``dims`` is the vector length by encoder."""
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
    """Return the query of a request."""
    at_most("k", body.k, options.max_k)
    at_most("embedding", len(body.embedding or ()), options.max_vector)
    if body.between is not None and body.between_ns is not None:
        raise ServiceError(
            422, "invalid", "between and between_ns exclude each other. Give one of them", "between"
        )
    values = {name: getattr(body, name) for name in body.model_fields_set if name != "between"}
    if body.between is not None:
        values["between_ns"] = span(body.between)
    elif body.between_ns is not None:
        values["between_ns"] = tuple(body.between_ns)
    for name in ("text", "encoder", "map_id", "area"):
        plain(name, values.get(name))
    return Query(**values)


def vector_of(name: str, numbers: Sequence[float]) -> Any:
    """Return a (dim,) float32 vector; raise ``ValueError`` on overflow."""
    with np.errstate(over="ignore"):
        vector = np.asarray(numbers, dtype=np.float32)
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} has a number that is too large for single precision")
    return vector


def moment(name: str, value: str | int, *, end: bool = False) -> int:
    """Return a time in nanoseconds; raise ``ServiceError`` if it is invalid."""
    if isinstance(value, int):
        return value
    try:
        return parse_time(value, end=end)
    except ValueError as error:
        raise ServiceError(422, "invalid", f"{name}: {error}", name) from error


def span(values: Sequence[str | int], name: str = "between") -> tuple[int, int]:
    """Return the first and last nanosecond of a time range; raise ``ServiceError`` if it is invalid."""
    first, last = moment(name, values[0]), moment(name, values[1], end=True)
    if first > last:
        raise ServiceError(422, "invalid", f"{name}: the first time is after the last. Swap them", name)
    return first, last


def at_most(name: str, found: int, most: int) -> None:
    """Raise :class:`ServiceError` above a limit."""
    if found > most:
        raise ServiceError(422, "invalid", f"{name}: at most {most} at once, got {found}", name)


def plain(name: str, text: str | None) -> None:
    """Raise ``ServiceError`` for text with a zero character or invalid Unicode."""
    if text is None:
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ServiceError(422, "invalid", f"{name} is not valid Unicode", name) from error
    if "\0" in text:
        raise ServiceError(422, "invalid", f"{name} must not contain a zero character", name)
