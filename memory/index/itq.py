"""A learned hash: principal directions, rotated so that signs lose little; scanned by Hamming distance."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.files import load_arrays, save_arrays
from memory.index.growing import GrowingRows
from memory.index.hashing import Sketches, differing_bits
from memory.index.neighbours import (
    Floats,
    Ids,
    Neighbours,
    Positions,
    check_dim,
    check_k,
    check_units,
    single,
)
from memory.index.rows import Rows

_KIND = "itq"
_ROWS_AT_ONCE = 16384
_MOST_BITS = 512


class ITQIndex:
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
        generation: how far the index follows the store; kept in its file, used by nobody here.
        identity: of the store's history up to there; likewise.
    """

    def __init__(self, dim: int, *, bits: int = 128, rerank: int = 500, seed: int = 0) -> None:
        self.dim = check_dim(dim)
        if bits % 64 or not 64 <= bits <= _MOST_BITS:
            raise ValueError(f"bits must be a multiple of 64 from 64 to {_MOST_BITS}, got {bits}")
        if bits > dim:
            raise ValueError(f"bits must be at most dim {dim}, got {bits}")
        if rerank < 1:
            raise ValueError(f"rerank must be at least 1, got {rerank}")
        self.bits = bits
        self.rerank = rerank
        self.seed = seed
        self.generation = 0
        self.identity = ""
        self._rows = Rows(self.dim)
        self._codes: GrowingRows[np.uint64] = GrowingRows(bits // 64, np.uint64)
        self._mean: Floats = np.zeros(0, np.float32)
        self._directions: Floats = np.zeros((0, bits), np.float32)
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def trained(self) -> bool:
        """Whether vectors can be added."""
        return len(self._mean) > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._rows.nbytes + self._codes.nbytes + self._mean.nbytes + self._directions.nbytes

    def train(self, sample: ArrayLike, *, rounds: int = 50) -> None:
        """Learn the codes.

        Args:
            sample: (rows, dim) unit vectors, at least as many as bits; some thousands do.
            rounds: alternations between codes and rotation.

        Raises:
            ValueError: too small a sample, or the index holds vectors already.
        """
        array = check_units("sample", sample, self.dim)
        if self._rows.count:
            raise ValueError("the index holds vectors already: train a new one and add them to it")
        if len(array) < self.bits:
            raise ValueError(
                f"sample must have at least {self.bits} rows for {self.bits} bits, got {len(array)}"
            )
        mean = array.mean(axis=0)
        directions = _iterative_quantisation(array - mean, self.bits, rounds, self.seed)
        self._mean, self._directions = mean, directions

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Raises:
            ValueError: not trained, not unit vectors, or an id that is there; nothing is added.
        """
        if not self.trained:
            raise ValueError("the index is not trained: call train with a sample first")
        with self._writing:
            start = self._rows.count
            self._rows.add(vectors, ids)
            for first in range(start, self._rows.count, _ROWS_AT_ONCE):
                last = min(first + _ROWS_AT_ONCE, self._rows.count)
                self._codes.append(self._encode(single(self._rows.vectors.between(first, last))))

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with a new index."""
        with self._writing:
            return self._rows.remove(ids)

    def _encode(self, vectors: Floats) -> Sketches:
        """(rows, words) codes."""
        sides = np.packbits((vectors - self._mean) @ self._directions > 0, axis=1, bitorder="little")
        return sides.view("<u8").astype(np.uint64, copy=False)

    def search(
        self, queries: ArrayLike, k: int, *, allowed: ArrayLike | None = None, rerank: int | None = None
    ) -> Neighbours:
        """The k nearest of each query among the rows with the closest codes.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query.
            allowed: (ids,) to choose from; ``None`` for all.
            rerank: instead of that of the index.
        """
        asked = check_units("queries", queries, self.dim)
        k = check_k(k)
        rows, count = self._rows, len(self._codes)
        mask = rows.mask(count, allowed)
        kept = None if mask is None else np.flatnonzero(mask)
        found = Neighbours(
            np.full((len(asked), k), -np.inf, np.float32), np.full((len(asked), k), -1, np.int64)
        )
        if count == 0 or (kept is not None and len(kept) == 0):
            return found
        codes = self._codes.between(0, count) if kept is None else self._codes.take(kept)
        wanted = max(rerank or self.rerank, k)
        for number, code in enumerate(self._encode(asked)):
            near = _closest(codes, code, wanted, self.bits)
            answer = rows.within(asked[number : number + 1], near if kept is None else kept[near], k)
            found.scores[number], found.ids[number] = answer.scores[0], answer.ids[0]
        return found

    def search_within(self, queries: ArrayLike, ids: ArrayLike, k: int) -> Neighbours:
        """The k nearest of each query among these ids: their vectors are gathered and compared exactly."""
        return self._rows.search_within(queries, ids, k)

    def search_marked(self, queries: ArrayLike, k: int, ids: Ids, kept: NDArray[np.bool_]) -> Neighbours:
        """The k nearest of each query among the kept ones of many rising ids: all rows are compared."""
        return self._rows.search_marked(queries, k, ids, kept)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that :meth:`load` maps into memory."""
        with self._writing:
            count = self._rows.count
            header = {
                name: getattr(self, name)
                for name in ("dim", "bits", "rerank", "seed", "generation", "identity")
            }
            arrays: dict[str, NDArray[Any]] = {
                "ids": self._rows.ids(),
                "codes": self._codes.between(0, count),
                "mean": self._mean,
                "directions": self._directions,
                "vectors": self._rows.vectors.between(0, count),
                "alive": self._rows.alive().astype(np.uint8),
            }
        return save_arrays(path, _KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ITQIndex:
        """Map a file of :meth:`save`; it is never written to.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged or another kind of file.
        """
        file = load_arrays(path, _KIND)
        numbers = {name: file.number(name) for name in ("bits", "rerank", "seed")}
        index = cls(file.number("dim"), **numbers)
        index.generation = file.number("generation")
        index.identity = file.header.get("identity", "")
        ids = file.array("ids", np.int64, (None,))
        count = len(ids)
        mean = file.array("mean", np.float32, (None,))
        if len(mean) not in (0, index.dim):
            raise ValueError(f"mean has {len(mean)} numbers, expected {index.dim}: delete the file")
        index._mean = mean
        index._directions = file.array("directions", np.float32, (len(mean), index.bits))
        alive = file.array("alive", np.uint8, (count,)).astype(np.bool_)
        index._rows = Rows(index.dim, file.array("vectors", np.float16, (count, index.dim)), ids, alive)
        index._codes = GrowingRows(
            index.bits // 64, np.uint64, file.array("codes", np.uint64, (count, index.bits // 64))
        )
        return index


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
