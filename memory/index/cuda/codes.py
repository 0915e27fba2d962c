"""Codes of 64 bytes: two bits along each of 256 random directions, and their products with a query.

A coordinate of a row becomes one of the levels -3, -1, 1 and 3: its sign, and whether it is among the largest
of its row. Every row has the same number of outer levels, so all codes have the same length, and the products
of a query with the levels order rows like their cosines. The idea is that of Gao et al., "Practical and
Asymptotically Optimal Quantization of High-Dimensional Vectors", SIGMOD 2025, with levels that need no
search. A query's coordinates become 8-bit integers. All sums are integers, so every implementation gives the
same bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

DIRECTIONS = 256
#: Words per code. Word ``w`` holds direction ``64 f + 4 w + b`` in bits ``8 b + 2 f`` and the next.
WORDS = 16
#: Distances are integers below this.
BINS = 1024
#: Distance of rows that never count: removed rows and empty slots.
NEVER = 32767
_FIELDS = 4
#: Coordinates of a row at the outer levels, so that all codes have length 32.
_OUTER = 96
#: Level of a query coordinate of one standard deviation.
_UNIT = 24
LARGEST = 127
#: Largest product of a unit query with a code, which is distance 0; and bits by which products are reduced to
#: distances.
TOP, SHIFT = _UNIT * 16 * 32, 4


class QueryLevels(NamedTuple):
    """Queries in the form in which codes are compared with them.

    Attributes:
        levels: (queries, 256) int8 coordinates.
        base: (queries,) int32 from which twice the products of levels and codes are subtracted.
    """

    levels: Tensor
    base: Tensor


def directions(dim: int, seed: int) -> Tensor:
    """Return (256, dim) float32 random directions, orthogonal in sets of ``dim``."""
    generator = np.random.default_rng(seed)
    sets = []
    for _ in range(-(-DIRECTIONS // dim)):
        basis, triangle = np.linalg.qr(generator.standard_normal((dim, dim)))
        # The signs make the rotation uniform.
        sets.append(basis * np.where(np.diagonal(triangle) < 0, -1.0, 1.0))
    drawn = np.concatenate(sets, axis=1)[:, :DIRECTIONS]
    return torch.from_numpy(np.ascontiguousarray(drawn.T, np.float32))


def scale_of(dim: int) -> float:
    """Return twice the factor from a unit query's coordinate to its level, rounded to single precision."""
    return float(np.float32(2 * _UNIT * math.sqrt(dim)))


def row_codes(coordinates: Tensor) -> Tensor:
    """Return the (rows, 16) int32 codes of (rows, 256) coordinates."""
    size = coordinates.abs()
    least = size.sort(1, descending=True).values[:, _OUTER - 1 : _OUTER]
    outer, positive = size >= least, coordinates > 0
    # Levels are stored as 0 for -3 up to 3 for 3.
    level = torch.where(positive, 2, 1) + torch.where(outer, torch.where(positive, 1, -1), 0)
    field = level.to(torch.uint8).view(len(level), _FIELDS, 4 * WORDS)
    packed = field[:, 0] | (field[:, 1] << 2) | (field[:, 2] << 4) | (field[:, 3] << 6)
    return packed.contiguous().view(torch.int32)


def asked_levels(coordinates: Tensor, dim: int) -> QueryLevels:
    """Return the levels of (queries, 256) float16 coordinates of unit vectors of ``dim`` numbers."""
    doubled = torch.floor(coordinates.float() * scale_of(dim)).clamp(-4 * LARGEST, 4 * LARGEST)
    levels = ((doubled.to(torch.int32) + 1) >> 1).clamp(-LARGEST, LARGEST)
    return QueryLevels(levels.to(torch.int8), TOP + 3 * levels.sum(1, dtype=torch.int32))


def distances(codes: Tensor, levels: Tensor, base: Tensor) -> Tensor:
    """Return (queries, rows) int32 distances from 0 to 1023.

    Args:
        codes: (rows, 16) int32.
        levels: (queries, 256) int8.
        base: (queries,) int32.
    """
    level = torch.stack([(codes.view(torch.uint8) >> 2 * field) & 3 for field in range(_FIELDS)], 1)
    # Sums stay below 2^24, so single precision is exact.
    product = levels.float() @ level.view(len(codes), DIRECTIONS).float().T
    return ((base[:, None] - 2 * product.to(torch.int32)) >> SHIFT).clamp(0, BINS - 1)
