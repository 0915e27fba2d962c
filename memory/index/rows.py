"""The vectors of an index with their ids, and which of them still count."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.native_search import nearest_rows
from memory.index.neighbours import (
    Floats,
    Ids,
    Neighbours,
    Positions,
    best,
    check_ids,
    check_units,
    joined,
    nothing,
    single,
)
from memory.index.rows import GrowingRows, Register

# Scores held at once by exact products: they stay in the cache, and so many rows are looked through at once.
SCORES_AT_ONCE = 1 << 18
SCORED_AT_ONCE = 1 << 15
# Rows that are converted to single precision at once: they stay in the cache too.
ROWS_AT_ONCE = 1024
QUERIES_AT_ONCE = 256


class Rows(Register):
    """Half-precision unit vectors at rising positions, with ids and tombstones.

    Args:
        dim: of a vector.
        vectors: (rows, dim) float16 to start with, or ``None``.
        ids: (rows,) int64 of these.
        alive: (rows,) bool, False for those that were removed.

    Attributes:
        dim: of a vector.
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
            ids: (rows,) that no living row has.

        Raises:
            ValueError: shapes, lengths or ids do not fit; nothing is added.
        """
        array = check_units("vectors", vectors, self.dim)
        keys = check_ids("ids", ids)
        if len(keys) != len(array):
            raise ValueError(f"ids must have one entry a vector, got {len(keys)} for {len(array)}")
        if len(keys) > 1 and not (keys[1:] > keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            keys, array = keys[order], array[order]
            if (keys[1:] == keys[:-1]).any():
                raise ValueError(f"id {int(keys[1:][keys[1:] == keys[:-1]][0])} is given twice")
        self.check_new(keys)
        self.vectors.append(array.astype(np.float16))
        self.register(keys)

    def stored(self, start: int, stop: int, most: int | None) -> tuple[Ids, Floats]:
        """Ids and single-precision vectors of the living rows from start to stop, the first ``most``."""
        stop = min(stop, self.count)
        kept = start + np.flatnonzero(self.alive(stop)[start:])[:most]
        return self.ids(stop)[kept], single(self.vectors.take(kept))

    def compacted(self) -> Rows:
        """A copy without the removed rows."""
        kept = np.flatnonzero(self.alive())
        rows = Rows(self.dim)
        rows.vectors.append(self.vectors.take(kept))
        rows.register(self.ids()[kept])
        return rows

    def blocks(self, start: int, stop: int, queries: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows whose scores for the queries are held at once."""
        size = min(max(256, SCORES_AT_ONCE // max(queries, 1)), SCORED_AT_ONCE)
        for first in range(start, stop, size):
            yield first, min(first + size, stop)

    def exact(
        self, queries: Floats, k: int, start: int, stop: int, mask: NDArray[np.bool_] | None
    ) -> Neighbours:
        """The k best of rows start to stop, by products in float32."""
        if stop <= start or len(queries) == 0:
            return nothing(len(queries), k)
        if len(queries) == 1:
            alone = nearest_rows(queries, k, self.vectors, self.ids(stop), start=start, mask=mask)
            if alone is not None:
                return alone
        answers = []
        converted = self._room(stop - start)
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[first : first + QUERIES_AT_ONCE]
            found = nothing(len(some), k)
            for low, high in self.blocks(start, stop, len(some)):
                if mask is not None and not mask[low:high].any():
                    continue
                scores = _products(some, self.vectors.between(low, high), converted)
                if mask is not None:
                    scores[:, ~mask[low:high]] = -np.inf
                found = _improved(found, scores, self.ids(high)[low:], k)
            answers.append(found)
        return Neighbours(
            np.concatenate([found.scores for found in answers]),
            np.concatenate([found.ids for found in answers]),
        )

    def within(self, queries: Floats, positions: Positions, k: int) -> Neighbours:
        """The k best of the rows at rising positions."""
        if len(queries) == 1:
            alone = nearest_rows(queries, k, self.vectors, self.ids(), positions=positions)
            if alone is not None:
                return alone
        found = nothing(len(queries), k)
        ids = self.ids()
        converted = self._room(len(positions))
        for first, last in self.blocks(0, len(positions), len(queries)):
            some = positions[first:last]
            scores = _products(queries, self.vectors.take(some), converted)
            found = _improved(found, scores, ids[some], k)
        return found

    def _room(self, rows: int) -> Floats:
        """For so many rows in single precision, or as many as are converted at once."""
        return np.empty((min(rows, ROWS_AT_ONCE), self.dim), np.float32)


def _products(queries: Floats, vectors: NDArray[np.float16], converted: Floats) -> Floats:
    """(queries, rows) scores, of as many rows at a time as there is room for."""
    scores = np.empty((len(queries), len(vectors)), np.float32)
    for low in range(0, len(vectors), ROWS_AT_ONCE):
        some = vectors[low : low + ROWS_AT_ONCE]
        scores[:, low : low + len(some)] = queries @ single(some, converted).T
    return scores


def _improved(found: Neighbours, scores: Floats, ids: Ids, k: int) -> Neighbours:
    """The k best of what was found and (queries, width) new scores, most of which are too low to matter."""
    worst = found.scores[:, -1]
    rows = np.flatnonzero(scores.max(axis=1) >= worst)
    if len(rows) == 0:
        return found
    some = scores if len(rows) == len(scores) else scores[rows]
    if not np.isfinite(worst[rows]).all():
        new = best(some, ids, k)
    else:
        # Few numbers pass: gather them instead of looking for the best of all.
        row, column = np.nonzero(some >= worst[rows, None])
        if len(row) > len(rows) * max(4 * k, 64):
            new = best(some, ids, k)
        else:
            start = np.searchsorted(row, np.arange(len(rows)))
            width = int(np.bincount(row, minlength=len(rows)).max())
            few = np.full((len(rows), width), -np.inf, np.float32)
            few_ids = np.full((len(rows), width), -1, np.int64)
            place = np.arange(len(row)) - start[row]
            few[row, place] = some[row, column]
            few_ids[row, place] = ids[column]
            new = best(few, few_ids, k)
    both = joined(Neighbours(found.scores[rows], found.ids[rows]), new, k)
    if len(rows) == len(scores):
        return both
    found.scores[rows], found.ids[rows] = both.scores, both.ids
    return found
