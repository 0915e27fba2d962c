"""Random hash functions of directions, and the values that near vectors are likely to have.

A function maps a vector to one small number. For a query it also ranks the other values that a near vector
may have, by how far the query would have to move (its margin). Multi-probe search looks in that
order (Lv et al., "Multi-Probe LSH", VLDB 2007).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.index.neighbours import Floats, check_dim

Codes = NDArray[np.uint16]
Sketches = NDArray[np.uint64]

SKETCH_WORDS = 2
_SKETCH_BITS = 64 * SKETCH_WORDS
#: Shortest rotated vectors. Shorter ones are padded, because few of their directions would differ.
_LEAST_SIZE = 64
# Rows whose projections are computed at once, so that they stay in the cache.
_ROWS_AT_ONCE = 16
_BITS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


class RankedValues(NamedTuple):
    """Values that vectors near a query may have.

    Attributes:
        values: (queries, functions, depth) int32.
        costs: (queries, functions, depth) float32 squared distances to the border, unordered; 0 for the
            query's own value.
    """

    values: NDArray[np.int32]
    costs: Floats


class HashFunctions:
    """Cross-polytope functions, drawn from a seed.

    A function rotates the vector at random; its value is the nearest coordinate axis, with the sign (Andoni
    et al., "Practical and Optimal LSH for Angular Distance", NeurIPS 2015).

    Args:
        bits: bits of a value, from 2 to 15.

    Attributes:
        dim, functions, bits: as given.
        width: projections of a function.
        mixing: (2, size) float32 signs of the rotations that all sets share; the first have a scale.
        signs: (sets, size) float32 signs of each set's own rotation.
    """

    def __init__(self, dim: int, functions: int, bits: int, seed: int) -> None:
        if not 2 <= bits <= 15:
            raise ValueError(f"bits must be from 2 to 15, got {bits}")
        if functions < 2:
            raise ValueError(f"functions must be at least 2, got {functions}")
        self.dim = check_dim(dim)
        self.functions = functions
        self.bits = bits
        self.width = 1 << (bits - 1)
        size = max(_LEAST_SIZE, 1 << (dim - 1).bit_length())
        sets = -(-max(functions * self.width, _SKETCH_BITS) // size)
        drawn = np.random.default_rng(seed).integers(0, 2, (2 + sets, size))
        signs = (2 * drawn - 1).astype(np.float32)
        self.mixing, self.signs = signs[:2], signs[2:]
        self.mixing[0] *= np.float32(size**-1.5)

    def project(self, vectors: Floats) -> Floats:
        """Return the (rows, projections) coordinates after random rotations; a set of ``size`` has one each.

        A rotation flips signs at random and multiplies by a Hadamard matrix, three times, so it needs sums
        only (Ailon and Chazelle, "The Fast Johnson-Lindenstrauss Transform", 2009). Their order is fixed, so
        every processor and the C++ code find the same bits.
        """
        sets, size = self.signs.shape
        found = np.empty((len(vectors), sets * size), np.float32)
        mixed = np.zeros((size, 1, len(vectors)), np.float32)
        mixed[: self.dim, 0] = vectors.T
        for signs in self.mixing:
            mixed = _multiply_hadamard(mixed * signs[:, None, None])
        own = self.signs.T[:, :, None]
        for first in range(0, len(vectors), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            rotated = _multiply_hadamard(mixed[:, :, some] * own)
            found[some] = rotated.transpose(2, 1, 0).reshape(-1, sets * size)
        return found

    def hash(self, vectors: Floats) -> tuple[Codes, Sketches]:
        """Return the codes and sketches of (rows, dim) vectors."""
        projected = self.project(vectors)
        return self.codes(projected), self.sketches(projected)

    def codes(self, projected: Floats) -> Codes:
        """Return (rows, functions) values of projected vectors."""
        parts = self._parts(projected)
        axis = np.abs(parts).argmax(axis=2)
        negative = np.take_along_axis(parts, axis[..., None], 2)[..., 0] < 0
        codes: Codes = (2 * axis + negative).astype(np.uint16)
        return codes

    def sketches(self, projected: Floats) -> Sketches:
        """Return (rows, words) sketches: the sides of the first directions, one bit each."""
        sides = np.packbits(projected[:, :_SKETCH_BITS] > 0, axis=1, bitorder="little")
        return sides.view("<u8").astype(np.uint64, copy=False)

    def rank_values(self, projected: Floats, depth: int) -> RankedValues:
        """Return the ``depth`` least costly values of each function."""
        parts = self._parts(projected)
        size = np.abs(parts)
        depth = min(depth, self.width)
        axis = _largest(size, depth)
        found = np.take_along_axis(parts, axis, 2)
        size = np.abs(found)
        costs = np.square(size.max(axis=2, keepdims=True) - size)
        return RankedValues((2 * axis + (found < 0)).astype(np.int32), costs)

    def _parts(self, projected: Floats) -> Floats:
        """Return (rows, functions, width) coordinates by function."""
        return projected[:, : self.functions * self.width].reshape(len(projected), self.functions, self.width)


def differing_bits(codes: Sketches, query: Sketches) -> NDArray[np.uint16]:
    """Return (rows,) Hamming distances of (rows, words) codes from (words,)."""
    distance = np.zeros(len(codes), np.uint16)
    if hasattr(np, "bitwise_count"):
        for word in range(codes.shape[1]):
            distance += np.bitwise_count(codes[:, word] ^ query[word])
    else:
        # numpy before 2.0 has no bitwise_count.
        differing = np.ascontiguousarray(codes ^ query).view(np.uint8)
        distance += _BITS_OF_BYTE[differing].sum(axis=1, dtype=np.uint16)
    return distance


def function_pairs(functions: int, tables: int) -> list[tuple[int, int]]:
    """Return the pair of functions of each table: neighbours on a circle, then the next but one, and so on.

    Functions that several tables share cost one product only (Andoni and Indyk, "E2LSH", 2005).
    """
    most = functions * (functions - 1) // 2
    if not 1 <= tables <= most:
        raise ValueError(f"tables must be from 1 to {most} with {functions} functions, got {tables}")
    pairs: list[tuple[int, int]] = []
    for step in range(1, functions):
        for first in range(functions):
            pair = (first, (first + step) % functions)
            if pair not in pairs and pair[::-1] not in pairs:
                pairs.append(pair)
    return pairs[:tables]


def _multiply_hadamard(numbers: Floats) -> Floats:
    """Multiply the first axis, whose length is a power of two, by the Hadamard matrix of -1 and 1."""
    size, half = len(numbers), 1
    found = np.empty_like(numbers)
    while half < size:
        shape = size // (2 * half), 2, half, *numbers.shape[1:]
        pairs, sums = numbers.reshape(shape), found.reshape(shape)
        np.add(pairs[:, 0], pairs[:, 1], out=sums[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=sums[:, 1])
        numbers, found = found, numbers
        half *= 2
    return numbers


def _largest(size: Floats, depth: int) -> NDArray[np.int64]:
    """Return (rows, functions, depth) positions of the largest numbers of the last axis, rising."""
    rows, functions, width = size.shape
    if depth == width:
        return np.broadcast_to(np.arange(width), size.shape)
    threshold = np.partition(size, width - depth, axis=2)[..., width - depth, None]
    place = np.flatnonzero(size >= threshold)
    if len(place) == rows * functions * depth:
        unique: NDArray[np.int64] = (place % width).reshape(rows, functions, depth)
        return unique
    # Among equal numbers the lower positions win.
    return np.sort(np.argsort(-size, axis=2, kind="stable")[..., :depth], axis=2)
