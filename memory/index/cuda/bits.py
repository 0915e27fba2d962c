"""Sign bits of a random rotation, packed into words, and distances between them in plain torch.

A query may weigh its bits by how far it is from their borders: a row that differs where the query's own
coordinate is small is still near. The weights are small whole numbers, kept as bit planes, so that the
weighted distance is the sum over planes ``j`` of ``2^j popcount((code ^ query) & plane_j)``; it orders rows
like the product of the query with their signs (Gao and Long, "RaBitQ", SIGMOD 2024, section 3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from memory.index.hashing import HashFunctions

WORD_BITS = 32
_BITS_LIMIT = 512
_PLANES_LIMIT = 4


class PackedQueries(NamedTuple):
    """Queries as the scan reads them.

    Attributes:
        signs: (queries, words) int32.
        planes: (queries, planes, words) int32 bits of the weights, the lowest plane first.
    """

    signs: Tensor
    planes: Tensor


class SignCodes:
    """Signs along random directions that are orthogonal in sets of ``dim``; nothing depends on data.

    Args:
        dim: of a vector.
        bits: of a code, a multiple of 32 up to 512 (64 bytes).
        planes: bits of a weight, from 1 to 4; one plane is the plain Hamming distance.
        seed: of the directions.
        device: of the directions.
    """

    def __init__(self, dim: int, bits: int, planes: int, seed: int, device: torch.device) -> None:
        if bits % WORD_BITS or not WORD_BITS <= bits <= _BITS_LIMIT:
            raise ValueError(f"bits must be a multiple of {WORD_BITS} up to {_BITS_LIMIT}, got {bits}")
        if not 1 <= planes <= _PLANES_LIMIT:
            raise ValueError(f"planes must be from 1 to {_PLANES_LIMIT}, got {planes}")
        self.bits, self.planes = bits, planes
        functions = HashFunctions("hyperplane", dim, max(2, bits // 8), 8, seed)
        self._directions = torch.from_numpy(functions.directions[:, :bits].copy()).to(device)

    @property
    def words(self) -> int:
        """Words of a code."""
        return self.bits // WORD_BITS

    def rows(self, vectors: Tensor) -> Tensor:
        """(rows, words) int32 codes of (rows, dim) vectors."""
        return packed(vectors.float() @ self._directions > 0)

    def queries(self, queries: Tensor) -> PackedQueries:
        """Codes and weights of (queries, dim) vectors."""
        projected = queries.float() @ self._directions
        signs = packed(projected > 0)
        largest = (1 << self.planes) - 1
        if largest == 1:
            return PackedQueries(signs, torch.full_like(signs, -1)[:, None, :])
        size = projected.abs()
        # The largest weight stands for all that is more than 2.2 times the mean.
        step = (2.2 / largest) * size.mean(1, keepdim=True).clamp_min(1e-30)
        weights = torch.floor(size / step + 0.5).clamp_max(largest).to(torch.int32)
        planes = [packed((weights >> plane) & 1 > 0) for plane in range(self.planes)]
        return PackedQueries(signs, torch.stack(planes, 1))


def packed(sides: Tensor) -> Tensor:
    """(rows, bits) bool as (rows, bits / 32) int32, the first bit lowest."""
    parts = sides.view(len(sides), -1, WORD_BITS).to(torch.int64)
    words = (parts << torch.arange(WORD_BITS, device=sides.device)).sum(2)
    return (words - ((words >> (WORD_BITS - 1)) << WORD_BITS)).to(torch.int32)


def population(words: Tensor) -> Tensor:
    """Ones of each int32 word."""
    words = words - ((words >> 1) & 0x55555555)
    words = (words & 0x33333333) + ((words >> 2) & 0x33333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F
    return (words * 0x01010101) >> 24


def weighted_distance(codes: Tensor, signs: Tensor, planes: Tensor) -> Tensor:
    """(...) int32 distances of (..., words) codes from one query each.

    Args:
        codes: (..., words) int32.
        signs: (..., words) int32, broadcast.
        planes: (..., planes, words) int32, broadcast.
    """
    differing = codes ^ signs
    distance = torch.zeros(differing.shape[:-1], dtype=torch.int32, device=codes.device)
    for plane in range(planes.shape[-2]):
        ones = population(differing & planes[..., plane, :]).sum(-1, dtype=torch.int32)
        distance += ones << plane
    return distance
