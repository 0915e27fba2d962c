"""Codes of 64 bytes: two bits along each of 256 random directions, and their products with a query.

A coordinate of a row becomes one of the levels -3, -1, 1 and 3: its sign, and whether it is among the largest
of its row. As many are in every row, so that all codes have the same length and the product of a query with
the levels orders rows like their cosines (the idea of Gao and others, "Practical and Asymptotically Optimal
Quantization of High-Dimensional Vectors", SIGMOD 2025, with levels that need no search). A query's
coordinates become whole numbers of eight bits. All sums are of whole numbers: every implementation gives the
same bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from memory.index.hashing import HashFunctions

DIRECTIONS = 256
#: Words of a code. Word ``w`` holds direction ``64 f + 4 w + b`` in bits ``8 b + 2 f`` and the next.
WORDS = 16
#: Distances are whole numbers below this.
BINS = 1024
#: Distance of what never counts: removed rows and empty slots.
NEVER = 32767
_FIELDS = 4
#: Coordinates of a row at the outer levels; the length of all codes is then 32.
_OUTER = 96
#: A query's coordinate of one standard deviation.
_UNIT = 24
LARGEST = 127
#: Largest product of a unit query with a code, the distance of which is 0, and products a distance spans.
TOP, SHIFT = _UNIT * 16 * 32, 4


class QueryLevels(NamedTuple):
    """Queries as the codes are compared with them.

    Attributes:
        levels: (queries, 256) int8 coordinates.
        base: (queries,) int32 what twice the products of levels with codes are taken from.
    """

    levels: Tensor
    base: Tensor


def directions(dim: int, seed: int) -> Tensor:
    """(256, dim) float32 random directions, orthogonal in sets of ``dim``; nothing depends on data."""
    drawn = HashFunctions("hyperplane", dim, DIRECTIONS // 8, 8, seed).directions[:, :DIRECTIONS]
    return torch.from_numpy(np.ascontiguousarray(drawn.T, np.float32))


def scale_of(dim: int) -> float:
    """Twice the factor from a coordinate of a unit query to its level, as single precision has it."""
    return float(np.float32(2 * _UNIT * math.sqrt(dim)))


def row_codes(coordinates: Tensor) -> Tensor:
    """(rows, 16) int32 codes of (rows, 256) coordinates."""
    size = coordinates.abs()
    least = size.sort(1, descending=True).values[:, _OUTER - 1 : _OUTER]
    outer, positive = size >= least, coordinates > 0
    # From 0 for -3 to 3 for 3.
    level = torch.where(positive, 2, 1) + torch.where(outer, torch.where(positive, 1, -1), 0)
    field = level.to(torch.uint8).view(len(level), _FIELDS, 4 * WORDS)
    packed = field[:, 0] | (field[:, 1] << 2) | (field[:, 2] << 4) | (field[:, 3] << 6)
    return packed.contiguous().view(torch.int32)


def asked_levels(coordinates: Tensor, dim: int) -> QueryLevels:
    """Levels of (queries, 256) float16 coordinates of unit vectors of ``dim`` numbers."""
    doubled = torch.floor(coordinates.float() * scale_of(dim)).clamp(-4 * LARGEST, 4 * LARGEST)
    levels = ((doubled.to(torch.int32) + 1) >> 1).clamp(-LARGEST, LARGEST)
    return QueryLevels(levels.to(torch.int8), TOP + 3 * levels.sum(1, dtype=torch.int32))


def distances(codes: Tensor, levels: Tensor, base: Tensor) -> Tensor:
    """(queries, rows) int32 distances from 0 to 1023.

    Args:
        codes: (rows, 16) int32.
        levels: (queries, 256) int8.
        base: (queries,) int32.
    """
    level = torch.stack([(codes.view(torch.uint8) >> 2 * field) & 3 for field in range(_FIELDS)], 1)
    # Sums stay below 2^24, so single precision is exact.
    product = levels.float() @ level.view(len(codes), DIRECTIONS).float().T
    return ((base[:, None] - 2 * product.to(torch.int32)) >> SHIFT).clamp(0, BINS - 1)
