"""Row types shared by all engines: conversion between memories and rows.

docs/memory-format.md describes the bytes.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import DimensionError, UnknownMemoryError
from memory.persistence.poses import (
    POSE,
    moving_of,
    pack_covariance,
    pack_velocity,
    unpack_covariance,
    unpack_velocity,
)
from memory.types import MOST_COUNT, MOST_COVARIANCE, MOST_DEPTH, Memory, Visit, check_text, saturated

#: Slot name of :attr:`Memory.embedding`.
DEFAULT_SLOT = "default"
#: Most vectors per memory; the key of a vector is ``SLOTS * id + slot``.
SLOTS = 64

#: Columns of ``memory`` filled from a :class:`Memory`, after the id.
SCALARS = (
    "time_ns", "map_id", "kind", "label", "confidence", "reward", "marked", "count", "first_seen_ns",
    "last_seen_ns", "state", "importance", "velocity",
)  # fmt: skip
#: Columns of ``memory`` that only the store changes.
ACCESS = ("access_count", "accessed_ns")
#: Columns of ``body``, after the id.
TEXTS = ("caption", "payload", "evidence", "provenance")
#: Default values of the schema, which are not bound if all rows have them.
DEFAULTS = {
    "kind": "object", "confidence": 1.0, "reward": 0.0, "marked": 0, "count": 1, "first_seen_ns": None,
    "last_seen_ns": None, "state": "present", "importance": None, "access_count": 0, "accessed_ns": None,
    "payload": "{}", "evidence": "", "provenance": "", "vectors": 1, "visits": 0, "velocity": None,
}  # fmt: skip

#: Stored position of a memory whose place is unknown.
NOWHERE = (math.nan, math.nan, math.nan)

#: Orders of ids, as SQL.
Order = Literal["id", "newest", "oldest"]
ORDERS: dict[Order, str] = {
    "id": "m.id",
    "newest": "m.time_ns DESC, m.id DESC",
    "oldest": "m.time_ns, m.id",
}

#: Most memories compared in a word search.
RANKED = 65536

_ESCAPED = re.compile(rb"\\.")

PreparedVectors = dict[str, tuple[Sequence[int], list[bytes], int]]


class Slot(NamedTuple):
    """Location of the vectors of one encoder.

    Attributes:
        number: from 0 to ``SLOTS - 1``.
    """

    number: int
    dim: int


class Vectors(NamedTuple):
    """Vectors of one slot.

    Attributes:
        ids: (n,) int64.
        halves: (n, dim) float16 unit vectors.
    """

    ids: NDArray[np.int64]
    halves: NDArray[np.float16]

    @classmethod
    def of(cls, ids: Sequence[int], blobs: Sequence[bytes], dim: int) -> Vectors:
        """Create the arrays from half-precision bytes."""
        halves = np.frombuffer(b"".join(blobs), "<f2").reshape(len(ids), dim)
        return cls(np.array(ids, dtype=np.int64), halves)


class Columns(NamedTuple):
    """Columns of memories in order of their ids, for caches in RAM.

    Attributes:
        ids: (n,) int64.
        time_ns: (n,) int64.
        positions: (n, 3) float64, metres.
        yaw: (n,) float64, radians.
        confidence, reward, importance: (n,) float64; NaN for unknown importance.
        marked: (n,) bool.
        counts, access_counts: (n,) int64.
        accessed_ns: (n,) int64; ``time_ns`` if it was never accessed.
        map_ids, labels, kinds, states: n strings each.
        moving: (n,) int8, 1 if it moved when it was last observed, 0 if it stood, -1 if unknown.
    """

    ids: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    positions: NDArray[np.float64]
    yaw: NDArray[np.float64]
    confidence: NDArray[np.float64]
    reward: NDArray[np.float64]
    importance: NDArray[np.float64]
    marked: NDArray[np.bool_]
    counts: NDArray[np.int64]
    access_counts: NDArray[np.int64]
    accessed_ns: NDArray[np.int64]
    map_ids: list[str]
    labels: list[str]
    kinds: list[str]
    states: list[str]
    moving: NDArray[np.int8]

    @classmethod
    def of(cls, columns: Sequence[Sequence[Any]], places: NDArray[np.float64]) -> Columns:
        """Create the arrays from an engine's rows.

        Args:
            columns: id, time, confidence, reward, importance, mark, count, access count, time of the last
                access, map, label, kind, state and velocity, one value per memory each.
            places: (n, 4) float64: x, y, z and yaw.
        """

        def integers(at: int) -> NDArray[np.int64]:
            return np.array(columns[at], dtype=np.int64)

        def floats(at: int) -> NDArray[np.float64]:
            return np.array(columns[at], dtype=np.float64)

        return cls(
            ids=integers(0),
            time_ns=integers(1),
            positions=places[:, :3],
            yaw=places[:, 3],
            confidence=floats(2),
            reward=floats(3),
            importance=np.clip(floats(4), 0.0, 1.0),  # The range of a Memory.
            marked=np.array(columns[5], dtype=bool),
            counts=np.minimum(integers(6), MOST_COUNT),
            access_counts=integers(7),
            accessed_ns=integers(8),
            map_ids=list(columns[9]),
            labels=list(columns[10]),
            kinds=list(columns[11]),
            states=list(columns[12]),
            moving=moving_of(columns[13]),
        )


class TextHits(NamedTuple):
    """Memories ordered by how well their words fit.

    Attributes:
        ids: (n,) int64, best first.
        scores: (n,) float64 BM25; larger is better.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64]


class PreparedRows(NamedTuple):
    """Rows that lack only their ids.

    Attributes:
        size: number of rows.
        scalars: ``SCALARS`` by name, one value per row.
        texts: ``TEXTS`` by name, one value per row.
        poses: (size, ``POSE_COLUMNS``) float64; (size, ``POSE``) if no row has a covariance.
        vectors: by slot name: (positions in the rows, half-precision bytes, dim).
        visits: by position, for rows with visits.
    """

    size: int
    scalars: dict[str, list[Any]]
    texts: dict[str, list[str]]
    poses: NDArray[np.float64]
    vectors: PreparedVectors
    visits: dict[int, tuple[Visit, ...]]


def prepare(rows: Sequence[Memory], slots: Mapping[str, Slot]) -> PreparedRows:
    """Prepare rows: everything that can be done, and can fail, before the transaction.

    Args:
        slots: existing slots; others are created with the length found here.

    Raises:
        TypeError: not a memory, or a payload that is not JSON.
        ValueError: a payload with NaN, or a vector that is not finite.
        DimensionError: a vector of another length than its slot.
    """
    given: object = rows
    if isinstance(given, Memory):
        raise TypeError("give a list of memories, such as add([memory]), got a Memory")
    for position, row in enumerate(rows):
        if not isinstance(row, Memory):
            raise TypeError(f"rows[{position}] must be a Memory, got {type(row).__name__}")
    values = [_columns(row) for row in rows]
    names = (*SCALARS, *TEXTS)
    columns = dict(
        zip(names, map(list, zip(*values, strict=True)) if values else ([] for _ in names), strict=True)
    )
    return PreparedRows(
        len(rows),
        {name: columns[name] for name in SCALARS},
        {name: columns[name] for name in TEXTS},
        poses_of(rows),
        encode(rows, slots),
        {position: row.visits for position, row in enumerate(rows) if row.visits},
    )


def check_new(rows: Iterable[Memory]) -> None:
    """Raise ``ValueError`` if a row to add has an id."""
    if any(row.id is not None for row in rows):
        raise ValueError("a memory to add must not have an id, because the store assigns it")


def _columns(row: Memory) -> tuple[Any, ...]:
    """Return ``SCALARS`` and ``TEXTS`` of a memory."""
    return (
        int(row.time_ns), row.map_id, row.kind, row.label, row.confidence, row.reward, int(row.marked),
        int(row.count),
        None if row.first_seen_ns is None else int(row.first_seen_ns),
        None if row.last_seen_ns is None else int(row.last_seen_ns),
        row.state,
        None if row.importance is None else float(row.importance),
        pack_velocity(row.velocity, row.yaw),
        row.caption, dump(row.payload) if row.payload else "{}", row.evidence, row.provenance,
    )  # fmt: skip


def _half_of(vector: NDArray[np.float32], at: int, name: str, dim: int) -> bytes:
    """Return a vector of this length as half-precision bytes."""
    if vector.shape != (dim,):
        raise DimensionError(
            f"memories[{at}]: its {name!r} embedding has {vector.size} numbers, but the store's have {dim}"
        )
    return one_to_half(vector).tobytes()


def poses_of(rows: Sequence[Memory]) -> NDArray[np.float64]:
    """Return (rows, ``POSE_COLUMNS``) float64, without covariance columns if no row has one."""
    poses = np.array(
        [(*(NOWHERE if row.position is None else row.position), row.yaw) for row in rows], dtype=np.float64
    ).reshape(len(rows), POSE)
    if all(row.covariance is None for row in rows):
        return poses
    return np.hstack([poses, [pack_covariance(row.covariance) for row in rows]])


def join(parts: Sequence[PreparedRows]) -> PreparedRows:
    """Join prepared rows in order.

    Raises:
        DimensionError: vectors of one encoder differ in length.
    """
    vectors: dict[str, tuple[list[int], list[bytes], int]] = {}
    visits: dict[int, tuple[Visit, ...]] = {}
    start = 0
    for part in parts:
        visits |= {start + position: kept for position, kept in part.visits.items()}
        for name, (positions, blobs, dim) in part.vectors.items():
            places, halves, length = vectors.setdefault(name, ([], [], dim))
            if length != dim:
                raise DimensionError(f"{name!r} vectors of {length} and of {dim} numbers")
            places += [start + position for position in positions]
            halves += blobs
        start += part.size
    width = max(part.poses.shape[1] for part in parts)
    poses = np.full((start, width), np.nan)
    poses[:, :POSE] = np.concatenate([part.poses[:, :POSE] for part in parts])
    if width > POSE:
        start = 0
        for part in parts:
            poses[start : start + part.size, : part.poses.shape[1]] = part.poses
            start += part.size
    return PreparedRows(
        len(poses),
        {name: [value for part in parts for value in part.scalars[name]] for name in SCALARS},
        {name: [value for part in parts for value in part.texts[name]] for name in TEXTS},
        poses,
        dict(vectors),
        visits,
    )


def dump(payload: Mapping[str, Any]) -> str:
    """Return the payload as JSON text."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"payload must be a mapping, got {type(payload).__name__}")
    try:
        text = json.dumps(dict(payload), allow_nan=False, separators=(",", ":"))
        if is_deep(text):
            raise RecursionError
        if "\\ud" in text:  # A lone surrogate, or a pair of them.
            json.dumps(dict(payload), ensure_ascii=False).encode()
        return text
    except RecursionError as error:
        raise ValueError(f"payload must be nested at most {MOST_DEPTH} deep") from error
    except ValueError as error:
        raise ValueError(f"payload must be valid JSON: {error}") from error
    except TypeError as error:
        raise TypeError(f"payload must be valid JSON: {error}") from error


def is_deep(text: str) -> bool:
    """Return True if a JSON text is nested more than ``MOST_DEPTH`` deep."""
    if text.count("{") + text.count("[") <= MOST_DEPTH:
        return False
    signs = np.frombuffer(_ESCAPED.sub(b"", text.encode("utf-8", "surrogatepass")), np.uint8)
    outside = np.cumsum(signs == ord('"')) % 2 == 0
    opens = ((signs == ord("{")) | (signs == ord("["))) & outside
    closes = ((signs == ord("}")) | (signs == ord("]"))) & outside
    return int(np.cumsum(opens.astype(np.int64) - closes).max()) > MOST_DEPTH


def load(text: str) -> dict[str, Any]:
    """Parse a payload; one that is nested too deeply is returned as text."""
    found: dict[str, Any] = {"nested_too_deeply": text} if is_deep(text) else json.loads(text)
    return found


def covariance_of(stored: tuple[float, ...] | None) -> NDArray[np.float64] | None:
    """Return (3, 3), or ``None`` if there is none or it is out of range."""
    if stored is None or not all(abs(number) <= MOST_COVARIANCE for number in stored):
        return None
    return unpack_covariance(stored)


def encode(rows: Sequence[Memory], slots: Mapping[str, Slot]) -> PreparedVectors:
    """Return the vectors of the rows as half-precision bytes, by slot."""
    found: dict[str, tuple[list[int], list[NDArray[np.float32]]]] = {}
    positions = [position for position, row in enumerate(rows) if row.embedding is not None]
    if positions:
        found[DEFAULT_SLOT] = (positions, [row.embedding for row in rows if row.embedding is not None])
    for position, row in enumerate(rows):
        for name, vector in row.embeddings.items():
            if name == DEFAULT_SLOT:
                raise ValueError(f"embeddings must not use the name {name!r}. Use embedding instead")
            places, vectors = found.setdefault(check_text("name of an encoder", name), ([], []))
            places.append(position)
            vectors.append(vector)
    result: PreparedVectors = {}
    for name, (places, vectors) in found.items():
        dim = slots[name].dim if name in slots else len(vectors[0])
        if len(vectors) == 1:
            result[name] = (places, [_half_of(vectors[0], places[0], name, dim)], dim)
            continue
        if {vector.shape for vector in vectors} != {(dim,)}:
            at, wrong = next((i, v) for i, v in zip(places, vectors, strict=True) if v.shape != (dim,))
            raise DimensionError(
                f"memories[{at}]: its {name!r} embedding has {wrong.size} numbers, but the store's have {dim}"
            )
        size = 2 * dim
        data = to_half(np.concatenate(vectors).reshape(-1, dim)).tobytes()
        result[name] = (places, [data[at : at + size] for at in range(0, len(data), size)], dim)
    return result


def to_half(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    """Convert (n, dim) float32 of any length to unit vectors in half precision.

    Unit vectors in half precision keep their bits, so that reading and writing again changes nothing.
    """
    squares = np.einsum("ij,ij->i", vectors, vectors)
    if squares.min() > 1e-30 and squares.max() < 1e30:  # False for NaN.
        norms = np.sqrt(squares)
    else:
        if not np.isfinite(vectors).all():
            raise ValueError("a vector is not finite")
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        if not norms.all():
            raise ValueError("a vector is zero, so it has no direction")
    halves: NDArray[np.float16] = (vectors / norms[:, None]).astype("<f2")
    # Vectors of length 1 whose first numbers are exact halves are checked as a whole.
    near = np.flatnonzero(np.abs(norms - 1.0) < 1e-3)
    first = vectors[near, :4]
    near = near[(first == first.astype("<f2")).all(axis=1)]
    if len(near):
        exact = vectors[near].astype("<f2")
        kept = (exact == vectors[near]).all(axis=1)
        halves[near[kept]] = exact[kept]
    return halves


def one_to_half(vector: NDArray[np.float32]) -> NDArray[np.float16]:
    """Convert a (dim,) vector like :func:`to_half`, in fewer steps."""
    square = float(np.vdot(vector, vector))  # Like dot, but without a warning for infinity.
    whole = not 1e-30 < square < 1e30
    if whole or (abs(square - 1.0) < 1e-2 and vector[0] == vector[:1].astype("<f2")[0]):
        half: NDArray[np.float16] = to_half(vector[None])[0]
    else:
        half = (vector * np.float32(1.0 / math.sqrt(square))).astype("<f2")
    return half


class Image(NamedTuple):
    """A stored memory, bit for bit, as the log keeps it.

    Attributes:
        pose: x, y, z, yaw.
        covariance: xx, xy, xz, yy, yz, zz, or ``None``.
        vectors: half-precision bytes by slot name.
        visits: visits of a merged memory.
    """

    id: int
    scalars: tuple[Any, ...]
    access: tuple[Any, ...]
    pose: tuple[float, ...]
    covariance: tuple[float, ...] | None
    texts: tuple[Any, ...]
    vectors: dict[str, bytes]
    visits: tuple[Visit, ...] = ()

    def memory(self) -> Memory:
        """Return the memory."""
        values = dict(zip(SCALARS, self.scalars, strict=True))
        # Earlier releases accepted values that are out of range now; clamp them.
        values["count"] = saturated(values["count"])
        if values["importance"] is not None:
            values["importance"] = min(max(values["importance"], 0.0), 1.0)
        caption, payload, evidence, provenance = self.texts
        arrays = {name: np.frombuffer(blob, "<f2").astype(np.float32) for name, blob in self.vectors.items()}
        x, y, z, yaw = self.pose
        return Memory(
            id=self.id,
            position=None if math.isnan(x) else (x, y, z),
            yaw=yaw,
            covariance=covariance_of(self.covariance),
            velocity=unpack_velocity(values.pop("velocity"), yaw),
            marked=bool(values.pop("marked")),
            caption=caption,
            payload=load(payload),
            evidence=evidence,
            provenance=provenance,
            embedding=arrays.pop(DEFAULT_SLOT, None),
            embeddings=arrays,
            visits=self.visits,
            **values,
        )

    def dump(self) -> str:
        """Return JSON, with bytes in base 64."""
        columns = dict(zip(SCALARS + ACCESS, self.scalars + self.access, strict=True))
        vectors = {name: base64.b64encode(blob).decode() for name, blob in self.vectors.items()}
        texts = dict(zip(TEXTS, self.texts, strict=True))
        return json.dumps(
            {
                "id": self.id, "memory": columns,
                "pose": [None if math.isnan(each) else each for each in self.pose],
                "covariance": self.covariance,
                "body": texts, "vectors": vectors, "visits": self.visits,
            }
        )  # fmt: skip

    @classmethod
    def load(cls, text: str) -> Image:
        """Parse the text of :meth:`dump`."""
        found = json.loads(text)
        return cls(
            found["id"],
            # Logs of version 6 have no velocity.
            tuple(found["memory"].get(name, None) for name in SCALARS),
            tuple(found["memory"][name] for name in ACCESS),
            tuple(math.nan if each is None else each for each in found["pose"]),
            None if found["covariance"] is None else tuple(found["covariance"]),
            tuple(found["body"][name] for name in TEXTS),
            {name: base64.b64decode(blob) for name, blob in found["vectors"].items()},
            # Logs of version 1 have no visits.
            tuple(Visit(*visit) for visit in found.get("visits", ())),
        )


def in_order(images: Mapping[int, Image], ids: Sequence[int]) -> list[Image]:
    """Return images in order of the ids, or raise ``UnknownMemoryError``."""
    missing = [id for id in ids if id not in images]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise UnknownMemoryError(f"no memory has the id {shown}")
    return [images[id] for id in ids]
