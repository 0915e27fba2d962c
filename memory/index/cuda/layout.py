"""Arrays of the cells of an index on a GPU, and the sizes of a search in them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from memory.index.cuda.codes import QueryLevels

#: Most cells read per query.
PROBE_LIMIT = 128
#: Number of neighbours up to which the sizes are used as given.
_USUAL_K = 64


def products_of(base: Tensor, vectors: Tensor) -> Tensor:
    """Return (N, P) float16 products of (N, dim) vectors with (P, dim) rows."""
    return (vectors.to(torch.float16).to(base.dtype) @ base.T).to(torch.float16)


class Sizes(NamedTuple):
    """Fixed sizes of a search.

    Attributes:
        probes: cells read per query, at most 128.
        capacity: room for their rows; the farthest cells are cut.
        rerank: most rows of lowest distance that are kept.
    """

    probes: int
    capacity: int
    rerank: int

    def of(self, k: int) -> Sizes:
        """Return the sizes for ``k`` neighbours; more than 64 need more cells, and several rows each."""
        wider = max(1.0, math.sqrt(k / _USUAL_K))
        probes = min(math.ceil(self.probes * wider), PROBE_LIMIT)
        return Sizes(probes, math.ceil(self.capacity * wider), max(self.rerank, 4 * k))


class Cells(NamedTuple):
    """Rows in the order of their cells.

    Attributes:
        pivots: number of cells.
        base: (pivots + 256, dim) pivots and random directions; queries are multiplied with both at once.
        starts: (pivots + 1,) int32 start of each cell.
        codes: (slots, 16) int32.
        rows: (slots,) int32, rising within a cell.
        live: (slots,) bool, False for rows removed since.
        slots: (hashed,) int32 slot of each row, -1 for rows removed before.
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
        """Number of rows that the cells cover."""
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.base, self.starts, self.codes, self.rows, self.live, self.slots)
        return sum(array.numel() * array.element_size() for array in arrays)

    def products(self, queries: Tensor) -> Tensor:
        """Return (queries, pivots + 256) float16 products of (queries, dim) vectors."""
        return products_of(self.base, queries)

    def coordinates(self, queries: Tensor) -> Tensor:
        """Return (queries, 256) float16 products with the directions alone."""
        return products_of(self.base[self.pivots :], queries)

    def remove(self, rows: Tensor) -> None:
        """Mark (removed,) int64 rows below ``hashed`` as removed."""
        self.live[self.slots[rows].to(torch.int64)] = False


class Probed(NamedTuple):
    """Cells that queries read.

    Attributes:
        asked: the queries.
        shifts: (queries, probes) int32 from a place among a query's rows to a slot, by cell.
        ends: (queries, probes) int32 end of each cell among the query's rows, nearest first.
    """

    asked: QueryLevels
    shifts: Tensor
    ends: Tensor


class Candidates(NamedTuple):
    """Rows that may be near.

    Attributes:
        rows: (queries, rerank) int32, each once; their order may differ between runs on a GPU.
        lengths: (queries,) int32 number of places in use.
    """

    rows: Tensor
    lengths: Tensor
