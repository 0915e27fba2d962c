"""Arrays of the cells of an index on a GPU, and the sizes of a search in them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from memory.index.cuda.codes import QueryLevels

#: Most cells that a query reads.
PROBE_LIMIT = 128
#: Up to this many neighbours the sizes are as given.
_USUAL_K = 64


def products_of(base: Tensor, vectors: Tensor) -> Tensor:
    """Return (N, P) float16 products of (N, dim) vectors with (P, dim) rows."""
    return (vectors.to(torch.float16).to(base.dtype) @ base.T).to(torch.float16)


class Sizes(NamedTuple):
    """Fixed sizes of a search.

    Attributes:
        probes: cells a query reads, at most 128.
        capacity: rows in them that there is room for; the farthest cells are cut.
        rerank: rows of the lowest distance that are kept, at most.
    """

    probes: int
    capacity: int
    rerank: int

    def of(self, k: int) -> Sizes:
        """The sizes for ``k`` neighbours: more than 64 need more cells, and several rows for each."""
        wider = max(1.0, math.sqrt(k / _USUAL_K))
        probes = min(math.ceil(self.probes * wider), PROBE_LIMIT)
        return Sizes(probes, math.ceil(self.capacity * wider), max(self.rerank, 4 * k))


class Cells(NamedTuple):
    """Rows in the order of their cells.

    Attributes:
        pivots: how many.
        base: (pivots + 256, dim) pivots and random directions: queries are multiplied with both at once.
        starts: (pivots + 1,) int32 where each cell starts.
        codes: (slots, 16) int32.
        rows: (slots,) int32, rising within a cell.
        live: (slots,) bool, not removed since.
        slots: (hashed,) int32 slot of each row, -1 for those removed before.
    """

    pivots: int
    base: Tensor
    starts: Tensor
    codes: Tensor
    rows: Tensor
    live: Tensor
    slots: Tensor

    @property
    def hashed(self) -> int:
        """Rows up to which the cells go."""
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.base, self.starts, self.codes, self.rows, self.live, self.slots)
        return sum(array.numel() * array.element_size() for array in arrays)

    def products(self, queries: Tensor) -> Tensor:
        """(queries, pivots + 256) float16 products of (queries, dim) vectors."""
        return products_of(self.base, queries)

    def coordinates(self, queries: Tensor) -> Tensor:
        """(queries, 256) float16 products with the directions alone."""
        return products_of(self.base[self.pivots :], queries)

    def remove(self, rows: Tensor) -> None:
        """Leave out (removed,) int64 rows, all below ``hashed``."""
        self.live[self.slots[rows].to(torch.int64)] = False


class Probed(NamedTuple):
    """What queries read.

    Attributes:
        asked: the queries.
        shifts: (queries, probes) int32 from a place among a query's rows to a slot, by cell.
        ends: (queries, probes) int32 where each cell ends among the rows of its query, the nearest first.
    """

    asked: QueryLevels
    shifts: Tensor
    ends: Tensor


class Candidates(NamedTuple):
    """Rows that may be near.

    Attributes:
        rows: (queries, rerank) int32, each once; their order may differ from run to run on a GPU.
        lengths: (queries,) int32 places in use.
    """

    rows: Tensor
    lengths: Tensor
