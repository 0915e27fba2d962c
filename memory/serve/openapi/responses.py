"""Response classes of the service, for the schema. Tests compare answers with them.

Fields with a default are optional.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from memory.locate.answers import PoseCandidate, Verdict
from memory.persistence.log.operations import TrimReport
from memory.persistence.reports import Stats
from memory.questions.answers import (
    Changed,
    DrivePose,
    HowMany,
    HowOften,
    Nearby,
    SearchResult,
    Sighting,
    Similar,
    StillThere,
    Summary,
)
from memory.questions.changes import Happened
from memory.questions.comparisons import Comparison, Distance, Related
from memory.questions.guarantee.conformal import Guarantee
from memory.questions.ranking import Ordering
from memory.questions.recognising import SeenBefore
from memory.questions.selections.answers import Selection
from memory.types import Hit, Memory, State


@dataclass(frozen=True)
class Error:
    """An error."""

    type: Annotated[str, Field(description="error name for programs")]
    message: Annotated[str, Field(description="a sentence for people")]
    field: Annotated[str | None, Field(description="request field at fault, if known")]


@dataclass(frozen=True)
class ErrorAnswer:
    """A failed request."""

    error: Error


@dataclass(frozen=True)
class KeptAnswer:
    """The decision for an observation."""

    id: Annotated[int | None, Field(description="id of the memory; null if it was not kept")]
    reason: str
    importance: float


@dataclass(frozen=True)
class AddAnswer:
    """The ids in the order of the memories; other fields only with ``observe``."""

    ids: list[int | None]
    kept: list[KeptAnswer] = field(default_factory=list)
    displaced: list[int] = field(default_factory=list)
    generation: Annotated[
        int | None, Field(description="number of the last operation; null if nothing was done")
    ] = None


@dataclass(frozen=True)
class AreaShape:
    """A named part of a map; ``polygon`` or ``places`` is empty."""

    name: str
    map_id: str
    polygon: Annotated[list[list[float]], Field(description="corners x, y in metres")]
    places: Annotated[list[int], Field(description="ids of memories that the area surrounds")]
    points: Annotated[list[list[float]], Field(description="x, y in metres of each of the places")]
    radius_m: Annotated[float | None, Field(description="radius around each place in metres")]


@dataclass(frozen=True)
class AreasAnswer:
    """The areas by map and name."""

    areas: list[AreaShape]


@dataclass(frozen=True)
class AreaAnswer:
    """An operation on an area."""

    generation: int
    name: str


@dataclass(frozen=True)
class PageAnswer:
    """A page of memories."""

    memories: list[Memory]
    cursor: Annotated[str | None, Field(description="cursor of the next page; null if there is none")]
    total: Annotated[int, Field(description="number of all matches, with total=true")] = 0


@dataclass(frozen=True)
class HitsAnswer:
    """The best hits first; ``context`` is the aggregated vector, only with ``aggregate``."""

    hits: list[Hit]
    context: list[float] | None = None


@dataclass(frozen=True)
class LocateAnswer:
    """The pose of a scan, or null if it is ambiguous or unknown, with all candidates."""

    sentence: str
    pose: PoseCandidate | None
    verdict: Verdict
    candidates: list[PoseCandidate]
    unknown: float
    seen: int
    reason: str


@dataclass(frozen=True)
class AnswerParts:
    """The answers to the parts of a question, each of them as the answer of a question alone."""

    question: Literal["several"]
    answers: list[dict[str, Any]]


@dataclass(frozen=True)
class AskAnswer:
    """The answer as a sentence and in parts, and the parsed question."""

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
        | Related
        | Distance
        | Comparison
        | Ordering
        | Similar
        | SeenBefore
        | DrivePose
        | SearchResult
        | Selection
        | AnswerParts
    )
    understood: dict[str, Any]
    guarantee: Annotated[
        Guarantee | None, Field(description="yes, no or unknown, if a confidence is given")
    ] = None


@dataclass(frozen=True)
class EventAnswer:
    """An operation on a memory."""

    time_ns: int
    operation: str
    detail: str


@dataclass(frozen=True)
class PathAnswer:
    """The trajectory of the robot."""

    parts: Annotated[
        list[list[list[float]]],
        Field(description="lines with rows of time in nanoseconds, x and y in metres"),
    ]


@dataclass(frozen=True)
class ExplainAnswer:
    """History and state of a memory; ``memory`` is null if it no longer exists."""

    id: int
    status: Literal["kept", "merged", "forgotten", "undone"]
    reasons: list[str]
    parts: dict[str, float | None]
    history: list[EventAnswer]
    into: int | None
    sources: list[int]
    vectors: Annotated[list[str], Field(description="encoders of its vectors")]
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
    """The undo operation, which can be undone too."""

    generation: int
    undone: int


@dataclass(frozen=True)
class PositionAnswer:
    """The position of the service in the history of a sender."""

    store: Annotated[str, Field(description="random name of the service's store")]
    points: Annotated[list[list[Any]], Field(description="operation numbers and identities, the newest last")]
    partial: Annotated[list[list[Any]], Field(description="partly received data: a point and ranges of ids")]
    robot: str | None


@dataclass(frozen=True)
class SyncAnswer:
    """The result of a batch."""

    added: int
    changed: int
    removed: int
    kept: Annotated[
        int, Field(description="changes that were not applied, because the memories were forgotten or merged")
    ]
    generation: Annotated[int | None, Field(description="null if the batch was received before")]
    future: Annotated[int, Field(description="memories with times more than a minute in the future")]
    ahead_ns: Annotated[
        int, Field(description="how far the sender's clock is ahead of the service's, in nanoseconds")
    ]


@dataclass(frozen=True)
class AreaSyncAnswer:
    """Result of taking over the areas of another store."""

    set: Annotated[int, Field(description="new or changed areas")]
    removed: int
    waiting: Annotated[int, Field(description="areas around places that have not arrived")]
    refused: Annotated[int, Field(description="areas that only the owner of the store may set")]
    conflicts: Annotated[
        list[list[str]],
        Field(description="name and map of areas that both sides changed"),
    ]
    supported: bool


@dataclass(frozen=True)
class AreaPullAnswer:
    """The areas for another store."""

    areas: dict[str, Any]


@dataclass(frozen=True)
class PullAnswer:
    """The next batch of memories of other robots."""

    batch: dict[str, Any] | None


@dataclass(frozen=True)
class MergeAnswer:
    """A merge of memories."""

    id: int
    sources: list[int]


@dataclass(frozen=True)
class ForgottenAnswer:
    """A forgotten memory."""

    id: int
    reason: str


@dataclass(frozen=True)
class FailedAnswer:
    """A failed merge; the memories are unchanged."""

    ids: list[int]
    reason: str


@dataclass(frozen=True)
class ConsolidateAnswer:
    """The result of a consolidation; lists are shortened, counts are not."""

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
    """The first and last id that an operation added."""

    first: int
    last: int


@dataclass(frozen=True)
class OperationAnswer:
    """An operation of the log."""

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
    """Operations in order, and the number of the last operation of the store."""

    operations: list[OperationAnswer]
    generation: int


@dataclass(frozen=True)
class CheckAnswer:
    """The result of a check for damage."""

    time_ns: int
    ok: bool
    memories: int
    problems: list[str]
    repaired: list[str]
    lost: list[str]


@dataclass(frozen=True)
class StatsAnswer(Stats):
    """Statistics of the store; see ``recall stats``."""

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
    """Health of the service."""

    status: Literal["ok"]
    generation: int
    readonly: bool
