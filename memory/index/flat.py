"""Exact search: every vector is compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.effort import EXACT, Calibration, Effort
from memory.index.files import load_arrays, save_arrays
from memory.index.neighbours import Floats, Ids, Marked, Neighbours, check_dim, check_k, check_units
from memory.index.planner import exact_price
from memory.index.rows import Rows

_KIND = "flat"
# Below this share of allowed rows, gathering them is less work than a product with all.
_GATHER_SHARE = 0.25


class FlatIndex:
    """The oracle of the others, and the second stage of a filtered search.

    Vectors are kept in half precision, products are in float32. The number of threads is that of numpy's
    BLAS.

    Args:
        dim: of a vector.

    Attributes:
        dim: of a vector.
        generation: how far the index follows the store; kept in its file, used by nobody here.
        identity: of the store's history up to there; likewise.
        calibration: ``None``, there is nothing to measure.
    """

    def __init__(self, dim: int) -> None:
        self.dim = check_dim(dim)
        self.generation = 0
        self.identity = ""
        self.calibration: Calibration | None = None
        self._rows = Rows(self.dim)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def positions(self) -> int:
        """Rows, removed ones included."""
        return self._rows.count

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Ids and (rows, dim) vectors of the living rows from start to stop, the first ``most`` of them."""
        return self._rows.stored(start, stop, most)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._rows.nbytes

    @property
    def tail(self) -> int:
        """Nothing is ever to be sorted."""
        return 0

    def merge(self, *, whole: bool = False) -> None:
        """There is nothing to do."""

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Args:
            vectors: (rows, dim).
            ids: (rows,) int64.
            merge: makes no difference.

        Raises:
            ValueError: not unit vectors, or an id that is there; nothing is added.
        """
        self._rows.add(vectors, ids)

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with :meth:`compact`."""
        return self._rows.remove(ids)

    def compact(self) -> None:
        """Give back the space of removed rows."""
        self._rows = self._rows.compacted()

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        marked: Marked | None = None,
        aim: float | None = None,
        effort: Effort | None = None,
    ) -> Neighbours:
        """The k nearest of each query.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query.
            allowed: (ids,) to choose from; ``None`` for all.
            marked: instead of ``allowed``: which of many rising ids to choose from.
            aim, effort: make no difference, all are found.
        """
        asked = check_units("queries", queries, self.dim)
        k = check_k(k)
        rows = self._rows
        count = rows.count
        if allowed is not None:
            positions = rows.among(count, allowed)
            if len(positions) <= _GATHER_SHARE * count:
                return rows.within(asked, positions, k)
        return rows.exact(asked, k, 0, count, rows.mask(count, allowed, marked))

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """All rows are compared, whatever the aim."""
        return EXACT

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Nanoseconds a query."""
        return exact_price(len(self), queries)

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """None: there is nothing to choose."""
        return ()

    def search_within(self, queries: ArrayLike, ids: ArrayLike, k: int) -> Neighbours:
        """The k nearest of each query among these ids: their vectors are gathered and compared exactly.

        Args:
            queries: (queries, dim) unit vectors.
            ids: (ids,) to choose from; those that are not here are left out.
            k: neighbours a query.
        """
        return self._rows.search_within(queries, ids, k)

    def search_marked(self, queries: ArrayLike, k: int, ids: Ids, kept: NDArray[np.bool_]) -> Neighbours:
        """The k nearest of each query among the kept ones of many rising ids: all rows are compared."""
        return self._rows.search_marked(queries, k, ids, kept)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that :meth:`load` maps into memory."""
        rows = self._rows.compacted() if self._rows.dead else self._rows
        arrays: dict[str, NDArray[Any]] = {"ids": rows.ids(), "vectors": rows.vectors.between(0, rows.count)}
        header: dict[str, str | int] = {
            "dim": self.dim,
            "generation": self.generation,
            "identity": self.identity,
        }
        return save_arrays(path, _KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FlatIndex:
        """Map a file of :meth:`save`; it is never written to.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged or another kind of file.
        """
        file = load_arrays(path, _KIND)
        index = cls(file.number("dim"))
        index.generation = file.number("generation")
        index.identity = file.header.get("identity", "")
        ids = file.array("ids", np.int64, (None,))
        vectors = file.array("vectors", np.float16, (len(ids), index.dim))
        index._rows = Rows(index.dim, vectors, ids, np.ones(len(ids), np.bool_))
        return index
