"""What answers hold beside the records of the library: shapes for the schema; tests hold answers to it.

A field with a default may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from memory.persistence.log.operations import TrimReport
from memory.persistence.reports import Stats
from memory.questions.answers import (
    Changed,
    DrivePose,
    Happened,
    HowMany,
    HowOften,
    Nearby,
    SearchResult,
    Sighting,
    Similar,
    StillThere,
    Summary,
)
from memory.questions.recognising import SeenBefore
from memory.types import Hit, Memory, State


@dataclass(frozen=True)
class Error:
    """What is wrong."""

    type: Annotated[str, Field(description="a word for programs")]
    message: Annotated[str, Field(description="a sentence for people")]
    field: Annotated[str | None, Field(description="of the request, where one is to blame")]


@dataclass(frozen=True)
class ErrorAnswer:
    """A request that was refused, or failed."""

    error: Error


@dataclass(frozen=True)
class KeptAnswer:
    """What became of an observation."""

    id: Annotated[int | None, Field(description="of the memory; null where it was not kept")]
    reason: str
    importance: float


@dataclass(frozen=True)
class AddAnswer:
    """The ids in the order of the memories; what follows only with ``observe``."""

    ids: list[int | None]
    kept: list[KeptAnswer] = field(default_factory=list)
    displaced: list[int] = field(default_factory=list)
    generation: Annotated[
        int | None, Field(description="the last operation; null where nothing was done")
    ] = None


@dataclass(frozen=True)
class PageAnswer:
    """Memories, and how the next ones are asked for."""

    memories: list[Memory]
    cursor: Annotated[str | None, Field(description="of the next page; null where there is none")]
    total: Annotated[int, Field(description="of all that pass, with total=true")] = 0


@dataclass(frozen=True)
class HitsAnswer:
    """The best first; ``context``, what attention makes of all around, only with ``aggregate``."""

    hits: list[Hit]
    context: list[float] | None = None


@dataclass(frozen=True)
class AskAnswer:
    """A sentence, what it says in parts, and how the question was understood."""

    question: str
    sentence: str
    answer: (
        Sighting
        | Nearby
        | Happened
        | Changed
        | HowOften
        | HowMany
        | StillThere
        | Summary
        | Similar
        | SeenBefore
        | DrivePose
        | SearchResult
    )
    understood: dict[str, Any]


@dataclass(frozen=True)
class EventAnswer:
    """Something that happened to a memory."""

    time_ns: int
    operation: str
    detail: str


@dataclass(frozen=True)
class PathAnswer:
    """Lines of where the robot was."""

    parts: Annotated[
        list[list[list[float]]], Field(description="rows of time in nanoseconds, x and y in metres")
    ]


@dataclass(frozen=True)
class ExplainAnswer:
    """Why a memory is as it is; ``memory`` is null where it is gone."""

    id: int
    status: Literal["kept", "merged", "forgotten", "undone"]
    reasons: list[str]
    parts: dict[str, float | None]
    history: list[EventAnswer]
    into: int | None
    sources: list[int]
    vectors: Annotated[list[str], Field(description="encoders that the memory has a vector of")]
    memory: Memory | None


@dataclass(frozen=True)
class ForgetAnswer:
    """The operation, for undoing it."""

    generation: int
    forgotten: int
    can_be_undone: bool


@dataclass(frozen=True)
class MarkAnswer:
    """The operation, for undoing it."""

    generation: int
    marked: int
    state: State


@dataclass(frozen=True)
class UndoAnswer:
    """The operation of undoing, which can be undone in turn."""

    generation: int
    undone: int


@dataclass(frozen=True)
class PositionAnswer:
    """How far the service has what a store sends."""

    store: Annotated[str, Field(description="random name of the service's own store")]
    points: Annotated[list[list[Any]], Field(description="operations and identities, the newest last")]
    partial: Annotated[list[list[Any]], Field(description="what came since: a point, runs of ids")]
    robot: str | None


@dataclass(frozen=True)
class SyncAnswer:
    """What a batch did."""

    added: int
    changed: int
    removed: int
    kept: Annotated[int, Field(description="changes not made, of what was forgotten or merged for good")]
    generation: Annotated[int | None, Field(description="null where the batch had come before")]
    future: Annotated[int, Field(description="memories seen more than a minute after they came, as they say")]
    ahead_ns: Annotated[int, Field(description="the sender's clock, against the service's")]


@dataclass(frozen=True)
class PullAnswer:
    """The next batch of what others saw."""

    batch: dict[str, Any] | None


@dataclass(frozen=True)
class MergeAnswer:
    """Memories that became one."""

    id: int
    sources: list[int]


@dataclass(frozen=True)
class ForgottenAnswer:
    """A memory that was forgotten."""

    id: int
    reason: str


@dataclass(frozen=True)
class FailedAnswer:
    """Memories that would have become one and could not; they stay as they were."""

    ids: list[int]
    reason: str


@dataclass(frozen=True)
class ConsolidateAnswer:
    """The numbers, and the first of each sort."""

    merged: list[MergeAnswer]
    merged_count: int
    forgotten: list[ForgottenAnswer]
    forgotten_count: int
    generations: list[int]
    trimmed: TrimReport
    failed: list[FailedAnswer]
    failed_count: int


@dataclass(frozen=True)
class Ids:
    """The first and last id of what an operation added."""

    first: int
    last: int


@dataclass(frozen=True)
class OperationAnswer:
    """Something that was done; ``added`` is the first and last new id."""

    generation: int
    time_ns: int
    operation: str
    ids_count: int
    added: Ids | None
    undoes: int | None
    undone: bool
    detail: dict[str, Any]


@dataclass(frozen=True)
class LogAnswer:
    """Operations by rising number, and the number of the last there is."""

    operations: list[OperationAnswer]
    generation: int


@dataclass(frozen=True)
class CheckAnswer:
    """What a check of the files found."""

    time_ns: int
    ok: bool
    memories: int
    problems: list[str]
    repaired: list[str]
    lost: list[str]


@dataclass(frozen=True)
class StatsAnswer(Stats):
    """Numbers about the store; see ``recall stats``."""

    by_label: dict[str, int]
    by_state: dict[str, int]
    dim: int
    encoders: dict[str, int]
    readonly: bool
    first_time_ns: int | None
    last_time_ns: int | None
    tiers: dict[str, dict[str, Any]]
    check: CheckAnswer | None
    followers: int


@dataclass(frozen=True)
class HealthAnswer:
    """That the store answers."""

    status: Literal["ok"]
    generation: int
    readonly: bool
