"""Locality-sensitive hashing without training: many tables, several probes, exact scores at the end."""

from __future__ import annotations

import math
import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.base import RowIndex, Search
from memory.index.buckets import Buckets, build_buckets
from memory.index.effort import EXACT, USUAL, Effort
from memory.index.files import IndexFile
from memory.index.hashing import (
    SKETCH_WORDS,
    HashFunctions,
    Sketches,
    differing_bits,
    function_pairs,
)
from memory.index.native_search import CompiledTables, hash_rows
from memory.index.neighbours import Floats, Neighbours, merge_best, to_float32, top_k
from memory.index.rows import GrowingRows, Rows, distinct

# A merge also sorts in preceding parts that are less than this many times larger.
_MERGE_RATIO = 4
_ROWS_AT_ONCE = 1024
# Rows of a tail from which additions hash at once.
_MANY_ROWS = 16_384
# Queries whose probes are held at once; their arrays stay in the cache.
_QUERIES_AT_ONCE = 32
_PROJECTED_AT_ONCE = 256
# Nanoseconds on one core: a call, a query, a bucket, a row that is compared.
_CALL, _QUERY, _BUCKET, _COMPARED = 300_000.0, 100_000.0, 110.0, 400.0
# Without a calibration, a search with a higher aim than usual reads more buckets.
_THOROUGH_PROBES, _THOROUGH_RERANK = 6, 400
# Limits of the measured efforts: this many times the usual probes, and this many rows, or this share of a
# large index.
_MOST_PROBES, _MOST_RERANK, _MOST_SHARE = 64, 25_600, 1 / 128


class _LSHState(NamedTuple):
    """Data of one search; replaced as a whole, so that searches need no lock."""

    rows: Rows
    codes: GrowingRows[np.uint16]
    sketches: GrowingRows[np.uint64]
    buckets: tuple[Buckets, ...]

    @property
    def hashed(self) -> int:
        """Number of rows in the tables; the others are the tail, which is searched row by row."""
        return self.buckets[-1].stop if self.buckets else 0


class LSHIndex(RowIndex[_LSHState]):
    """Index that finds vectors in hash tables and compares them exactly.

    A table is a pair of hash functions. A query reads the ``probes`` buckets, over all tables, whose codes a
    near vector most likely has. Of their rows it compares the ``rerank`` closest, by a sketch of 128 signs,
    exactly. New rows form a tail that is compared exactly until :meth:`merge` sorts them into tables. Larger
    tables are merged from time to time, so that a row is sorted only a few times.

    Results depend on the seed and on what was added in which portions, never on time or threads. Tables take
    ``2 * functions + 16`` bytes of codes per row (56 by default), and four bytes per table for sorted
    positions.

    Args:
        dim: length of a vector.
        expected: expected number of rows; ten times more or fewer still works, but slower.
        functions: number of hash functions.
        tables: number of their pairs.
        probes: buckets read per query until the index is calibrated. ``None``: a recall of about 0.95 where
            the tenth neighbour has a cosine of 0.65.
        rerank: rows compared exactly per query until then.
        seed: seed of the hash functions.

    Attributes:
        dim, expected, functions, tables, probes, rerank, seed: as given.
    """

    kind = "lsh-hadamard"
    reads = "buckets"
    numbers = ("expected", "functions", "tables", "probes", "rerank", "seed")

    def __init__(
        self,
        dim: int,
        *,
        expected: int = 200_000,
        functions: int = 20,
        tables: int = 20,
        probes: int | None = None,
        rerank: int = 200,
        seed: int = 0,
    ) -> None:
        for name, number in (("expected", expected), ("rerank", rerank)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        if not 2 <= functions <= 24:
            raise ValueError(f"functions must be from 2 to 24 (64 bytes of codes), got {functions}")
        bits = min(max(math.floor(math.log2(expected) / 2), 4), 12)
        self.expected = expected
        self.functions = functions
        self.tables = tables
        self.probes = 640 if probes is None else probes
        if self.probes < 1:
            raise ValueError(f"probes must be at least 1, got {probes}")
        self.rerank = rerank
        self.seed = seed
        self._pairs = function_pairs(functions, tables)
        self._hash = HashFunctions(dim, functions, bits, seed)
        self._merging = threading.Lock()
        #: Compiled tables of one state.
        self._compiled: tuple[_LSHState, CompiledTables | None] | None = None
        super().__init__(dim, self._empty(Rows(dim)))

    def _empty(self, rows: Rows) -> _LSHState:
        """Return the state of rows that are all in the tail."""
        codes: GrowingRows[np.uint16] = GrowingRows(self.functions, np.uint16)
        sketches: GrowingRows[np.uint64] = GrowingRows(SKETCH_WORDS, np.uint64)
        return _LSHState(rows, codes, sketches, ())

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        state = self._state
        tables = sum(buckets.nbytes for buckets in state.buckets)
        return state.rows.nbytes + state.codes.nbytes + state.sketches.nbytes + tables

    @property
    def tail(self) -> int:
        """Number of rows that are not in the tables yet; searches find them too."""
        return self._state.rows.count - self._state.hashed

    def merge(self, *, whole: bool = False) -> None:
        """Sort the tail into the tables; searches and additions may run meanwhile.

        Args:
            whole: sort all rows into one set of tables, so that a search reads each of its buckets only once.
        """
        with self._merging:
            state = self._state
            stop = state.rows.count
            if stop == state.hashed and not (whole and len(state.buckets) > 1):
                return
            self._hash_rows(state, stop)
            kept = list(state.buckets)
            start = state.hashed
            while kept and (whole or kept[-1].stop - kept[-1].start < _MERGE_RATIO * (stop - start)):
                start = kept.pop().start
            new = build_buckets(state.codes.between(start, stop), start, self._pairs, self._hash.bits)
            self._state = state._replace(buckets=(*kept, new))

    def _index_new_rows(self) -> None:
        """Hash a large portion at once, so that whoever fills the index can report the progress."""
        # A merge hashes them itself, and may wait for the lock of this addition.
        if self.tail >= _MANY_ROWS and self._merging.acquire(blocking=False):
            try:
                self._hash_rows(self._state, self._state.rows.count)
            finally:
                self._merging.release()

    def compact(self) -> None:
        """Free the space of removed rows and sort all rows again; additions wait for it."""
        with self._merging, self._writing:
            state = self._empty(self._state.rows.compact())
            count = state.rows.count
            self._hash_rows(state, count)
            if count:
                buckets = build_buckets(state.codes.between(0, count), 0, self._pairs, self._hash.bits)
                state = state._replace(buckets=(buckets,))
            self._state = state

    def _hash_rows(self, state: _LSHState, stop: int) -> None:
        """Compute codes and sketches of the rows that have none yet."""
        for first in range(len(state.codes), stop, _ROWS_AT_ONCE):
            vectors = to_float32(state.rows.vectors.between(first, min(first + _ROWS_AT_ONCE, stop)))
            hashed = hash_rows(self._hash, vectors)
            codes, sketches = self._hash.hash(vectors) if hashed is None else hashed
            state.sketches.append(sketches)
            state.codes.append(codes)

    def _nearest(self, state: _LSHState, asked: Search) -> Neighbours:
        queries, k, count, mask, effort = asked
        effort = effort._replace(rerank=max(effort.rerank, 2 * k))
        compiled = self._compiled_of(state)
        if compiled is not None:
            rows = state.rows
            return compiled.search(
                queries, k, self._depth(effort.probes), effort, rows.vectors.parts, rows.ids(count), mask
            )
        found = state.rows.exact(queries, k, state.hashed, count, mask)
        if not state.buckets:
            return found
        for first in range(0, len(queries), _PROJECTED_AT_ONCE):
            projected = self._hash.project(queries[first : first + _PROJECTED_AT_ONCE])
            for start in range(0, len(projected), _QUERIES_AT_ONCE):
                part = projected[start : start + _QUERIES_AT_ONCE]
                some = slice(first + start, first + start + len(part))
                hashed = self._search_tables(state, queries[some], part, k, effort, mask)
                if count > state.hashed:
                    hashed = merge_best(Neighbours(found.scores[some], found.ids[some]), hashed, k)
                found.scores[some], found.ids[some] = hashed
        return found

    def _compiled_of(self, state: _LSHState) -> CompiledTables | None:
        """Return the compiled search of a state's tables, or ``None`` if numpy does the search."""
        known = self._compiled
        if known is None or known[0] is not state:
            tables = None
            if state.buckets:
                tables = CompiledTables.of(self._hash, self._pairs, state.buckets, state.sketches.parts)
            self._compiled = known = state, tables
        return known[1]

    def _depth(self, probes: int) -> int:
        """Return the number of values per function that the probes are chosen from."""
        return min(max(8, math.isqrt(4 * probes // (3 * self.tables)) + 1), self._hash.width)

    def _usual(self, aim: float) -> Effort:
        if aim <= USUAL:
            return Effort(self.probes, self.rerank)
        return Effort(_THOROUGH_PROBES * self.probes, max(_THOROUGH_RERANK, self.rerank))

    def _effort_for(self, aim: float, queries: int, k: int) -> Effort:
        return self.effort(aim, queries=queries).for_neighbours(k)

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return nanoseconds per query on one core if so many are asked together."""
        if effort == EXACT:
            return super().price(effort, queries=queries)
        return _CALL / max(1, queries) + _QUERY + _BUCKET * effort.probes + _COMPARED * effort.rerank

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next ones: twice the buckets, twice the rows, or both."""
        if after is None:
            return (Effort(max(1, self.probes // 2), self.rerank),)
        probes, rerank = 2 * after.probes, 2 * after.rerank
        further = Effort(probes, after.rerank), Effort(after.probes, rerank), Effort(probes, rerank)
        most_probes = _MOST_PROBES * self.probes
        most_rows = max(_MOST_RERANK, int(_MOST_SHARE * len(self)))
        return tuple(one for one in further if one.probes <= most_probes and one.rerank <= most_rows)

    def _search_tables(
        self,
        state: _LSHState,
        queries: Floats,
        projected: Floats,
        k: int,
        effort: Effort,
        mask: NDArray[np.bool_] | None,
    ) -> Neighbours:
        """Return the k best rows of the buckets."""
        sketches = self._hash.sketches(projected)
        probes = self._probes(projected, effort.probes)
        parts = []
        for buckets in state.buckets:
            rows, ends = buckets.read(probes.codes, 2 * self._hash.bits)
            limits = np.concatenate([[0], ends])[probes.limits]
            parts.append((rows, limits.tolist()))
        compared: list[NDArray[np.int32]] = []
        scores: list[Floats] = []
        for number, query in enumerate(queries):
            pieces = [rows[limits[number] : limits[number + 1]] for rows, limits in parts]
            rows = distinct(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))
            if mask is not None:
                rows = rows[mask[rows]]
            rows = _closest(state.sketches, rows, sketches[number], effort.rerank)
            compared.append(rows)
            scores.append(to_float32(state.rows.vectors.take(rows)) @ query)
        return _best_of_lists(scores, compared, state.rows, k)

    def _probes(self, projected: Floats, count: int) -> _Probes:
        """Return the least costly pairs of values over all tables, for each query."""
        values, costs = self._hash.rank_values(projected, self._depth(count))
        first = [pair[0] for pair in self._pairs]
        second = [pair[1] for pair in self._pairs]
        queries = len(projected)
        cost = costs[:, first, :, None] + costs[:, second, None, :]
        cost = cost.reshape(queries, -1)
        width = cost.shape[1]
        if count < width:
            threshold = np.partition(cost, count - 1, axis=1)[:, count - 1, None]
            place = np.flatnonzero(cost <= threshold)
        else:
            place = np.arange(queries * width)
        high = (values.astype(np.int64) << self._hash.bits)[:, first, :, None]
        high |= (np.arange(self.tables) << 2 * self._hash.bits)[:, None, None]
        code = high | values[:, second, None, :]
        limits = np.searchsorted(place, np.arange(queries + 1) * width)
        return _Probes(code.reshape(-1).take(place), limits)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        state, count = self._state, self._state.rows.count
        limits = [[part.start, part.stop, part.address_bits] for part in state.buckets]
        arrays: dict[str, NDArray[Any]] = {
            "sketches": state.sketches.between(0, count),
            "limits": np.array(limits, np.int64).reshape(-1, 3),
            "codes": state.codes.between(0, count),
        }
        for number, buckets in enumerate(state.buckets):
            arrays |= {f"offsets{number}": buckets.offsets, f"postings{number}": buckets.postings}
        return arrays

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        count = rows.count
        codes = file.array("codes", np.uint16, (count, self.functions))
        sketches: Sketches = file.array("sketches", np.uint64, (count, SKETCH_WORDS))
        buckets = []
        limits: list[list[int]] = file.array("limits", np.int64, (None, 3)).tolist()
        expected = 0
        for number, (start, stop, address_bits) in enumerate(limits):
            if start != expected or stop <= start or not 1 <= address_bits <= 2 * self._hash.bits:
                raise ValueError("limits do not follow each other. Delete the file; it is built again")
            expected = stop
            postings = file.array(f"postings{number}", np.int32, (self.tables * (stop - start),))
            dtype = np.int32 if postings.size < 2**31 else np.int64
            offsets = file.array(f"offsets{number}", dtype, ((self.tables << address_bits) + 1,))
            buckets.append(Buckets(start, stop, address_bits, offsets, postings))
        if expected != count:
            raise ValueError(f"tables hold {expected} of {count} rows. Delete the file; it is built again")
        self._state = _LSHState(
            rows,
            GrowingRows(self.functions, np.uint16, codes),
            GrowingRows(SKETCH_WORDS, np.uint64, sketches),
            tuple(buckets),
        )


class _Probes(NamedTuple):
    """Buckets to read: (probes,) table and code combined, and (queries + 1,) start of each query."""

    codes: NDArray[np.int64]
    limits: NDArray[np.int64]


def _closest(
    sketches: GrowingRows[np.uint64], rows: NDArray[np.int32], query: NDArray[np.uint64], count: int
) -> NDArray[np.int32]:
    """Return about ``count`` of the rows, those with the closest sketches, in rising order."""
    if len(rows) <= count:
        return rows
    distance = differing_bits(sketches.take(rows), query)
    # Count instead of sorting, because there are few different distances.
    limit = int(np.searchsorted(np.cumsum(np.bincount(distance)), count))
    kept = np.flatnonzero(distance <= limit)
    if len(kept) > 2 * count:
        # Very many equal sketches are copies; the lowest rows represent them.
        nearer = distance < limit
        equal = np.flatnonzero(distance == limit)[: 2 * count - int(nearer.sum())]
        kept = np.sort(np.concatenate([np.flatnonzero(nearer), equal]))
    return rows[kept]


def _best_of_lists(scores: list[Floats], chosen: list[NDArray[np.int32]], rows: Rows, k: int) -> Neighbours:
    """Return the k best of lists of different lengths."""
    width = max(len(part) for part in chosen)
    padded = np.full((len(chosen), width), -np.inf, np.float32)
    places = np.zeros((len(chosen), width), np.int32)
    for number, (part, place) in enumerate(zip(scores, chosen, strict=True)):
        padded[number, : len(part)] = part
        places[number, : len(place)] = place
    return top_k(padded, places, k, names=rows.ids())
