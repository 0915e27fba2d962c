"""Arguments and results of a search, shared by every index."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import DimensionError
from memory.index.effort import Effort, IndexCalibration

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Positions = NDArray[np.int64]

# Half precision changes the squared length of a unit vector by less than this.
UNIT_TOLERANCE = 1e-2
# Numbers that torch converts without waking its threads; numbers from which worker threads pay off; numbers
# per worker task.
_ONE_THREAD, _MANY, _PART = 32_767, 1 << 23, 1 << 20


class Neighbours(NamedTuple):
    """Nearest rows of each query, nearest first; equal scores by rising id.

    ``k`` is the requested number, but at most the number of searched rows.

    Attributes:
        scores: (queries, k) float32 cosine similarities; -inf fills missing ones.
        ids: (queries, k) int64; -1 fills missing ones.
    """

    scores: Floats
    ids: Ids


class Among(NamedTuple):
    """Rows that a search may return: listed ids, or marked ids among many.

    Attributes:
        ids: (n,) int64. Without marks: ids in any order, known to the index or not. With marks: rising ids
            that include all ids of the index.
        kept: (n,) bool marks of the ids that count; ``None``: all count.
    """

    ids: ArrayLike
    kept: NDArray[np.bool_] | None = None


class VectorIndex(Protocol):
    """Cache over the vectors of a store, which can rebuild it.

    One thread changes an index at a time; any number may search meanwhile.
    """

    dim: int
    generation: int
    identity: str

    def __len__(self) -> int:
        """Return the number of vectors that searches find."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids; searches find them at once."""
        ...

    def remove(self, ids: ArrayLike) -> int:
        """Exclude these ids from searches and return how many existed."""
        ...

    def search(
        self, queries: ArrayLike, k: int, *, among: Among | None = None, aim: float | None = None
    ) -> Neighbours:
        """Return the k nearest rows of (queries, dim) unit vectors.

        An aim of 1 compares everything that counts. Other aims are the share of the ten nearest to find, for
        a calibrated index (:mod:`memory.index.calibration`).
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that the class's ``load`` maps into memory."""
        ...


class LongTermIndex(VectorIndex, Protocol):
    """Index that can be copied into another and measured on its own rows.

    See :mod:`memory.index.calibration`.
    """

    calibration: IndexCalibration | None

    @property
    def positions(self) -> int:
        """Number of rows, including removed ones."""
        ...

    @property
    def tail(self) -> int:
        """Number of rows that :meth:`merge` has to sort; searches find them too."""
        ...

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Return ids and (rows, dim) vectors of the first ``most`` living rows between two positions."""
        ...

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add unit vectors; ``merge=False`` leaves the sorting to a later call of :meth:`merge`."""
        ...

    def merge(self, *, whole: bool = False) -> None:
        """Sort in the added rows; searches and additions may run meanwhile.

        Args:
            whole: sort all rows into one structure, which takes longer and makes searches faster.
        """
        ...

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        among: Among | None = None,
        aim: float | None = None,
        effort: Effort | None = None,
    ) -> Neighbours:
        """Return the k nearest rows with the effort measured for the aim, or with an explicit effort.

        If only some rows count, the others do not use up the effort.
        """
        ...

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """Return the effort for an aim and a number of queries asked together."""
        ...

    def describe(self, aim: float, *, share: float = 1.0) -> str:
        """Describe what a single query does for an aim if this share of the rows counts."""
        ...

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return the cost per query, in the unit of the planner's costs, if so many are asked together."""
        ...

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next ones; none if all rows are compared anyway."""
        ...


def check_dim(dim: int) -> int:
    """Return the dimension, or raise."""
    return _at_least_one("dim", dim)


def check_k(k: int) -> int:
    """Return the number of neighbours, or raise."""
    return _at_least_one("k", k)


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_units(name: str, vectors: ArrayLike, dim: int) -> Floats:
    """Return (rows, dim) float32 unit vectors, or raise ``ValueError`` for the first wrong row."""
    array = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(f"{name} must have shape (rows, {dim}), got {array.shape}")
    squares = np.einsum("rd,rd->r", array, array)
    wrong = ~(np.abs(squares - 1.0) <= UNIT_TOLERANCE)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{name} must be finite unit vectors: row {row} has length {float(np.sqrt(squares[row])):.4g}"
        )
    return array


def unit_rows(vectors: NDArray[np.floating], dim: int) -> NDArray[np.float32]:
    """Scale vectors to (n, dim) float32 rows of length 1.

    Raises:
        DimensionError: the vectors have another length.
        ValueError: a vector is zero or not finite.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise DimensionError(f"vectors must have {dim} numbers, got shape {rows.shape}")
    with np.errstate(over="ignore", under="ignore"):
        # Same result as numpy's norm, which takes twice as long for one row.
        length: NDArray[np.floating] = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    if not ((length > 1e-15) & (length < 1e15)).all():
        # The squares of such numbers exceed single precision.
        wide = rows.astype(np.float64)
        precise = np.linalg.norm(wide, axis=1, keepdims=True)
        if not (np.isfinite(precise).all() and (precise > 0).all()):
            raise ValueError("vectors must be finite and not zero")
        exact: NDArray[np.float32] = (wide / precise).astype(np.float32)
        return exact
    units: NDArray[np.float32] = rows / length
    return units


def check_ids(name: str, ids: ArrayLike) -> Ids:
    """Return (rows,) int64 ids, or raise if one is negative or not an integer."""
    array = np.asarray(ids)
    if array.size == 0:
        array = array.reshape(-1).astype(np.int64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {array.dtype}")
    if array.size and int(array.min()) < 0:
        raise ValueError(f"{name} must not be negative, got {int(array.min())}")
    return array.astype(np.int64, copy=False)


def empty_answer(queries: int, k: int) -> Neighbours:
    """Return the answer of an empty index."""
    return Neighbours(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))


def top_k(scores: Floats, ids: NDArray[np.integer], k: int, *, names: Ids | None = None) -> Neighbours:
    """Return the k best of each row; equal scores by rising id.

    Args:
        scores: (queries, width), -inf for what does not count.
        ids: (queries, width), or (width,) for all queries.
        names: ids by position, if ``ids`` are positions.
    """
    queries, width = scores.shape
    found = empty_answer(queries, k)
    if width == 0 or queries == 0:
        return found
    if width > k:
        threshold = np.partition(scores, width - k, axis=1)[:, width - k, None]
        kept = np.flatnonzero((scores >= threshold) & (scores > -np.inf))
    else:
        kept = np.flatnonzero(scores > -np.inf)
    # Not divmod, because numpy divides by a constant several times faster.
    row = kept // width
    column = kept - row * width
    kept_scores = scores.reshape(-1)[kept] if scores.flags.c_contiguous else scores[row, column]
    kept_ids = ids[column] if ids.ndim == 1 else ids[row, column]
    if names is not None:
        kept_ids = names.take(kept_ids)
    order = np.lexsort((kept_ids, -kept_scores, row))
    row = row[order]
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(queries))[row]
    inside = rank < k
    found.scores[row[inside], rank[inside]] = kept_scores[order][inside]
    found.ids[row[inside], rank[inside]] = kept_ids[order][inside]
    return found


def merge_best(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Return the k best of two answers about different vectors."""
    return top_k(
        np.concatenate([first.scores, second.scores], 1), np.concatenate([first.ids, second.ids], 1), k
    )


def to_float32(rows: NDArray[np.float16], out: Floats | None = None) -> Floats:
    """Convert half-precision rows to float32, by one thread unless they are many.

    Uses torch if it is already loaded: it converts about twenty times faster than numpy, with the same
    result, but loading it takes longer than a program with a single query.

    Args:
        rows: (rows, width) float16.
        out: optional array with at least as many rows to write to, which avoids an allocation.

    Returns:
        (rows, width) float32, in ``out`` if it was given.
    """
    found = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]
    torch = sys.modules.get("torch")
    if torch is None:
        np.copyto(found, rows)
        return found
    # torch warns about read-only arrays, such as mapped files, and then only reads them.
    source = torch.from_numpy(rows if rows.flags.writeable else np.asarray(_Writable(rows)))
    target = torch.from_numpy(found)
    # Copying more numbers wakes torch's threads, which is slow if others use the cores, such as spinning BLAS
    # threads.
    height = max(1, (_ONE_THREAD if rows.size < _MANY else _PART) // max(1, rows.shape[1]))
    parts, places = source.split(height), target.split(height)

    def convert(number: int) -> None:
        places[number].copy_(parts[number])

    if rows.size < _MANY:
        for number in range(len(parts)):
            convert(number)
        return found
    from sparse_core.common.workers import share_tasks  # Imports torch, which is loaded by now.

    share_tasks(convert, len(parts))
    return found


class _Writable:
    """Writable view of a read-only array, so that torch does not warn."""

    def __init__(self, rows: NDArray[np.float16]) -> None:
        self._rows = rows  # Keeps the memory alive.
        self.__array_interface__ = rows.__array_interface__ | {"data": (rows.ctypes.data, False)}
