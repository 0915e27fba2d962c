"""What a search takes and gives, shared by every index."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import DimensionError
from memory.index.effort import Calibration, Effort

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
Positions = NDArray[np.int64]

# Half precision moves the squared length of a unit vector by less than this.
UNIT_TOLERANCE = 1e-2
# Numbers that torch converts without waking its threads; from which workers pay, after some milliseconds of
# work; and that a worker converts at a time.
_ONE_THREAD, _MANY, _PART = 32_767, 1 << 23, 1 << 20


class Neighbours(NamedTuple):
    """The nearest of each query, the nearest first and equal ones by rising id.

    ``k`` is what was asked for, but at most the rows of what was searched.

    Attributes:
        scores: (queries, k) float32 cosine similarities, -inf where there are fewer than k.
        ids: (queries, k) int64, -1 where there are fewer.
    """

    scores: Floats
    ids: Ids


class Among(NamedTuple):
    """What a search may give: listed ids, or those that are marked among many.

    Attributes:
        ids: (n,) int64: the listed ones in any order, those of the index or others; or with marks any rising
            ones, those of the index among them.
        kept: (n,) bool, which of them count; ``None``: all of them.
    """

    ids: ArrayLike
    kept: NDArray[np.bool_] | None = None


class VectorIndex(Protocol):
    """A cache over the vectors of a store: what is lost is built again from the truth.

    One thread changes an index at a time; any number may search meanwhile.
    """

    dim: int
    generation: int
    identity: str

    def __len__(self) -> int:
        """Vectors that are found."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids; found from then on."""
        ...

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there."""
        ...

    def search(
        self, queries: ArrayLike, k: int, *, among: Among | None = None, aim: float | None = None
    ) -> Neighbours:
        """The k nearest of (queries, dim) unit vectors, of all or of what a search is to choose among.

        An aim of 1 compares everything that counts; others are the share of the ten nearest to find, for an
        index that was measured (:mod:`memory.index.calibration`).
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that the class's ``load`` maps into memory."""
        ...


class LongTermIndex(VectorIndex, Protocol):
    """An index whose rows another can be made of, and whose efforts are measured on its own rows.

    See :mod:`memory.index.calibration`.
    """

    calibration: Calibration | None

    @property
    def positions(self) -> int:
        """Rows, removed ones included."""
        ...

    @property
    def tail(self) -> int:
        """Rows that :meth:`merge` has to sort; they are found all the same."""
        ...

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Ids and (rows, dim) vectors of the living rows from start to stop, the first ``most`` of them."""
        ...

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add unit vectors; with ``merge=False`` whoever has time calls :meth:`merge`."""
        ...

    def merge(self, *, whole: bool = False) -> None:
        """Sort in what was added; searches and additions go on meanwhile.

        Args:
            whole: sort all rows into one, which takes longer, and makes searches quicker.
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
        """The k nearest, with the effort that was measured to find the aim, or with this effort.

        Where only some count, others take no room among what is compared.
        """
        ...

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """What is done for an aim where so many queries are asked together."""
        ...

    def told(self, aim: float, *, share: float = 1.0) -> str:
        """What a single query does for an aim where such a share of the rows counts, in words."""
        ...

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """What a query takes, in the unit of the planner's costs, where so many are asked together."""
        ...

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """The least effort, or those to try after this one; none where all rows are compared anyway."""
        ...


def check_dim(dim: int) -> int:
    """The dimension, or raise."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise TypeError(f"dim must be an integer, got {type(dim).__name__}")
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    return int(dim)


def check_k(k: int) -> int:
    """The number of neighbours, or raise."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k must be an integer, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return int(k)


def check_units(name: str, vectors: ArrayLike, dim: int) -> Floats:
    """(rows, dim) float32 unit vectors, or raise ``ValueError`` naming the first wrong row."""
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
    """(n, dim) float32 rows of length 1.

    Raises:
        DimensionError: they have another length.
        ValueError: a vector is zero or not finite.
    """
    rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] != dim:
        raise DimensionError(f"vectors must have {dim} numbers, got shape {rows.shape}")
    with np.errstate(over="ignore", under="ignore"):
        # As of numpy's norm, which takes twice as long to say so of one row.
        length: NDArray[np.floating] = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
    if not ((length > 1e-15) & (length < 1e15)).all():
        # The square of such numbers does not fit into single precision.
        wide = rows.astype(np.float64)
        precise = np.linalg.norm(wide, axis=1, keepdims=True)
        if not (np.isfinite(precise).all() and (precise > 0).all()):
            raise ValueError("vectors must be finite and not zero")
        exact: NDArray[np.float32] = (wide / precise).astype(np.float32)
        return exact
    units: NDArray[np.float32] = rows / length
    return units


def check_ids(name: str, ids: ArrayLike) -> Ids:
    """(rows,) int64, none negative, or raise."""
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


def nothing(queries: int, k: int) -> Neighbours:
    """The answer of an empty index."""
    return Neighbours(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))


def best(scores: Floats, ids: NDArray[np.integer], k: int, *, names: Ids | None = None) -> Neighbours:
    """The k best of each row; equal scores by rising id.

    Args:
        scores: (queries, width), -inf for what does not count.
        ids: (queries, width), or (width,) for all queries.
        k: most neighbours.
        names: ids by position, where ``ids`` are positions.
    """
    queries, width = scores.shape
    found = nothing(queries, k)
    if width == 0 or queries == 0:
        return found
    if width > k:
        threshold = np.partition(scores, width - k, axis=1)[:, width - k, None]
        kept = np.flatnonzero((scores >= threshold) & (scores > -np.inf))
    else:
        kept = np.flatnonzero(scores > -np.inf)
    # Not divmod: numpy divides by a fixed number several times faster.
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


def joined(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """The k best of two answers about different vectors."""
    return best(
        np.concatenate([first.scores, second.scores], 1), np.concatenate([first.ids, second.ids], 1), k
    )


def single(rows: NDArray[np.float16], out: Floats | None = None) -> Floats:
    """Half-precision rows in float32, by one thread where they are not many.

    torch converts them some twenty times faster than numpy, so it is used where it is loaded; loading it for
    that takes longer than a program that asks one question. The numbers are the same to the bit.

    Args:
        rows: (rows, width) float16.
        out: at least as many rows to write to, which saves asking for memory.

    Returns:
        (rows, width) float32, of ``out`` where it was given.
    """
    found = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]
    torch = sys.modules.get("torch")
    if torch is None:
        np.copyto(found, rows)
        return found
    # torch warns of arrays that must not be written to, such as mapped files, and then only reads.
    source = torch.from_numpy(rows if rows.flags.writeable else np.asarray(_Writable(rows)))
    target = torch.from_numpy(found)
    # A copy of more numbers wakes torch's threads. Waiting for them takes longest where others use the cores,
    # as threads of numpy's products do, which spin for a while after each.
    height = max(1, (_ONE_THREAD if rows.size < _MANY else _PART) // max(1, rows.shape[1]))
    parts, places = source.split(height), target.split(height)

    def convert(number: int) -> None:
        places[number].copy_(parts[number])

    if rows.size < _MANY:
        for number in range(len(parts)):
            convert(number)
        return found
    from sparse_core.common.workers import share_tasks  # Loads torch, which is loaded here.

    share_tasks(convert, len(parts))
    return found


class _Writable:
    """The memory of an array without its mark that it must not be written to."""

    def __init__(self, rows: NDArray[np.float16]) -> None:
        self._rows = rows  # Keeps the memory.
        self.__array_interface__ = rows.__array_interface__ | {"data": (rows.ctypes.data, False)}
