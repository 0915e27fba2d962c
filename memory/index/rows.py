"""Rows of an index: growing arrays, ids, marks of removed rows, and vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from memory.index.native_search import nearest_rows
from memory.index.neighbours import (
    Floats,
    Ids,
    Neighbours,
    Positions,
    check_ids,
    check_units,
    empty_answer,
    merge_best,
    to_float32,
    top_k,
)

# Scores and rows held at once by exact products, so that they stay in the cache.
SCORES_AT_ONCE = 1 << 18
SCORED_AT_ONCE = 1 << 15
# Rows converted to single precision at once, so that they stay in the cache.
ROWS_AT_ONCE = 1024
QUERIES_AT_ONCE = 256

Number = TypeVar("Number", bound=np.generic)
IntegerT = TypeVar("IntegerT", bound=np.integer)


class GrowingRows(Generic[Number]):
    """(rows, width) numbers: a fixed part, usually mapped from a file, and a growing part in memory.

    Rows never change once written. Readers that know the number of rows may continue while one writer
    appends.

    Args:
        width: numbers per row.
        dtype: type of the numbers.
        fixed: (rows, width) initial rows, never written to.
    """

    def __init__(self, width: int, dtype: DTypeLike, fixed: NDArray[Number] | None = None) -> None:
        self._fixed: NDArray[Number] = np.empty((0, width), dtype) if fixed is None else fixed
        self._grown: NDArray[Number] = np.empty((0, width), dtype)
        self._count = 0

    def __len__(self) -> int:
        return len(self._fixed) + self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self._fixed.nbytes + self._grown.nbytes

    @property
    def parts(self) -> tuple[NDArray[Number], NDArray[Number]]:
        """Fixed part and the growing part, whose end may be unwritten."""
        return self._fixed, self._grown

    def append(self, rows: NDArray[Number]) -> None:
        """Add (new, width) rows in amortized constant time."""
        needed = self._count + len(rows)
        if needed > len(self._grown):
            larger = np.empty(
                (max(needed, 2 * len(self._grown), 64), self._grown.shape[1]), self._grown.dtype
            )
            larger[: self._count] = self._grown[: self._count]
            larger[self._count : needed] = rows
            self._grown = larger
        else:
            self._grown[self._count : needed] = rows
        self._count = needed

    def between(self, start: int, stop: int) -> NDArray[Number]:
        """Return rows start to stop; a view if they lie in one part."""
        fixed = len(self._fixed)
        if stop <= fixed:
            return self._fixed[start:stop]
        if start >= fixed:
            return self._grown[start - fixed : stop - fixed]
        return np.concatenate([self._fixed[start:], self._grown[: stop - fixed]])

    def take(self, positions: NDArray[np.integer]) -> NDArray[Number]:
        """Return the rows at rising positions."""
        fixed = len(self._fixed)
        if fixed == 0:
            return self._grown.take(positions, axis=0)
        if len(positions) == 0 or positions[-1] < fixed:
            return self._fixed.take(positions, axis=0)
        split = int(np.searchsorted(positions, fixed))
        return np.concatenate(
            [self._fixed.take(positions[:split], axis=0), self._grown.take(positions[split:] - fixed, axis=0)]
        )


class Register:
    """Ids in order of arrival, with marks for removed ones.

    Attributes:
        dead: number of removed ids.
        rising: True if each id is larger than all before it.
    """

    def __init__(self) -> None:
        self._ids: GrowingRows[np.int64] = GrowingRows(1, np.int64)
        # Largest id up to each position: sorted for any order of arrival.
        self._largest: GrowingRows[np.int64] = GrowingRows(1, np.int64)
        self._alive = np.zeros(0, np.bool_)
        self._late: dict[int, int] = {}
        self.rising = True
        self.dead = 0

    @property
    def count(self) -> int:
        """Number of rows, including removed ones."""
        return len(self._ids)

    def __len__(self) -> int:
        return self.count - self.dead

    @property
    def nbytes(self) -> int:
        """Bytes of ids and marks."""
        return self._ids.nbytes + self._largest.nbytes + self._alive.nbytes

    def ids(self, count: int | None = None) -> Ids:
        """Return (rows,) ids by position."""
        return self._ids.between(0, self.count if count is None else count)[:, 0]

    def alive(self, count: int | None = None) -> NDArray[np.bool_]:
        """Return (rows,) marks of the living rows."""
        return self._alive[: self.count if count is None else count]

    def register(self, keys: Ids) -> None:
        """Append living ids; they are written last, because readers count them."""
        start = self.count
        if start + len(keys) > len(self._alive):
            larger = np.zeros(max(start + len(keys), 2 * len(self._alive), 64), np.bool_)
            larger[:start] = self._alive[:start]
            self._alive = larger
        self._alive[start : start + len(keys)] = True
        floor = int(self._largest.between(start - 1, start)[0, 0]) if start else -1
        largest = np.maximum(np.maximum.accumulate(keys), floor)
        before = np.concatenate([[floor], largest[:-1]]) if len(keys) else largest
        late = np.flatnonzero(keys <= before)
        self.rising &= not len(late)
        for offset in late:
            self._late[int(keys[offset])] = start + int(offset)
        self._largest.append(largest[:, None])
        self._ids.append(keys[:, None])

    def check_new(self, keys: Ids) -> None:
        """Raise ``ValueError`` if an id exists already."""
        known = self.find(keys) >= 0
        if known.any():
            raise ValueError(f"id {int(keys[known][0])} exists already. Remove it first")

    def remove(self, ids: ArrayLike) -> Positions:
        """Mark rows as removed and return the rising positions of those that existed."""
        found = distinct(self.find(check_ids("ids", ids)))
        found = found[found >= 0]
        for key in self.ids()[found]:
            self._late.pop(int(key), None)
        self._alive[found] = False
        self.dead += len(found)
        return found

    def find(self, ids: Ids) -> Positions:
        """Return (ids,) positions of living rows; -1 for unknown ids."""
        if self.count == 0:
            return np.full(len(ids), -1, np.int64)
        largest = self._largest.between(0, self.count)[:, 0]
        found = np.minimum(np.searchsorted(largest, ids), self.count - 1)
        missing = (self.ids()[found] != ids) | ~self._alive[found]
        found[missing] = -1
        if self._late:
            for place in np.flatnonzero(missing):
                found[place] = self._late.get(int(ids[place]), -1)
        return found

    def living_mask(self, count: int) -> NDArray[np.bool_] | None:
        """Return a (count,) mask of the living rows, or ``None`` if none was removed."""
        return self.alive(count) if self.dead else None

    def position_mask(self, count: int, positions: Positions) -> NDArray[np.bool_]:
        """Return a (count,) mask that is True at these positions."""
        mask = np.zeros(count, np.bool_)
        mask[positions] = True
        return mask

    def kept_mask(self, count: int, ids: Ids, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a (count,) mask of living kept rows, from rising ids and whether each is kept."""
        own = self.ids(count)
        first = int(np.searchsorted(ids, own[0])) if count else 0
        if self._has_ids(own, ids[first : first + count]):
            # Usually the ids of the index are a contiguous part of the given ids.
            part = kept[first : first + count]
            return part & self.alive(count) if self.dead else part
        mask = np.zeros(count, np.bool_)
        found = self.find(ids[kept])
        mask[found[(found >= 0) & (found < count)]] = True
        return mask

    def _has_ids(self, own: Ids, ids: Ids) -> bool:
        """Return True if the first rows have exactly these rising ids."""
        if not self.rising or len(own) != len(ids):
            return np.array_equal(own, ids)
        if not len(own):
            return True
        # Two rising runs of integers without gaps are equal if their ends are.
        ends = int(own[0]) == int(ids[0]) and int(own[-1]) == int(ids[-1])
        return ends and (int(own[-1]) - int(own[0]) == len(own) - 1 or np.array_equal(own, ids))

    def among(self, count: int, ids: ArrayLike) -> Positions:
        """Return the rising positions below ``count`` of the ids that exist."""
        found = distinct(self.find(check_ids("among", ids)))
        return found[(found >= 0) & (found < count)]


class Rows(Register):
    """Half-precision unit vectors at rising positions, with ids and marks of removed rows.

    Args:
        vectors: (rows, dim) float16 initial rows, or ``None``.
        ids: (rows,) int64 of these.
        alive: (rows,) bool, False for removed ones.

    Attributes:
        vectors: the rows.
    """

    def __init__(
        self,
        dim: int,
        vectors: NDArray[np.float16] | None = None,
        ids: Ids | None = None,
        alive: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.vectors: GrowingRows[np.float16] = GrowingRows(dim, np.float16, vectors)
        if ids is not None and alive is not None:
            self.register(ids)
            self._alive[: len(ids)] = alive
            self.dead = int(len(ids) - alive.sum())
            self._late = {key: row for key, row in self._late.items() if alive[row]}

    @property
    def nbytes(self) -> int:
        """Bytes of vectors, ids and marks."""
        return super().nbytes + self.vectors.nbytes

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Append unit vectors.

        Args:
            vectors: (rows, dim) unit vectors.
            ids: (rows,) ids that no living row has.

        Raises:
            ValueError: shapes, lengths or ids do not fit; nothing is added.
        """
        array = check_units("vectors", vectors, self.dim)
        keys = check_ids("ids", ids)
        if len(keys) != len(array):
            raise ValueError(f"ids must have one entry per vector, got {len(keys)} for {len(array)}")
        if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys, array = keys[order], array[order]
            if (keys[1:] == keys[:-1]).any():
                raise ValueError(f"id {int(keys[1:][keys[1:] == keys[:-1]][0])} is listed twice")
        self.check_new(keys)
        self.vectors.append(array.astype(np.float16))
        self.register(keys)

    def stored(self, start: int, stop: int, most: int | None) -> tuple[Ids, Floats]:
        """Return ids and float32 vectors of the first ``most`` living rows between two positions."""
        stop = min(stop, self.count)
        kept = start + np.flatnonzero(self.alive(stop)[start:])[:most]
        return self.ids(stop)[kept], to_float32(self.vectors.take(kept))

    def compact(self) -> Rows:
        """Return a copy without the removed rows."""
        kept = np.flatnonzero(self.alive())
        rows = Rows(self.dim)
        rows.vectors.append(self.vectors.take(kept))
        rows.register(self.ids()[kept])
        return rows

    def blocks(self, start: int, stop: int, queries: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows whose scores for the queries are held at once."""
        size = min(max(256, SCORES_AT_ONCE // max(queries, 1)), SCORED_AT_ONCE)
        for first in range(start, stop, size):
            yield first, min(first + size, stop)

    def exact(
        self, queries: Floats, k: int, start: int, stop: int, mask: NDArray[np.bool_] | None
    ) -> Neighbours:
        """Return the k best of rows start to stop, by products in float32."""
        if stop <= start or len(queries) == 0:
            return empty_answer(len(queries), k)
        if len(queries) == 1:
            alone = nearest_rows(queries, k, self.vectors.parts, self.ids(stop), start=start, mask=mask)
            if alone is not None:
                return alone
        answers = []
        buffer = self._conversion_buffer(stop - start)
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[first : first + QUERIES_AT_ONCE]
            found = empty_answer(len(some), k)
            for low, high in self.blocks(start, stop, len(some)):
                if mask is not None and not mask[low:high].any():
                    continue
                scores = _products(some, self.vectors.between(low, high), buffer)
                if mask is not None:
                    scores[:, ~mask[low:high]] = -np.inf
                found = _merge_scores(found, scores, self.ids(high)[low:], k)
            answers.append(found)
        return Neighbours(
            np.concatenate([found.scores for found in answers]),
            np.concatenate([found.ids for found in answers]),
        )

    def within(self, queries: Floats, positions: Positions, k: int) -> Neighbours:
        """Return the k best of the rows at rising positions."""
        if len(queries) == 1:
            alone = nearest_rows(queries, k, self.vectors.parts, self.ids(), positions=positions)
            if alone is not None:
                return alone
        found = empty_answer(len(queries), k)
        ids = self.ids()
        buffer = self._conversion_buffer(len(positions))
        for first, last in self.blocks(0, len(positions), len(queries)):
            some = positions[first:last]
            scores = _products(queries, self.vectors.take(some), buffer)
            found = _merge_scores(found, scores, ids[some], k)
        return found

    def _conversion_buffer(self, rows: int) -> Floats:
        """Allocate room for the rows that are converted to float32 at once."""
        return np.empty((min(rows, ROWS_AT_ONCE), self.dim), np.float32)


def _products(queries: Floats, vectors: NDArray[np.float16], buffer: Floats) -> Floats:
    """Return (queries, rows) scores; the buffer limits how many rows are converted at once."""
    scores = np.empty((len(queries), len(vectors)), np.float32)
    for low in range(0, len(vectors), ROWS_AT_ONCE):
        some = vectors[low : low + ROWS_AT_ONCE]
        scores[:, low : low + len(some)] = queries @ to_float32(some, buffer).T
    return scores


def _merge_scores(found: Neighbours, scores: Floats, ids: Ids, k: int) -> Neighbours:
    """Return the k best of an answer and (queries, width) new scores, most of which are too low to matter."""
    worst = found.scores[:, -1]
    rows = np.flatnonzero(scores.max(axis=1) >= worst)
    if len(rows) == 0:
        return found
    some = scores if len(rows) == len(scores) else scores[rows]
    if not np.isfinite(worst[rows]).all():
        new = top_k(some, ids, k)
    else:
        # Few scores pass, so gather them instead of ranking all.
        row, column = np.nonzero(some >= worst[rows, None])
        if len(row) > len(rows) * max(4 * k, 64):
            new = top_k(some, ids, k)
        else:
            start = np.searchsorted(row, np.arange(len(rows)))
            width = int(np.bincount(row, minlength=len(rows)).max())
            few = np.full((len(rows), width), -np.inf, np.float32)
            few_ids = np.full((len(rows), width), -1, np.int64)
            place = np.arange(len(row)) - start[row]
            few[row, place] = some[row, column]
            few_ids[row, place] = ids[column]
            new = top_k(few, few_ids, k)
    both = merge_best(Neighbours(found.scores[rows], found.ids[rows]), new, k)
    if len(rows) == len(scores):
        return both
    found.scores[rows], found.ids[rows] = both.scores, both.ids
    return found


def distinct(positions: NDArray[IntegerT]) -> NDArray[IntegerT]:
    """Return rising positions without duplicates, many times faster than ``np.unique``."""
    if len(positions) < 2 or (positions[1:] > positions[:-1]).all():
        return positions
    ordered = np.sort(positions)
    once: NDArray[IntegerT] = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
    return once
