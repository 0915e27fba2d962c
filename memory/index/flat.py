"""Exact search: every vector is compared."""

from __future__ import annotations

import os
from pathlib import Path

from memory.index.base import Held, RowIndex
from memory.index.files import IndexFile
from memory.index.neighbours import check_dim
from memory.index.rows import Rows


class FlatIndex(RowIndex[Held]):
    """The oracle of the others, and the second stage of a filtered search.

    Vectors are kept in half precision, products are in float32. The number of threads is that of numpy's
    BLAS. Whatever the aim, all that count are compared.

    Args:
        dim: of a vector.
    """

    kind = "flat"
    # Fewer of the rows are gathered with less work than a product with all.
    gathered_share = 0.25
    keeps_removed = False

    def __init__(self, dim: int) -> None:
        super().__init__(dim, Held(Rows(check_dim(dim))))

    def compact(self) -> None:
        """Give back the space of removed rows."""
        self._state = Held(self._state.rows.compacted())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that :meth:`load` maps into memory, without the removed rows."""
        if self._state.rows.dead:
            self.compact()
        return super().save(path)

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        self._state = Held(rows)
