"""Learned hash: principal directions, rotated so that signs lose little, scanned by Hamming distance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.base import RowIndex, Search
from memory.index.effort import EXACT, Effort
from memory.index.files import IndexFile
from memory.index.hashing import Sketches, differing_bits
from memory.index.neighbours import (
    Floats,
    Neighbours,
    Positions,
    check_dim,
    check_units,
    empty_answer,
    to_float32,
)
from memory.index.rows import GrowingRows, Rows

_ROWS_AT_ONCE = 16384
_MOST_BITS = 512
# Most and fewest rows that the codes are learned from if no sample is given.
_SAMPLE, _LEAST_SAMPLE = 20_000, 1024
_LEAST_RERANK, _MOST_RERANK = 128, 25_600
# Nanoseconds on one core: a call, a query, a word of a code that is read, a row that is compared exactly.
_CALL, _QUERY, _PASSED, _COMPARED = 100_000.0, 100_000.0, 4.0, 400.0


class _Projection(NamedTuple):
    """Learned (dim,) mean and (dim, bits) directions, whose signs are the code."""

    mean: Floats
    directions: Floats


class _ITQState(NamedTuple):
    """Data of one search."""

    rows: Rows
    codes: GrowingRows[np.uint64]
    learned: _Projection | None


class ITQIndex(RowIndex[_ITQState]):
    """Index that ranks vectors by the Hamming distance of packed codes and compares the first exactly.

    The codes are learned from a sample (Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to
    Learning Binary Codes", CVPR 2011). A search reads the codes of all rows, so its time grows with their
    number; its memory is a few bytes per row. Every row is compared exactly until the index is trained.

    Args:
        dim: length of a vector.
        bits: bits of a code: a multiple of 64, at most 512 (64 bytes) and at most ``dim``.
        rerank: rows compared exactly per query until the index is calibrated.
        seed: seed of the first rotation.

    Attributes:
        dim, bits, rerank, seed: as given.
    """

    kind = "itq"
    numbers = ("bits", "rerank", "seed")

    def __init__(self, dim: int, *, bits: int = 128, rerank: int = 500, seed: int = 0) -> None:
        check_dim(dim)
        if bits % 64 or not 64 <= bits <= _MOST_BITS:
            raise ValueError(f"bits must be a multiple of 64 from 64 to {_MOST_BITS}, got {bits}")
        if bits > dim:
            raise ValueError(f"bits must be at most dim {dim}, got {bits}")
        if rerank < 1:
            raise ValueError(f"rerank must be at least 1, got {rerank}")
        self.bits = bits
        self.rerank = rerank
        self.seed = seed
        super().__init__(dim, _ITQState(Rows(dim), GrowingRows(bits // 64, np.uint64), None))

    @property
    def trained(self) -> bool:
        """True if the codes are in use."""
        return self._state.learned is not None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        learned = 0 if self._state.learned is None else sum(array.nbytes for array in self._state.learned)
        return super().nbytes + self._state.codes.nbytes + learned

    def train(self, sample: ArrayLike | None = None, *, rounds: int = 50) -> None:
        """Learn the codes, and encode the present rows.

        Args:
            sample: (rows, dim) unit vectors, at least as many as bits; some thousands are enough. ``None``:
                present rows, evenly spaced.
            rounds: alternations between codes and rotation.

        Raises:
            ValueError: the sample is too small, or the index is trained already.
        """
        with self._writing:
            if self.trained:
                raise ValueError("the index is trained already. Create a new one")
            if sample is None:
                alive = np.flatnonzero(self._state.rows.alive())
                spaced = alive[:: max(1, len(alive) // _SAMPLE)]
                array = to_float32(self._state.rows.vectors.take(spaced))
            else:
                array = check_units("sample", sample, self.dim)
            if len(array) < self.bits:
                raise ValueError(
                    f"sample must have at least {self.bits} rows for {self.bits} bits, got {len(array)}"
                )
            mean = array.mean(axis=0)
            directions = _iterative_quantisation(array - mean, self.bits, rounds, self.seed)
            self._state = self._state._replace(learned=_Projection(mean, directions))
            self._index_new_rows()
            self.calibration = None

    def merge(self, *, whole: bool = False) -> None:
        """Train the index with ``whole`` if there are enough rows; otherwise rows are encoded when added."""
        with self._writing:
            if whole and not self.trained and len(self) >= max(self.bits, _LEAST_SAMPLE):
                self.train()

    def _index_new_rows(self) -> None:
        rows, codes, learned = self._state
        for first in range(len(codes), 0 if learned is None else rows.count, _ROWS_AT_ONCE):
            assert learned is not None
            last = min(first + _ROWS_AT_ONCE, rows.count)
            codes.append(_encode(learned, to_float32(rows.vectors.between(first, last))))

    def _nearest(self, state: _ITQState, asked: Search) -> Neighbours:
        queries, k, count, mask, effort = asked
        if state.learned is None:
            return state.rows.exact(queries, k, 0, count, mask)
        count = min(count, len(state.codes))  # New rows are stored before their codes.
        kept = None if mask is None else np.flatnonzero(mask[:count])
        found = empty_answer(len(queries), k)
        if count == 0 or (kept is not None and len(kept) == 0):
            return found
        codes = state.codes.between(0, count) if kept is None else state.codes.take(kept)
        for number, code in enumerate(_encode(state.learned, queries)):
            near = _closest(codes, code, max(effort.rerank, k), self.bits)
            answer = state.rows.within(queries[number : number + 1], near if kept is None else kept[near], k)
            found.scores[number], found.ids[number] = answer.scores[0], answer.ids[0]
        return found

    def _usual(self, aim: float) -> Effort:
        return Effort(1, self.rerank)

    def _effort_for(self, aim: float, queries: int, k: int) -> Effort:
        return self.effort(aim, queries=queries).for_neighbours(k)

    def _describe(self, effort: Effort) -> str:
        return f"a pass over all codes, {effort.rerank} rows compared"

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return nanoseconds per query on one core; queries asked together share little."""
        if effort == EXACT:
            return super().price(effort, queries=queries)
        passed = _PASSED * (self.bits // 64) * len(self)
        return _CALL / max(1, queries) + _QUERY + passed + _COMPARED * effort.rerank

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next one with twice the rows; none before training."""
        if not self.trained:
            return ()
        if after is None:
            return (Effort(1, _LEAST_RERANK),)
        return (Effort(1, 2 * after.rerank),) if 2 * after.rerank <= _MOST_RERANK else ()

    def _arrays(self) -> dict[str, NDArray[Any]]:
        learned = self._state.learned
        mean, directions = learned or (np.zeros(0, np.float32), np.zeros((0, self.bits), np.float32))
        codes = self._state.codes.between(0, len(self._state.codes))
        return {"codes": codes, "mean": mean, "directions": directions}

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        mean = file.array("mean", np.float32, (None,))
        if len(mean) not in (0, self.dim):
            raise ValueError(f"mean has {len(mean)} numbers, expected {self.dim}. Delete the file")
        directions = file.array("directions", np.float32, (len(mean), self.bits))
        words = self.bits // 64
        codes = file.array("codes", np.uint64, (rows.count if len(mean) else 0, words))
        learned = _Projection(mean, directions) if len(mean) else None
        self._state = _ITQState(rows, GrowingRows(words, np.uint64, codes), learned)


def _encode(learned: _Projection, vectors: Floats) -> Sketches:
    """Return (rows, words) codes."""
    sides = np.packbits((vectors - learned.mean) @ learned.directions > 0, axis=1, bitorder="little")
    return sides.view("<u8").astype(np.uint64, copy=False)


def _iterative_quantisation(centred: Floats, bits: int, rounds: int, seed: int) -> Floats:
    """Return (dim, bits) directions whose signs are the code: equations 2 to 4 of the paper."""
    covariance = centred.T @ centred
    _, vectors = np.linalg.eigh(covariance.astype(np.float64))
    principal = vectors[:, ::-1][:, :bits].astype(np.float32)
    reduced = centred @ principal
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((bits, bits)))[0].astype(np.float32)
    for _ in range(rounds):
        signs = np.where(reduced @ rotation > 0, np.float32(1), np.float32(-1))
        left, _, right = np.linalg.svd(reduced.T @ signs)
        rotation = left @ right
    directions: Floats = np.ascontiguousarray(principal @ rotation)
    return directions


def _closest(codes: Sketches, query: Sketches, count: int, bits: int) -> Positions:
    """Return rising positions of about ``count`` codes at the smallest Hamming distance."""
    if len(codes) <= count:
        return np.arange(len(codes))
    distance = differing_bits(codes, query)
    below = np.cumsum(np.bincount(distance, minlength=bits + 1))
    limit = int(np.searchsorted(below, count))
    kept = np.flatnonzero(distance <= limit)
    if len(kept) <= 2 * count:
        return kept
    nearer = np.flatnonzero(distance < limit)
    equal = np.flatnonzero(distance == limit)[: count - len(nearer)]
    return np.sort(np.concatenate([nearer, equal]))
