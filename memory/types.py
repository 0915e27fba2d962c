"""Memories, hits and their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from memory.terms import terms, words

Kind = Literal["object", "place", "event", "note"]
KINDS: tuple[Kind, ...] = get_args(Kind)
State = Literal["present", "moved", "gone", "unknown"]
STATES: tuple[State, ...] = get_args(State)
#: States of an object that is no longer at its place.
AWAY: tuple[State, ...] = ("gone", "moved")
Position = tuple[float, float, float]
Velocity = tuple[float, float, float]
#: Minimum speed of slow walking, as opposed to standing.
SLOWEST_M_S = 0.4
#: Maximum visits of a memory. Beyond it, visits with the shortest pauses are joined.
MOST_VISITS = 512
#: Maximum count of observations; a float represents it exactly.
MOST_COUNT = 2**53
#: Maximum covariance in square metres, so that products stay finite.
MOST_COVARIANCE = 1e100
#: Maximum nesting of a payload.
MOST_DEPTH = 64
#: Maximum distinct words of a text query.
MOST_WORDS = 64
#: Maximum index terms of a text query; in scripts without spaces each letter is a term.
MOST_TERMS = 512
#: Maximum corners of a polygon.
MOST_CORNERS = 4096
#: Maximum labels of a query.
MOST_LABELS = 1000


class Visit(NamedTuple):
    """A period during which an object was seen.

    Attributes:
        first_ns, last_ns: times of the first and last observation.
        sights: number of observations.
    """

    first_ns: int
    last_ns: int
    sights: int


def short_repr(record: Any) -> str:
    """Return a repr without default values; vectors are shown by their length."""
    parts = []
    for entry in fields(record):
        value = getattr(record, entry.name)
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        if isinstance(value, np.ndarray):
            parts.append(f"{entry.name}=<{len(value)} numbers>")
        elif isinstance(value, Mapping) and any(isinstance(each, np.ndarray) for each in value.values()):
            inner = ", ".join(f"{name!r}: <{len(each)} numbers>" for name, each in value.items())
            parts.append(f"{entry.name}={{{inner}}}")
        elif default is MISSING or not (value is default or value == default):
            parts.append(f"{entry.name}={value!r}")
    return f"{type(record).__name__}({', '.join(parts)})"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """One memory: an object, place, event or note.

    Attributes:
        id: set by the store, increasing and never reused; ``None`` before storing.
        time_ns: nanoseconds since the epoch, by the robot's clock.
        map_id: map of the pose.
        position: x, y, z in metres in the map frame. ``None`` if unknown; place filters then never match.
        yaw: radians counter-clockwise from +x.
        covariance: (3, 3) of the position in square metres, up to ``MOST_COVARIANCE``, or ``None``.
        velocity: x, y, z in metres per second in the map frame at ``time_ns``. ``None`` if unknown.
        kind: ``"object"``, ``"place"``, ``"event"`` or ``"note"``.
        label: class or name, such as ``"Car"``.
        caption: searchable description.
        embedding: (dim,) nonzero vector; stored as a unit vector in half precision.
        embeddings: further vectors by encoder name.
        confidence: from 0 to 1.
        reward: outcome, any finite number; 0 is neutral.
        payload: JSON values, nested at most ``MOST_DEPTH`` levels.
        evidence: path or URL of the raw data; never opened here.
        provenance: source, such as ``"detector/pointpillars-kitti"``.
        marked: True protects it from automatic forgetting.
        count: number of observations, up to ``MOST_COUNT``.
        first_seen_ns, last_seen_ns: first and last observation; ``None`` means ``time_ns``.
        visits: up to ``MOST_VISITS`` disjoint visits in order, if several observations with known times were
            merged; otherwise empty.
        state: believed state: ``"present"``, ``"moved"``, ``"gone"`` or ``"unknown"``.
        importance: from 0 to 1 when it was stored, or ``None``.
    """

    time_ns: int
    position: Position | None = None
    yaw: float = 0.0
    covariance: NDArray[np.float64] | None = field(default=None, compare=False)
    velocity: Velocity | None = None
    map_id: str = "default"
    kind: Kind = "object"
    label: str = ""
    caption: str = ""
    embedding: NDArray[np.float32] | None = field(default=None, compare=False)
    embeddings: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, compare=False)
    confidence: float = 1.0
    reward: float = 0.0
    payload: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""
    provenance: str = ""
    marked: bool = False
    count: int = 1
    first_seen_ns: int | None = None
    last_seen_ns: int | None = None
    visits: tuple[Visit, ...] = ()
    state: State = "present"
    importance: float | None = None
    id: int | None = None

    @property
    def first_sight_ns(self) -> int:
        """Time of the first known observation in nanoseconds."""
        return self.time_ns if self.first_seen_ns is None else self.first_seen_ns

    @property
    def last_sight_ns(self) -> int:
        """Time of the last known observation in nanoseconds."""
        return self.time_ns if self.last_seen_ns is None else self.last_seen_ns

    @property
    def speed_m_s(self) -> float | None:
        """Speed over the ground in metres per second when it was last observed; ``None`` if unknown."""
        return None if self.velocity is None else math.hypot(self.velocity[0], self.velocity[1])

    @property
    def moving(self) -> bool | None:
        """True if it moved when it was last observed, False if it stood, ``None`` if its speed is unknown."""
        return None if self.velocity is None else is_moving(*self.velocity[:2])

    @property
    def place(self) -> Position:
        """The position; raises ``ValueError`` if it is unknown."""
        if self.position is None:
            raise ValueError(f"the position of memory {self.id} is not known")
        return self.position

    def __repr__(self) -> str:
        return short_repr(self)

    @classmethod
    def like(cls, values: Mapping[str, Any], **others: Any) -> Memory:
        """Create a memory from checked attributes and some replacements, without checks."""
        found = object.__new__(cls)
        vars(found).update(values, **others)
        return found

    def __post_init__(self) -> None:
        check_integer("time_ns", self.time_ns)
        for name in ("first_seen_ns", "last_seen_ns", "id"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        if self.position is not None:
            object.__setattr__(self, "position", check_numbers("position", self.position, 3))
        for name in ("yaw", "confidence", "reward"):
            number = getattr(self, name)
            if type(number) is not float or not math.isfinite(number):
                object.__setattr__(self, name, check_numbers(name, (number,), 1)[0])
        if not 0.0 <= self.confidence <= 1.0:
            raise ValueError(f"confidence must be from 0 to 1, got {self.confidence}")
        check_choice("kind", self.kind, KINDS)
        check_choice("state", self.state, STATES)
        for name in ("map_id", "label", "caption", "evidence", "provenance"):
            check_text(name, getattr(self, name))
        if not 1 <= check_integer("count", self.count) <= MOST_COUNT:
            bound = "at least 1" if self.count < 1 else f"at most {MOST_COUNT}"
            raise ValueError(f"count must be {bound}, got {self.count}")
        if self.importance is not None and not 0.0 <= check_number("importance", self.importance) <= 1.0:
            raise ValueError(f"importance must be from 0 to 1, got {self.importance}")
        if type(self.visits) is not tuple or self.visits:
            object.__setattr__(self, "visits", check_visits(self.visits))
        if self.covariance is not None:
            object.__setattr__(self, "covariance", check_covariance(self.covariance))
            if self.position is None:
                raise ValueError("covariance needs a position. Give both or neither")
        if self.velocity is not None:
            object.__setattr__(self, "velocity", check_numbers("velocity", self.velocity, 3))
        if self.embedding is not None:
            object.__setattr__(self, "embedding", check_vector("embedding", self.embedding))
        vectors = {name: check_vector(f"embeddings[{name!r}]", v) for name, v in self.embeddings.items()}
        object.__setattr__(self, "embeddings", vectors)


def is_moving(x: float, y: float) -> bool:
    """Return True if a velocity over the ground in m/s is one of a moving object."""
    return x * x + y * y >= SLOWEST_M_S**2


def positions_of(memories: Sequence[Memory]) -> NDArray[np.float64]:
    """Return (N, 3) float64 positions in metres, NaN for unknown ones."""
    nowhere = (math.nan, math.nan, math.nan)
    rows = [nowhere if memory.position is None else memory.position for memory in memories]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True)
class Hit:
    """One search result.

    Attributes:
        memory: the memory.
        score: sort key, larger is better: cosine similarity, BM25 of the text, recency (1 for the newest
            memory, down to 0), or minus the distance in metres.
        parts: parts of the score: ``"similarity"``, ``"text"``, ``"recency"``, ``"distance_m"``.
        attention: attention weight of the memory, or ``None``.
        reason: corrections of the query, such as ``"'bakry' read as 'bakery'"``; otherwise empty.
    """

    memory: Memory
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    attention: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Explanation:
    """History and state of a memory.

    Attributes:
        id: id of the memory.
        status: ``"kept"``, ``"merged"``, ``"forgotten"`` or ``"undone"``.
        reasons: sentences, the most important first.
        parts: the numbers behind them.
        history: (time in nanoseconds, operation, detail) of each operation.
        into: id of the memory that it was merged into.
        sources: ids of the memories that were merged into it.
    """

    id: int
    status: str
    reasons: Sequence[str]
    parts: Mapping[str, float] = field(default_factory=dict)
    history: Sequence[tuple[int, str, str]] = ()
    into: int | None = None
    sources: Sequence[int] = ()


def check_integer(name: str, value: object) -> int:
    """Return a 64-bit integer, or raise."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # The fast path for most calls.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{name} must fit into 64 bits, got {value}")
    return int(value)


def check_number(name: str, value: object) -> float:
    """Return a number as a float, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return float(value)


def saturated(count: int) -> int:
    """Return a count, limited to ``MOST_COUNT``."""
    return min(count, MOST_COUNT)


def check_numbers(name: str, values: Sequence[float], count: int) -> tuple[Any, ...]:
    """Return finite numbers as a tuple of floats, or raise."""
    try:
        found = tuple(map(float, values))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be {count} numbers, got {values!r}") from error
    if len(found) != count:
        raise ValueError(f"{name} must have {count} numbers, got {len(found)}")
    if not all(map(math.isfinite, found)):
        raise ValueError(f"{name} must be finite, got {values!r}")
    return found


def check_text(name: str, value: object) -> str:
    """Return valid Unicode text without a zero character, or raise."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name} must not contain a zero character")
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode: {error}") from error
    return value


def distinct_words(text: str) -> list[str]:
    """Return the distinct words with a letter or digit, ignoring case, in order."""
    words: dict[str, str] = {}
    for word in text.split():
        if any(character.isalnum() for character in word):
            words.setdefault(word.casefold(), word)
    return list(words.values())


def check_words(name: str, value: object) -> str:
    """Return text with at most ``MOST_WORDS`` distinct words and ``MOST_TERMS`` terms, or raise."""
    text = check_text(name, value)
    # Short text cannot have too many words.
    if len(text) >= 2 * MOST_WORDS:
        parts = " ".join(distinct_words(text))
        for found, most, unit in (
            (words(parts), MOST_WORDS, "different words"),
            (terms(parts), MOST_TERMS, "words, or letters of scripts without spaces"),
        ):
            if len(found) > most:
                raise ValueError(f"{name} may have at most {most} {unit}, got {len(found)}. Shorten it")
    return text


def check_polygon(value: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    """Return three to ``MOST_CORNERS`` corners (x, y), or raise."""
    if not 3 <= len(value) <= MOST_CORNERS:
        few = "at least three" if len(value) < 3 else f"at most {MOST_CORNERS}"
        raise ValueError(f"polygon must have {few} corners, got {len(value)}")
    return tuple(check_numbers("polygon", corner, 2) for corner in value)


def check_visits(value: object) -> tuple[Visit, ...]:
    """Return disjoint visits in order, each with at least one observation, or raise."""
    try:
        rows = [tuple(row) for row in value]  # type: ignore[attr-defined]
    except TypeError as error:
        raise TypeError(f"visits must be rows of first_ns, last_ns and sights, got {value!r}") from error
    if len(rows) > MOST_VISITS:
        raise ValueError(
            f"visits may have at most {MOST_VISITS} rows, got {len(rows)}. Join the closest ones"
        )
    found: list[Visit] = []
    for at, row in enumerate(rows):
        if len(row) != 3:
            raise ValueError(f"visits[{at}] must be first_ns, last_ns and sights, got {len(row)} numbers")
        visit = Visit(*(check_integer(f"visits[{at}]", number) for number in row))
        if visit.first_ns > visit.last_ns:
            raise ValueError(f"visits[{at}] must not end before it begins, got {visit[:2]}")
        if not 1 <= visit.sights <= MOST_COUNT:
            bound = "at least 1 sight" if visit.sights < 1 else f"at most {MOST_COUNT} sights"
            raise ValueError(f"visits[{at}] must have {bound}, got {visit.sights}")
        if found and visit.first_ns <= found[-1].last_ns:
            raise ValueError(
                f"visits must be in order and disjoint, but visits[{at}] begins before the previous end"
            )
        found.append(visit)
    return tuple(found)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_vector(name: str, value: object) -> NDArray[np.float32]:
    """Return a finite, nonzero (dim,) float32 vector, or raise."""
    with np.errstate(over="ignore"):  # Overflow is reported below.
        vector = np.asarray(value, dtype=np.float32)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"{name} must be one-dimensional and not empty, got shape {vector.shape}")
    if not np.isfinite(vector).all():
        wrong = np.flatnonzero(~np.isfinite(vector))
        raise ValueError(
            f"{name} must be finite as float32, but {len(wrong)} of {vector.size} numbers are NaN or infinite"
        )
    if not vector.any():
        raise ValueError(f"{name} must not be zero, because only its direction is stored")
    return vector


def check_covariance(value: object) -> NDArray[np.float64]:
    """Return a finite, symmetric, positive semidefinite (3, 3) float64 matrix, or raise."""
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.shape != (3, 3):
        raise ValueError(f"covariance must have shape (3, 3), got {matrix.shape}")
    even: NDArray[np.float64] = check_covariances(matrix[None])[0]
    return even


def check_covariances(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n, 3, 3) float64 covariances, made exactly symmetric, or raise."""
    if not (np.abs(matrices) <= MOST_COVARIANCE).all():
        raise ValueError(f"covariance must be finite, and at most {MOST_COVARIANCE:g} square metres")
    scale = np.maximum(np.abs(matrices).max(axis=(1, 2), initial=0.0), 1e-12)
    turned = matrices.transpose(0, 2, 1)
    if (np.abs(matrices - turned).max(axis=(1, 2), initial=0.0) > 1e-6 * scale).any():
        raise ValueError("covariance must be symmetric")
    even: NDArray[np.float64] = (matrices + turned) / 2
    try:
        # Much faster than eigenvalues in the valid case.
        np.linalg.cholesky(even / scale[:, None, None] + 1e-6 * np.eye(3))
    except np.linalg.LinAlgError as error:
        if (np.linalg.eigvalsh(even).min(axis=1) < -1e-6 * scale).any():
            raise ValueError("covariance must be positive semidefinite") from error
    return even
