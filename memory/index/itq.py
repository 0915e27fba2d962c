"""A learned hash: principal directions, rotated so that signs lose little; scanned by Hamming distance."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.base import Asked, RowIndex
from memory.index.effort import Effort
from memory.index.files import IndexFile
from memory.index.growing import GrowingRows
from memory.index.hashing import Sketches, differing_bits
from memory.index.neighbours import Floats, Neighbours, Positions, check_dim, check_units, nothing, single
from memory.index.rows import Rows

_ROWS_AT_ONCE = 16384
_MOST_BITS = 512


class _State(NamedTuple):
    """What one search looks at."""

    rows: Rows
    codes: GrowingRows[np.uint64]


class ITQIndex(RowIndex[_State]):
    """Vectors are ranked by the Hamming distance of packed codes, and the first compared exactly.

    The codes are learned from a sample (Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to
    Learning Binary Codes", CVPR 2011). A search reads the codes of all rows: its time grows with their
    number, its memory is a few bytes a row.

    Args:
        dim: of a vector.
        bits: of a code: a multiple of 64, at most 512 (64 bytes) and at most ``dim``.
        rerank: rows a query compares exactly.
        seed: of the first rotation.

    Attributes:
        dim, bits, rerank, seed: as given.
    """

    kind = "itq"
    numbers = ("bits", "rerank", "seed")

    def __init__(self, dim: int, *, bits: int = 128, rerank: int = 500, seed: int = 0) -> None:
        codes: GrowingRows[np.uint64] = GrowingRows(bits // 64, np.uint64)
        super().__init__(dim, _State(Rows(check_dim(dim)), codes))
        if bits % 64 or not 64 <= bits <= _MOST_BITS:
            raise ValueError(f"bits must be a multiple of 64 from 64 to {_MOST_BITS}, got {bits}")
        if bits > dim:
            raise ValueError(f"bits must be at most dim {dim}, got {bits}")
        if rerank < 1:
            raise ValueError(f"rerank must be at least 1, got {rerank}")
        self.bits = bits
        self.rerank = rerank
        self.seed = seed
        self._mean: Floats = np.zeros(0, np.float32)
        self._directions: Floats = np.zeros((0, bits), np.float32)

    @property
    def trained(self) -> bool:
        """Whether vectors can be added."""
        return len(self._mean) > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return super().nbytes + self._state.codes.nbytes + self._mean.nbytes + self._directions.nbytes

    def train(self, sample: ArrayLike, *, rounds: int = 50) -> None:
        """Learn the codes.

        Args:
            sample: (rows, dim) unit vectors, at least as many as bits; some thousands do.
            rounds: alternations between codes and rotation.

        Raises:
            ValueError: too small a sample, or the index holds vectors already.
        """
        array = check_units("sample", sample, self.dim)
        if self.positions:
            raise ValueError("the index holds vectors already: train a new one and add them to it")
        if len(array) < self.bits:
            raise ValueError(
                f"sample must have at least {self.bits} rows for {self.bits} bits, got {len(array)}"
            )
        mean = array.mean(axis=0)
        directions = _iterative_quantisation(array - mean, self.bits, rounds, self.seed)
        self._mean, self._directions = mean, directions

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Raises:
            ValueError: not trained, not unit vectors, or an id that is there; nothing is added.
        """
        if not self.trained:
            raise ValueError("the index is not trained: call train with a sample first")
        super().add(vectors, ids, merge=merge)

    def _take_in(self) -> None:
        rows, codes = self._state
        for first in range(len(codes), rows.count, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, rows.count)
            codes.append(self._encode(single(rows.vectors.between(first, last))))

    def _encode(self, vectors: Floats) -> Sketches:
        """(rows, words) codes."""
        sides = np.packbits((vectors - self._mean) @ self._directions > 0, axis=1, bitorder="little")
        return sides.view("<u8").astype(np.uint64, copy=False)

    def _nearest(self, state: _State, asked: Asked) -> Neighbours:
        queries, k, count, mask, effort = asked
        count = min(count, len(state.codes))  # Those of the last rows are made after these are there.
        kept = None if mask is None else np.flatnonzero(mask[:count])
        found = nothing(len(queries), k)
        if count == 0 or (kept is not None and len(kept) == 0):
            return found
        codes = state.codes.between(0, count) if kept is None else state.codes.take(kept)
        for number, code in enumerate(self._encode(queries)):
            near = _closest(codes, code, max(effort.rerank, k), self.bits)
            answer = state.rows.within(queries[number : number + 1], near if kept is None else kept[near], k)
            found.scores[number], found.ids[number] = answer.scores[0], answer.ids[0]
        return found

    def _usual(self, aim: float) -> Effort:
        return Effort(1, self.rerank)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        codes = self._state.codes.between(0, self.positions)
        return {"codes": codes, "mean": self._mean, "directions": self._directions}

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        mean = file.array("mean", np.float32, (None,))
        if len(mean) not in (0, self.dim):
            raise ValueError(f"mean has {len(mean)} numbers, expected {self.dim}: delete the file")
        self._mean = mean
        self._directions = file.array("directions", np.float32, (len(mean), self.bits))
        words = self.bits // 64
        codes = file.array("codes", np.uint64, (rows.count, words))
        self._state = _State(rows, GrowingRows(words, np.uint64, codes))


def _iterative_quantisation(centred: Floats, bits: int, rounds: int, seed: int) -> Floats:
    """(dim, bits) directions whose signs are the code: equations 2 to 4 of the paper."""
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
    """Rising positions of about ``count`` codes at the least Hamming distance; of ties the first."""
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
