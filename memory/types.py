"""What a memory is, and what is answered."""

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
#: Visits that a memory keeps at most; of more, those with the shortest pauses between them become one.
MOST_VISITS = 512
#: Observations that a memory stands for at most, sums included: exact in every format that has numbers.
MOST_COUNT = 2**53
#: Variances and covariances, in square metres: what is made of two of them is a number still.
MOST_COVARIANCE = 1e100
#: Lists and objects of a payload within each other.
MOST_DEPTH = 64
#: Words that are looked up at once, repeated ones counted once.
MOST_WORDS = 64
#: Terms of an index that they make: in scripts without spaces each letter is one.
MOST_TERMS = 512
#: Corners of a polygon that is asked for.
MOST_CORNERS = 4096
#: Labels that are asked for at once.
MOST_LABELS = 1000


class Visit(NamedTuple):
    """A stretch of time during which something was seen.

    Attributes:
        first_ns, last_ns: of the first and the last sight.
        sights: how many.
    """

    first_ns: int
    last_ns: int
    sights: int


def told(record: Any) -> str:
    """A record in short: fields that are not as by default, and of vectors only how long they are."""
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
    """One thing that is remembered.

    Attributes:
        id: given by the store, rising and never used again; ``None`` before.
        time_ns: nanoseconds since the epoch, by the robot's clock.
        map_id: map that the pose is in.
        position: x, y, z in metres in the map frame; ``None`` where it is not known: then it is at no place,
            and no place finds it.
        yaw: radians counter-clockwise from +x.
        covariance: (3, 3) of the position in square metres, up to ``MOST_COVARIANCE``, or ``None``.
        kind: what sort of memory.
        label: class or name, such as ``"Car"``.
        caption: text that is searched.
        embedding: (dim,) vector, of any length above zero; stored as a unit vector in half precision.
        embeddings: further vectors by the name of their encoder.
        confidence: from 0 to 1.
        reward: what came of it, any finite number; 0 is neutral.
        payload: whatever JSON holds, nested at most ``MOST_DEPTH`` deep.
        evidence: where the raw data is, a path or URL; never opened here.
        provenance: who says so, such as ``"detector/pointpillars-kitti"``.
        marked: kept whatever its importance.
        count: how many observations it stands for, up to ``MOST_COUNT``.
        first_seen_ns, last_seen_ns: of these; ``time_ns`` where not given.
        visits: when it was seen, where it stands for several observations and this is known: up to
            ``MOST_VISITS`` stretches (first, last, sights), rising and apart. Empty for one sight, which
            ``time_ns`` tells all of.
        state: whether the thing is believed to be there still.
        importance: from 0 to 1 when it was stored, or ``None``.
    """

    time_ns: int
    position: Position | None = None
    yaw: float = 0.0
    covariance: NDArray[np.float64] | None = field(default=None, compare=False)
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
        """Nanoseconds of the first observation that it stands for, as far as it knows."""
        return self.time_ns if self.first_seen_ns is None else self.first_seen_ns

    @property
    def last_sight_ns(self) -> int:
        """Nanoseconds of the last observation that it stands for, as far as it knows."""
        return self.time_ns if self.last_seen_ns is None else self.last_seen_ns

    @property
    def place(self) -> Position:
        """The position, of a memory that has one.

        Raises:
            ValueError: it is not known.
        """
        if self.position is None:
            raise ValueError(f"the position of memory {self.id} is not known")
        return self.position

    def __repr__(self) -> str:
        """What is set, without the numbers of vectors."""
        return told(self)

    @classmethod
    def like(cls, values: Mapping[str, Any], **others: Any) -> Memory:
        """One with the attributes of another, which need not be checked again, and with some others."""
        found = object.__new__(cls)
        vars(found).update(values, **others)
        return found

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError``, naming the field that is wrong."""
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
                raise ValueError("covariance is that of a position: give both or neither")
        if self.embedding is not None:
            object.__setattr__(self, "embedding", check_vector("embedding", self.embedding))
        vectors = {name: check_vector(f"embeddings[{name!r}]", v) for name, v in self.embeddings.items()}
        object.__setattr__(self, "embeddings", vectors)


def positions_of(memories: Sequence[Memory]) -> NDArray[np.float64]:
    """(N, 3) float64 positions in metres, NaN where one is not known."""
    nowhere = (math.nan, math.nan, math.nan)
    rows = [nowhere if memory.position is None else memory.position for memory in memories]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


@dataclass(frozen=True)
class Hit:
    """One answer.

    Attributes:
        memory: what was found.
        score: what the hits are ordered by, larger is better: the cosine, or BM25 of the words; the recency,
            from 1 for the newest memory down to 0; or minus the distance in metres.
        parts: of the score, by name: ``"similarity"``, ``"text"``, ``"recency"``, ``"distance_m"``.
        attention: weight of the memory in the read-out, or ``None``.
        reason: what of the query was read otherwise than it was said, such as ``"'bakry' read as 'bakery'"``;
            empty where it was found as it was asked for.
    """

    memory: Memory
    score: float
    parts: Mapping[str, float] = field(default_factory=dict)
    attention: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why a memory is as it is.

    Attributes:
        id: of the memory.
        status: ``"kept"``, ``"merged"``, ``"forgotten"`` or ``"undone"``.
        reasons: sentences, the first the most important.
        parts: numbers behind them.
        history: what happened to it: (time in nanoseconds, operation, detail).
        into: the memory that it was merged into.
        sources: memories that were merged into it.
    """

    id: int
    status: str
    reasons: Sequence[str]
    parts: Mapping[str, float] = field(default_factory=dict)
    history: Sequence[tuple[int, str, str]] = ()
    into: int | None = None
    sources: Sequence[int] = ()


def check_integer(name: str, value: object) -> int:
    """``value``, or raise: an integer of 64 bits."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # Nearly all are: an answer holds very many.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{name} must fit into 64 bits, got {value}")
    return int(value)


def check_number(name: str, value: object) -> float:
    """``value`` as a float, or raise: a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return float(value)


def saturated(count: int) -> int:
    """A sum of counts, as far as a count goes."""
    return min(count, MOST_COUNT)


def check_numbers(name: str, values: Sequence[float], count: int) -> tuple[Any, ...]:
    """The finite numbers as a tuple of floats."""
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
    """``value``, or raise: text that UTF-8 holds, without a zero byte."""
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
    """Words that have a letter or a digit, each once whatever its case, in the order of the text."""
    words: dict[str, str] = {}
    for word in text.split():
        if any(character.isalnum() for character in word):
            words.setdefault(word.casefold(), word)
    return list(words.values())


def check_words(name: str, value: object) -> str:
    """``value``, or raise: text with at most ``MOST_WORDS`` different words.

    What stands between two signs of a word counts for itself: an index over words looks it up so.
    """
    text = check_text(name, value)
    # No more words than letters and what parts them: most text is short.
    if len(text) >= 2 * MOST_WORDS:
        parts = " ".join(distinct_words(text))
        for found, most, unit in (
            (words(parts), MOST_WORDS, "different words"),
            (terms(parts), MOST_TERMS, "words and letters of scripts without spaces"),
        ):
            if len(found) > most:
                raise ValueError(f"{name} must have at most {most} {unit}, got {len(found)}")
    return text


def check_polygon(value: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    """The corners (x, y), or raise: from three to ``MOST_CORNERS``."""
    if not 3 <= len(value) <= MOST_CORNERS:
        few = "at least three" if len(value) < 3 else f"at most {MOST_CORNERS}"
        raise ValueError(f"polygon must have {few} corners, got {len(value)}")
    return tuple(check_numbers("polygon", corner, 2) for corner in value)


def check_visits(value: object) -> tuple[Visit, ...]:
    """Visits in order, none touching another, each with at least one sight."""
    try:
        rows = [tuple(row) for row in value]  # type: ignore[attr-defined]
    except TypeError as error:
        raise TypeError(f"visits must be rows of first_ns, last_ns and sights, got {value!r}") from error
    if len(rows) > MOST_VISITS:
        raise ValueError(f"visits must be at most {MOST_VISITS}, got {len(rows)}: join the closest")
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
            raise ValueError(f"visits must rise and not touch each other: visits[{at}] does")
        found.append(visit)
    return tuple(found)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_vector(name: str, value: object) -> NDArray[np.float32]:
    """(dim,) float32, finite and not zero."""
    with np.errstate(over="ignore"):  # What single precision does not hold is found below.
        vector = np.asarray(value, dtype=np.float32)
    if vector.ndim != 1 or vector.size == 0:
        raise ValueError(f"{name} must be one-dimensional and not empty, got shape {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite: {int((~np.isfinite(vector)).sum())} numbers are not")
    if not vector.any():
        raise ValueError(f"{name} must not be zero: a direction is what is stored")
    return vector


def check_covariance(value: object) -> NDArray[np.float64]:
    """(3, 3) float64, finite, symmetric and positive semidefinite."""
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.shape != (3, 3):
        raise ValueError(f"covariance must have shape (3, 3), got {matrix.shape}")
    even: NDArray[np.float64] = check_covariances(matrix[None])[0]
    return even


def check_covariances(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 3, 3) float64, the same for each: what is stored is what is checked, and is read so."""
    if not (np.abs(matrices) <= MOST_COVARIANCE).all():
        raise ValueError(f"covariance must be finite, and at most {MOST_COVARIANCE:g} square metres")
    scale = np.maximum(np.abs(matrices).max(axis=(1, 2), initial=0.0), 1e-12)
    turned = matrices.transpose(0, 2, 1)
    if (np.abs(matrices - turned).max(axis=(1, 2), initial=0.0) > 1e-6 * scale).any():
        raise ValueError("covariance must be symmetric")
    even: NDArray[np.float64] = (matrices + turned) / 2
    try:
        # Much quicker than eigenvalues, where all is well.
        np.linalg.cholesky(even / scale[:, None, None] + 1e-6 * np.eye(3))
    except np.linalg.LinAlgError as error:
        if (np.linalg.eigvalsh(even).min(axis=1) < -1e-6 * scale).any():
            raise ValueError("covariance must be positive semidefinite") from error
    return even
