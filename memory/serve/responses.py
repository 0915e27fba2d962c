"""What answers hold, for the schema of the service; tests hold the answers to it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memory.types import Kind, State

Numbers = list[float]
Matrix = list[list[float]]


class Part(BaseModel):
    """Of an answer: it has these fields and no others; those with a default may be left out."""

    model_config = ConfigDict(extra="forbid")


class Error(Part):
    """What is wrong."""

    type: str = Field(description="a word for programs")
    message: str = Field(description="a sentence for people")
    field: str | None = Field(description="of the request, where one is to blame")


class ErrorAnswer(Part):
    """A request that was refused, or failed."""

    error: Error


class MemoryAnswer(Part):
    """A memory; its vectors only where they are asked for."""

    id: int
    time_ns: int
    map_id: str
    position: Numbers = Field(min_length=3, max_length=3, description="x, y, z in metres")
    yaw: float
    covariance: Matrix | None
    kind: Kind
    label: str
    caption: str
    confidence: float
    reward: float
    payload: dict[str, Any]
    evidence: str
    provenance: str
    marked: bool
    count: int
    first_seen_ns: int
    last_seen_ns: int
    visits: list[list[int]] = Field(description="rows of first time, last time and count")
    state: State
    importance: float | None
    embedding: Numbers | None = None
    embeddings: dict[str, Numbers] = Field(default_factory=dict)


class KeptAnswer(Part):
    """What became of an observation."""

    id: int | None = Field(description="of the memory; null where it was not kept")
    reason: str
    importance: float


class AddAnswer(Part):
    """The ids in the order of the memories; what follows only with ``observe``."""

    ids: list[int | None]
    kept: list[KeptAnswer] = Field(default_factory=list)
    displaced: list[int] = Field(default_factory=list)
    generation: int | None = Field(None, description="the last operation; null where nothing was done")


class PageAnswer(Part):
    """Memories, and how the next ones are asked for."""

    memories: list[MemoryAnswer]
    cursor: str | None = Field(description="of the next page; null where there is none")
    total: int = Field(0, description="of all that pass, with total=true")


class HitAnswer(Part):
    """A memory that was found; larger scores are better."""

    memory: MemoryAnswer
    score: float | None
    parts: dict[str, float | None]
    attention: float | None
    reason: str = Field(description="what of the request was read otherwise than it was said")


class HitsAnswer(Part):
    """The best first; ``context`` only with ``aggregate``."""

    hits: list[HitAnswer]
    context: Numbers | None = None


class SeenAnswer(Part):
    """When and where something was seen."""

    question: Literal["last_seen", "first_seen"]
    what: str
    memory: MemoryAnswer | None
    time_ns: int | None
    how: str
    similarity: float | None


class NearAnswer(Part):
    """What is around a point."""

    question: Literal["near"]
    position: Numbers
    radius_m: float
    total: int
    hits: list[HitAnswer]


class BetweenAnswer(Part):
    """What was seen between two times."""

    question: Literal["between"]
    between_ns: list[int]
    total: int
    memories: list[MemoryAnswer]


class ChangedAnswer(Part):
    """What is different since a time; a total where a list was cut."""

    question: Literal["changed_since"]
    since_ns: int
    new: list[MemoryAnswer]
    gone: list[MemoryAnswer]
    moved: list[MemoryAnswer]
    new_total: int = 0
    gone_total: int = 0
    moved_total: int = 0


class HowOftenAnswer(Part):
    """How often and how long something was seen."""

    question: Literal["how_often"]
    what: str
    memories: int
    sightings: int
    days: int
    visits: int
    total_s: float
    longest_s: float
    first_ns: int | None
    last_ns: int | None


class HowManyAnswer(Part):
    """How many memories there are of something."""

    question: Literal["how_many"]
    what: str
    place: str
    between_ns: list[int] | None
    memories: int
    sightings: int
    by_label: dict[str, int]
    by_state: dict[str, int]
    first_ns: int | None
    last_ns: int | None


class StillThereAnswer(Part):
    """Whether something is where it was."""

    question: Literal["still_there"]
    what: str
    memory: MemoryAnswer | None
    state: State
    probability: float | None
    reasons: list[str]
    moved_to: MemoryAnswer | None


class SummaryAnswer(Part):
    """What is remembered of a place."""

    question: Literal["summarise"]
    place: str
    memories: int
    sightings: int
    by_label: dict[str, int]
    by_kind: dict[str, int]
    by_state: dict[str, int]
    first_ns: int | None
    last_ns: int | None
    important: list[MemoryAnswer]
    changed: ChangedAnswer | None


class SimilarAnswer(Part):
    """Situations like one, and what came of them."""

    question: Literal["similar_situations"]
    expected_reward: float | None
    deviation: float | None
    hits: list[HitAnswer]


class PoseAnswer(Part):
    """Where to drive to."""

    question: Literal["pose_to"]
    what: str
    memory: MemoryAnswer | None
    position: Numbers | None
    yaw: float | None
    covariance: Matrix | None
    distance_m: float
    reason: str


class SearchAnswer(Part):
    """What words, a memory or a vector were found in."""

    question: Literal["search"]
    what: str
    hits: list[HitAnswer]


class AskAnswer(Part):
    """A sentence, what it says in parts, and how the question was understood."""

    question: str
    sentence: str
    answer: (
        SeenAnswer
        | NearAnswer
        | BetweenAnswer
        | ChangedAnswer
        | HowOftenAnswer
        | HowManyAnswer
        | StillThereAnswer
        | SummaryAnswer
        | SimilarAnswer
        | PoseAnswer
        | SearchAnswer
    )
    understood: dict[str, Any]


class EventAnswer(Part):
    """Something that happened to a memory."""

    time_ns: int
    operation: str
    detail: str


class PathAnswer(Part):
    """Lines of where the robot was."""

    parts: list[list[Numbers]] = Field(description="rows of time in nanoseconds, x and y in metres")


class ExplainAnswer(Part):
    """Why a memory is as it is; ``memory`` is null where it is gone."""

    id: int
    status: Literal["kept", "merged", "forgotten", "undone"]
    reasons: list[str]
    parts: dict[str, float | None]
    history: list[EventAnswer]
    into: int | None
    sources: list[int]
    vectors: list[str] = Field(description="encoders that the memory has a vector of")
    memory: MemoryAnswer | None


class ForgetAnswer(Part):
    """The operation, for undoing it."""

    generation: int
    forgotten: int
    can_be_undone: bool


class MarkAnswer(Part):
    """The operation, for undoing it."""

    generation: int
    marked: int
    state: State


class UndoAnswer(Part):
    """The operation of undoing, which can be undone in turn."""

    generation: int
    undone: int


class MergeAnswer(Part):
    """Memories that became one."""

    id: int
    sources: list[int]


class ForgottenAnswer(Part):
    """A memory that was forgotten."""

    id: int
    reason: str


class TrimmedAnswer(Part):
    """Old operations that can no longer be undone: how many, up to which, and what that freed."""

    generation: int
    operations: int
    bytes: int


class FailedAnswer(Part):
    """Memories that would have become one and could not; they stay as they were."""

    ids: list[int]
    reason: str


class ConsolidateAnswer(Part):
    """The numbers, and the first of each sort."""

    merged: list[MergeAnswer]
    merged_count: int
    forgotten: list[ForgottenAnswer]
    forgotten_count: int
    generations: list[int]
    trimmed: TrimmedAnswer
    failed: list[FailedAnswer]
    failed_count: int


class Ids(Part):
    """The first and last id of what an operation added."""

    first: int
    last: int


class OperationAnswer(Part):
    """Something that was done; ``added`` is the first and last new id."""

    generation: int
    time_ns: int
    operation: str
    ids_count: int
    added: Ids | None
    undoes: int | None
    undone: bool
    detail: dict[str, Any]


class LogAnswer(Part):
    """Operations by rising number, and the number of the last there is."""

    operations: list[OperationAnswer]
    generation: int


class CheckAnswer(Part):
    """What a check of the files found."""

    time_ns: int
    ok: bool
    memories: int
    problems: list[str]
    repaired: list[str]
    lost: list[str]


class StatsAnswer(Part):
    """Numbers about the store; see ``recall stats``."""

    memories: int
    by_map: dict[str, int]
    by_kind: dict[str, int]
    by_label: dict[str, int]
    by_state: dict[str, int]
    vectors: dict[str, int]
    generation: int
    next_id: int
    file_bytes: int
    log_bytes: int
    free_bytes: int
    dim: int
    encoders: dict[str, int]
    readonly: bool
    first_time_ns: int | None
    last_time_ns: int | None
    tiers: dict[str, dict[str, Any]]
    check: CheckAnswer | None
    followers: int


class HealthAnswer(Part):
    """That the store answers."""

    status: Literal["ok"]
    generation: int
    readonly: bool
