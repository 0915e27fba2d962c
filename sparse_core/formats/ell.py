"""ELL: every row padded to the same width, stored column-major."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    expand_pointers,
    narrow,
    pointers_from_lengths,
    rank_within_rows,
    scatter_values,
)
from sparse_core.formats.validation import (
    check_indices,
    check_lengths,
    check_padding,
    check_range,
    check_size,
    check_values_dtype,
    first_true,
    order_error,
)


class ELL(SparseMatrix):
    """Padded rows: entry k of row r is ``values[k, r]`` at column ``col[k, r]``.

    Column-major, so that neighbouring GPU threads, one per row, read neighbouring memory. Entries
    ``k >= lengths[r]`` are padding (column 0, value 0) and are never used, not even multiplied.

    Args:
        col: (width, M) int32 or int64, strictly ascending along a row's ``lengths[r]`` entries.
        values: (width, M) floating point or complex.
        lengths: (M,) int32, entries of each row, at most ``width``.
        shape: rows, columns.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        col: Tensor,
        values: Tensor,
        lengths: Tensor,
        shape: tuple[int, int],
        *,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        check_values_dtype(values)
        check_indices(self.shape, values.device, col=col)
        check_lengths(lengths, self.shape[0], values.device)
        if values.ndim != 2:
            raise ValueError(f"values must have shape (width, rows), got {tuple(values.shape)}")
        check_size("values", values, (len(values), self.shape[0]), "width x rows")
        check_size("col", col, tuple(values.shape), "one column per value")
        self.col = col
        self.values = values
        self.lengths = lengths
        self._check(validate)

    @property
    def width(self) -> int:
        """Capacity of each row in entries."""
        return len(self.values)

    @property
    def nnz(self) -> int:
        """Number of stored entries without padding; the first count waits for a CUDA device."""
        return self.cached("nnz", lambda: int(self.lengths.sum()))

    def _nnz_known(self) -> bool:
        return "nnz" in self._structure_cache

    @property
    def T(self) -> ELL:
        """Transposed matrix, as wide as its longest row."""
        return ELL.from_csr(self._to_csr().T)

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row, (M,) int32."""
        return self.lengths

    def validate(self) -> None:
        """Check lengths, columns (range and order) and that padding is zero."""
        check_range("lengths", self.lengths, self.width + 1)
        # Padding has column 0 even in a matrix without columns.
        check_range("col", self.col, self.shape[1] if self.nnz else max(self.shape[1], 1))
        padding = self._padding()
        at = first_true((self.col[1:] <= self.col[:-1]).logical_and_(~padding[1:]))
        if at is not None:
            step, row = divmod(at, self.shape[0])
            before, entry = ((f"col[{k}, {row}]", int(self.col[k, row])) for k in (step, step + 1))
            raise order_error(entry, before, row, "ELL.from_coo sorts and sums duplicates")
        check_padding("values", self.values, padding)
        check_padding("col", self.col, padding)

    def _padding(self) -> Tensor:
        return torch.arange(self.width, device=self.device)[:, None] >= self.lengths

    @classmethod
    def from_csr(cls, csr: CSR, *, width: int | None = None) -> Self:  # type: ignore[override]
        """Convert from CSR.

        Args:
            csr: the matrix.
            width: capacity of each row; by default the length of the longest.

        Raises:
            ValueError: a row is longer than ``width``.
        """
        rows = csr.shape[0]
        lengths = csr.row_lengths().to(torch.int32)
        longest = int(lengths.max()) if rows else 0
        if width is None:
            width = longest
        elif width < longest:
            at = first_true(lengths > width)
            raise ValueError(f"row {at} has {int(lengths[at or 0])} entries, more than width={width}")
        row = csr.row_indices()
        places = rank_within_rows(csr.row_ptr, row) * rows + row
        values = scatter_values(csr.values, places, width * rows).reshape(width, rows)
        dtype = index_dtype_for(*csr.shape)
        col = scatter_values(narrow(csr.col, dtype), places, width * rows).reshape(width, rows)
        return cls(col, values, lengths, csr.shape, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR) -> int:
        """Return the bytes of :meth:`from_csr`, without converting."""
        rows = csr.shape[0]
        width = int(csr.row_lengths().max()) if rows else 0
        return rows * width * (index_dtype_for(*csr.shape).itemsize + csr.dtype.itemsize) + rows * 4

    def _to_csr(self) -> CSR:
        dtype = index_dtype_for(*self.shape, self.nnz)
        row_ptr = pointers_from_lengths(self.lengths, torch.int64)
        row = expand_pointers(row_ptr, self.nnz)
        places = rank_within_rows(row_ptr, row) * self.shape[0] + row
        col = narrow(self.col.reshape(-1).index_select(0, places), dtype)
        values = self.values.reshape(-1).index_select(0, places)
        return CSR(row_ptr.to(dtype), col, values, self.shape, validate=False)

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"col": self.col, "lengths": self.lengths}
