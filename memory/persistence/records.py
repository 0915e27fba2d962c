"""Memories as rows, and rows as memories. The bytes are described in docs/memory-format.md."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import DimensionError
from memory.types import Memory, check_text

#: Name of the slot of :attr:`Memory.embedding`.
DEFAULT_SLOT = "default"
#: Vectors that a memory may have; the key of a vector is ``SLOTS * id + slot``.
SLOTS = 64

#: The R*Tree holds single precision: places beyond this are entered, and looked for, at it ...
PLACE_LIMIT = 3.4e38
#: ... and those nearer to 0 than this at 0, because SQLite rounds subnormal numbers to the wrong side.
PLACE_TINY = 1e-30

#: Columns of ``memory`` that a :class:`Memory` fills, after the id.
SCALARS = (
    "time_ns", "map_id", "kind", "label", "x", "y", "z", "yaw", "covariance", "confidence", "reward",
    "marked", "count", "first_seen_ns", "last_seen_ns", "state", "importance",
)  # fmt: skip
#: Columns of ``memory`` that only the store changes.
ACCESS = ("access_count", "accessed_ns")
#: Columns of ``body``, after the id.
TEXTS = ("caption", "payload", "evidence", "provenance")


class Slot(NamedTuple):
    """Where the vectors of one encoder are.

    Attributes:
        number: from 0 to ``SLOTS - 1``.
        dim: length of its vectors.
    """

    number: int
    dim: int


class Prepared(NamedTuple):
    """Rows that only lack their ids.

    Attributes:
        scalars: in the order of ``SCALARS``.
        texts: in the order of ``TEXTS``.
        vectors: by slot name: (positions in the rows, half-precision bytes, dim).
    """

    scalars: list[tuple[Any, ...]]
    texts: list[tuple[str, str, str, str]]
    vectors: dict[str, tuple[list[int], list[bytes], int]]


def prepare(rows: Sequence[Memory], slots: Mapping[str, Slot]) -> Prepared:
    """Everything about the rows that can be done, and can fail, before the transaction.

    Args:
        rows: to store.
        slots: that exist; others come into being with the length that they have here.

    Raises:
        TypeError: not a memory, or a payload that JSON does not hold.
        ValueError: a payload with NaN, or a vector that is not finite.
        DimensionError: a vector of another length than its slot's.
    """
    for position, row in enumerate(rows):
        if not isinstance(row, Memory):
            raise TypeError(f"rows[{position}] must be a Memory, got {type(row).__name__}")
    return Prepared(
        [scalars_of(row) for row in rows],
        [(row.caption, dump(row.payload), row.evidence, row.provenance) for row in rows],
        encode(rows, slots),
    )


def scalars_of(row: Memory) -> tuple[Any, ...]:
    """The columns ``SCALARS`` as what SQLite binds."""
    x, y, z = row.position
    return (
        int(row.time_ns), row.map_id, row.kind, row.label, x, y, z, row.yaw,
        None if row.covariance is None else np.asarray(row.covariance, "<f8").tobytes(),
        row.confidence, row.reward, int(row.marked), int(row.count),
        None if row.first_seen_ns is None else int(row.first_seen_ns),
        None if row.last_seen_ns is None else int(row.last_seen_ns),
        row.state, None if row.importance is None else float(row.importance),
    )  # fmt: skip


def dump(payload: Mapping[str, Any]) -> str:
    """The payload as JSON text."""
    if not payload:
        return "{}"
    if not isinstance(payload, Mapping):
        raise TypeError(f"payload must be a mapping, got {type(payload).__name__}")
    try:
        return json.dumps(dict(payload), allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise ValueError(f"payload must be what JSON holds: {error}") from error
    except TypeError as error:
        raise TypeError(f"payload must be what JSON holds: {error}") from error


def encode(
    rows: Sequence[Memory], slots: Mapping[str, Slot]
) -> dict[str, tuple[list[int], list[bytes], int]]:
    """The vectors of the rows as half-precision bytes, by slot."""
    found: dict[str, tuple[list[int], list[NDArray[np.float32]]]] = {}
    for position, row in enumerate(rows):
        if row.embedding is not None:
            positions, vectors = found.setdefault(DEFAULT_SLOT, ([], []))
            positions.append(position)
            vectors.append(row.embedding)
        for name, vector in row.embeddings.items():
            if name == DEFAULT_SLOT:
                raise ValueError(f"embeddings[{name!r}] is the name of embedding: give it there")
            positions, vectors = found.setdefault(check_text("name of an encoder", name), ([], []))
            positions.append(position)
            vectors.append(vector)
    result = {}
    for name, (positions, vectors) in found.items():
        dim = slots[name].dim if name in slots else len(vectors[0])
        for position, vector in zip(positions, vectors, strict=True):
            if vector.shape != (dim,):
                raise DimensionError(
                    f"rows[{position}]: the {name!r} vector has {vector.size} numbers, the store takes {dim}"
                )
        halves = to_half(np.stack(vectors))
        data = halves.tobytes()
        size = 2 * dim
        result[name] = (positions, [data[at : at + size] for at in range(0, len(data), size)], dim)
    return result


def to_half(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    """(n, dim) of any length to unit vectors in half precision.

    Vectors that are such already keep their bits, so that reading and writing again changes nothing.
    """
    if not np.isfinite(vectors).all():
        raise ValueError("a vector is not finite")
    with np.errstate(over="ignore"):
        stored = vectors.astype("<f2")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not norms.all():
        raise ValueError("a vector is zero: a direction is what is stored")
    kept = (stored == vectors).all(axis=1, keepdims=True) & (np.abs(norms - 1.0) < 1e-3)
    return np.where(kept, stored, (vectors / norms).astype("<f2")).astype("<f2")


def from_row(id: int, scalars: Sequence[Any], texts: Sequence[Any], vectors: Mapping[str, bytes]) -> Memory:
    """A memory from its columns ``SCALARS`` and ``TEXTS`` and its vectors by slot name."""
    values = dict(zip(SCALARS, scalars, strict=True))
    caption, payload, evidence, provenance = texts
    covariance = values.pop("covariance")
    arrays = {name: np.frombuffer(blob, "<f2").astype(np.float32) for name, blob in vectors.items()}
    return Memory(
        id=id,
        position=(values.pop("x"), values.pop("y"), values.pop("z")),
        covariance=None if covariance is None else np.frombuffer(covariance, "<f8").reshape(3, 3).copy(),
        marked=bool(values.pop("marked")),
        caption=caption,
        payload=json.loads(payload),
        evidence=evidence,
        provenance=provenance,
        embedding=arrays.pop(DEFAULT_SLOT, None),
        embeddings=arrays,
        **values,
    )


def clamp(value: float) -> float:
    """A coordinate as the R*Tree takes it; order is kept."""
    return 0.0 if abs(value) < PLACE_TINY else min(max(value, -PLACE_LIMIT), PLACE_LIMIT)


def clamp_sql(name: str) -> str:
    """:func:`clamp` of a column."""
    limited = f"max(min({name}, {PLACE_LIMIT}), -{PLACE_LIMIT})"
    return f"CASE WHEN abs({name}) < {PLACE_TINY} THEN 0.0 ELSE {limited} END"


class Image(NamedTuple):
    """A stored memory to the last bit, as the log keeps it.

    Attributes:
        id: of the memory.
        scalars: the columns ``SCALARS``.
        access: the columns ``ACCESS``.
        texts: the columns ``TEXTS``.
        vectors: half-precision bytes by slot name.
    """

    id: int
    scalars: tuple[Any, ...]
    access: tuple[Any, ...]
    texts: tuple[Any, ...]
    vectors: dict[str, bytes]

    def memory(self) -> Memory:
        """As the caller knows it."""
        return from_row(self.id, self.scalars, self.texts, self.vectors)

    def dump(self) -> str:
        """JSON: bytes in base 64."""
        columns = dict(zip(SCALARS + ACCESS, self.scalars + self.access, strict=True))
        if columns["covariance"] is not None:
            columns["covariance"] = base64.b64encode(columns["covariance"]).decode()
        vectors = {name: base64.b64encode(blob).decode() for name, blob in self.vectors.items()}
        texts = dict(zip(TEXTS, self.texts, strict=True))
        return json.dumps({"id": self.id, "memory": columns, "body": texts, "vectors": vectors})

    @classmethod
    def load(cls, text: str) -> Image:
        """Read what :meth:`dump` wrote."""
        found = json.loads(text)
        columns = found["memory"]
        if columns["covariance"] is not None:
            columns["covariance"] = base64.b64decode(columns["covariance"])
        return cls(
            found["id"],
            tuple(columns[name] for name in SCALARS),
            tuple(columns[name] for name in ACCESS),
            tuple(found["body"][name] for name in TEXTS),
            {name: base64.b64decode(blob) for name, blob in found["vectors"].items()},
        )
