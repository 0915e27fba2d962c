"""Exact search, which compares every vector."""

from __future__ import annotations

import os
from pathlib import Path

from memory.index.base import RowIndex, RowState
from memory.index.files import IndexFile
from memory.index.neighbours import check_dim
from memory.index.rows import Rows


class FlatIndex(RowIndex[RowState]):
    """Exact index; the oracle of the others, and the second stage of a filtered search.

    Vectors are stored in half precision, and products are in float32. numpy's BLAS sets the number of
    threads. Every aim compares all rows that count.

    Args:
        dim: length of a vector.
    """

    kind = "flat"
    # Up to this share, gathering rows costs less than a product with all rows.
    gathered_share = 0.25
    keeps_removed = False

    def __init__(self, dim: int) -> None:
        super().__init__(dim, RowState(Rows(check_dim(dim))))

    def compact(self) -> None:
        """Free the space of removed rows."""
        self._state = RowState(self._state.rows.compact())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file that :meth:`load` maps into memory, without the removed rows."""
        if self._state.rows.dead:
            self.compact()
        return super().save(path)

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        self._state = RowState(rows)
