"""Blocks of similar vectors of a whole store, for attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.hashing import HashFunctions
from memory.index.neighbours import unit_rows
from memory.persistence.database import Database
from memory.persistence.deadline import without_limit
from memory.persistence.rows import Vectors

#: Rows per block.
BLOCK = 64
#: Hash functions that sort the rows.
_FUNCTIONS = 4
#: Rows that are read and hashed at once.
_PORTION = 16_384
#: All rows are sorted again when there are more new rows than this and than a third of the sorted ones.
_NEW = 4096


class AttendedVectors(NamedTuple):
    """Memories that attention reads.

    Attributes:
        ids: (n,) int64, distinct.
        vectors: (n, dim) float32 unit vectors.
    """

    ids: NDArray[np.int64]
    vectors: NDArray[np.float32]


class SimilarBlocks:
    """Vectors of one encoder, sorted by locality-sensitive hashes and cut into blocks.

    Similar vectors share hashes more often, so a block holds similar vectors (as in Reformer, Kitaev et al.
    2020). The copy is in half precision in RAM: ``2 * dim + 25`` bytes per memory. It depends only on the
    history of the store. It is not thread-safe.
    """

    def __init__(self, dim: int, encoder: str) -> None:
        self.dim, self.encoder = dim, encoder
        self._generation = 0
        self._clear()

    def _clear(self) -> None:
        self._ids = np.zeros(0, np.int64)
        self._vectors = np.zeros((0, self.dim), np.float16)
        self._alive = np.zeros(0, np.bool_)
        self._sorted = 0
        self._by_id: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return int(np.count_nonzero(self._alive))

    def follow(self, database: Database) -> None:
        """Apply the changes of the store."""
        generation = database.generation
        if generation == self._generation:
            return
        with without_limit():
            if not len(self._ids):
                self._fill(database)
                self._generation = generation
            # Apply changes that arrived while reading.
            changes = database.changes(self._generation)
            rows = self._rows(np.concatenate([changes.removed, changes.revised, changes.added]))
            self._alive[rows] = False
            self._vectors[rows] = 0
            self._append(database, np.sort(np.concatenate([changes.added, changes.revised])))
            self._generation = changes.generation
            new = len(self._ids) - self._sorted
            if new > _NEW and 4 * new > len(self._ids):
                self._sort()

    def around(self, ids: NDArray[np.int64], passing: NDArray[np.int64] | None = None) -> AttendedVectors:
        """Return all memories in the blocks of some memories.

        Args:
            ids: memories; those without a vector are ignored.
            passing: sorted ids that may be returned; by default all.
        """
        blocks = np.unique(self._rows(ids) // BLOCK)
        rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        rows = rows[rows < len(self._ids)]
        rows = rows[self._alive[rows]]
        if passing is not None:
            rows = rows[np.isin(self._ids[rows], passing)]
        # Normalize, because half precision changes the lengths slightly.
        return AttendedVectors(self._ids[rows], unit_rows(self._vectors[rows].astype(np.float32), self.dim))

    def _rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of known ids."""
        if self._by_id is None:
            order = np.flatnonzero(self._alive)
            order = order[np.argsort(self._ids[order], kind="stable")]
            self._by_id = self._ids[order], order
        known, rows = self._by_id
        if not len(known):
            return np.zeros(0, np.int64)
        place = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        found: NDArray[np.int64] = rows[place[known[place] == ids]]
        return found[self._alive[found]]

    def _fill(self, database: Database) -> None:
        """Read all vectors."""
        parts, after = [], 0
        while len((found := database.scan_vectors(after, _PORTION, self.encoder)).ids):
            parts.append(found)
            after = int(found.ids[-1])
        self._take(parts)

    def _append(self, database: Database, ids: NDArray[np.int64]) -> None:
        """Append the vectors of new ids."""
        parts = (ids[start : start + _PORTION].tolist() for start in range(0, len(ids), _PORTION))
        self._take([database.vectors(part, self.encoder) for part in parts])

    def _take(self, parts: Sequence[Vectors]) -> None:
        ids, vectors = [self._ids], [self._vectors]
        for part in parts:
            if len(part.ids):
                ids.append(part.ids)
                vectors.append(unit_rows(part.halves.astype(np.float32), self.dim).astype(np.float16))
        self._ids, self._vectors = np.concatenate(ids), np.concatenate(vectors)
        self._alive = np.concatenate([self._alive, np.ones(len(self._ids) - len(self._alive), np.bool_)])
        self._by_id = None

    def _sort(self) -> None:
        """Sort all rows by their hashes."""
        rows = np.flatnonzero(self._alive)
        blocks = max(1, len(rows) // BLOCK)
        # Two functions together have about as many values as there are blocks.
        bits = min(max(math.ceil(math.log2(blocks) / 2), 2), 10)
        functions = HashFunctions(self.dim, _FUNCTIONS, bits, seed=0)
        parts = [rows[:0, None].astype(np.uint16).repeat(_FUNCTIONS, axis=1)]
        for start in range(0, len(rows), _PORTION):
            vectors = self._vectors[rows[start : start + _PORTION]].astype(np.float32)
            parts.append(functions.codes(functions.project(vectors)))
        codes = np.concatenate(parts)
        rows = rows[np.lexsort((self._ids[rows], *codes.T[::-1]))]
        self._ids, self._vectors = self._ids[rows], self._vectors[rows]
        self._alive = np.ones(len(rows), np.bool_)
        self._sorted, self._by_id = len(rows), None
