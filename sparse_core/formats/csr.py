"""CSR: the entries of each row in sequence, columns ascending; all conversions go through it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.indexing import (
    expand_pointers,
    pointers_from_rows,
    scatter_values,
    to_numpy,
    transpose_structure,
    true_positions,
)
from sparse_core.formats.validation import (
    check_indices,
    check_pointers,
    check_range,
    check_rising,
    check_size,
    check_values_dtype,
    check_vector,
    row_finder,
)


class CSR(SparseMatrix):
    """Compressed sparse rows: row r holds entries ``row_ptr[r]`` to ``row_ptr[r + 1] - 1``.

    Args:
        row_ptr: (M + 1,) int32 or int64, ascending from 0 to nnz.
        col: (nnz,) of the same type, strictly ascending within a row.
        values: (nnz,) floating point or complex.
        shape: rows, columns.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        row_ptr: Tensor,
        col: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        *,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        check_values_dtype(values)
        check_indices((*self.shape, values.numel()), values.device, row_ptr=row_ptr, col=col)
        check_vector("values", values)
        check_size("col", col, (len(values),), "one column per value")
        check_size("row_ptr", row_ptr, (self.shape[0] + 1,), "rows + 1")
        self.row_ptr = row_ptr
        self.col = col
        self.values = values
        self._check(validate)

    @property
    def nnz(self) -> int:
        """Number of stored entries, including explicit zeros."""
        return len(self.col)

    @property
    def T(self) -> CSR:
        """Transposed matrix as CSR; its order is cached per structure."""
        row_ptr, col, order, cache = self.cached("transpose", self._plan_transpose)
        values = self.values.index_select(0, order)
        transposed = CSR(row_ptr, col, values, (self.shape[1], self.shape[0]), validate=False)
        transposed._structure_cache = cache
        return transposed

    def transpose_order(self) -> Tensor:
        """Return the entry of this matrix for each entry of ``.T``, (nnz,) of the index type."""
        return self.cached("transpose", self._plan_transpose)[2]

    def _plan_transpose(self) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        return (*transpose_structure(self.row_ptr, self.col, self.shape[1]), {})

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row, (M,) of the index type."""
        return self.row_ptr.diff()

    def row_indices(self) -> Tensor:
        """Return the row of each entry, (nnz,) of the index type; cached."""
        return self.cached("row_indices", lambda: expand_pointers(self.row_ptr, self.nnz))

    def validate(self) -> None:
        """Check that ``row_ptr`` ascends and that columns are inside ``shape`` and ascend within rows."""
        check_pointers("row_ptr", self.row_ptr, self.nnz)
        check_range("col", self.col, self.shape[1], row_finder(self.row_ptr))
        check_rising("col", self.col, self.row_ptr, "CSR.from_coo sorts and sums duplicates")

    def without_zeros(self) -> CSR:
        """Drop entries of value 0 (NaN stays)."""
        kept = true_positions(self.values.detach().ne(0))
        rows = self.row_indices().index_select(0, kept)
        row_ptr = pointers_from_rows(rows, self.shape[0])
        col, values = self.col.index_select(0, kept), self.values.index_select(0, kept)
        return CSR(row_ptr, col, values, self.shape, validate=False)

    @classmethod
    def from_csr(cls, csr: CSR, **options: Any) -> Self:
        """Return the matrix itself; takes no options."""
        if options:
            raise TypeError(f"{cls.__name__} takes no options, got {sorted(options)}")
        if isinstance(csr, cls):
            return csr
        return cls(csr.row_ptr, csr.col, csr.values, csr.shape, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR) -> int:
        """Return the bytes of the matrix with the narrowest indices."""
        index = index_dtype_for(csr.nnz, *csr.shape).itemsize
        return (csr.shape[0] + 1 + csr.nnz) * index + csr.nnz * csr.dtype.itemsize

    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor."""
        rows, columns = self.shape
        places = expand_pointers(self.row_ptr.long(), self.nnz) * columns + self.col
        return scatter_values(self.values, places, rows * columns).reshape(rows, columns)

    def to_scipy(self) -> Any:
        """Convert to ``scipy.sparse.csr_array``; half types become float32."""
        import scipy.sparse

        parts = (to_numpy(self.values), to_numpy(self.col), to_numpy(self.row_ptr))
        return scipy.sparse.csr_array(parts, shape=self.shape)

    def to_torch(self) -> Tensor:
        """Convert to ``torch.sparse_csr``; shares memory."""
        with warnings.catch_warnings():
            # torch warns once that its CSR support is in beta.
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(
                self.row_ptr, self.col, self.values, size=self.shape, check_invariants=False
            )

    def _to_csr(self) -> CSR:
        return self

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"row_ptr": self.row_ptr, "col": self.col}
