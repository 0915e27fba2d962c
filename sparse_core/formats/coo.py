"""COO: one row and one column index per entry, in any order, duplicates allowed."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.assemble import assemble_csr
from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import narrow, pointers_from_rows, scatter_values, to_numpy
from sparse_core.formats.validation import (
    check_indices,
    check_range,
    check_size,
    check_values_dtype,
    check_vector,
    first_true,
)


class COO(SparseMatrix):
    """Coordinates: entry i is ``values[i]`` at (``row[i]``, ``col[i]``); duplicates add up.

    Args:
        row, col: (nnz,) int32 or int64, both of one type.
        values: (nnz,) floating point or complex.
        shape: rows, columns.
        is_coalesced: True if the entries are sorted by (row, col) without duplicates, False if not, None if
            unknown.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        row: Tensor,
        col: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        *,
        is_coalesced: bool | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        check_values_dtype(values)
        check_indices(self.shape, values.device, row=row, col=col)
        check_vector("values", values)
        for name, array in (("row", row), ("col", col)):
            check_size(name, array, (len(values),), "one index per value")
        self.row = row
        self.col = col
        self.values = values
        self.is_coalesced = is_coalesced
        self._check(validate)

    @property
    def nnz(self) -> int:
        """Number of stored entries, including duplicates."""
        return len(self.row)

    @property
    def T(self) -> Self:
        """Transposed matrix; the order of the entries stays."""
        clone = self._clone()
        clone._structure_cache = {}
        clone.shape = (self.shape[1], self.shape[0])
        clone.row, clone.col = self.col, self.row
        clone.is_coalesced = None if self.nnz > 1 else self.is_coalesced
        return clone

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row, including duplicates, (M,) int64."""
        return torch.bincount(self.row, minlength=self.shape[0])

    def validate(self) -> None:
        """Check that indices are inside ``shape`` and that ``is_coalesced=True`` is correct."""
        check_range("row", self.row, self.shape[0])
        check_range("col", self.col, self.shape[1], lambda at: int(self.row[at]))
        if not self.is_coalesced:
            return
        at = first_true(_not_after(self.row, self.col))
        if at is not None:
            raise ValueError(
                f"is_coalesced=True, but entry {at + 1} at ({int(self.row[at + 1])}, {int(self.col[at + 1])})"
                f" comes after entry {at} at ({int(self.row[at])}, {int(self.col[at])}):"
                " entries must rise by (row, col) without duplicates (coalesce() sorts and sums)"
            )

    def coalesce(self) -> COO:
        """Sort by (row, col) and sum duplicates in input order, on any device.

        Half types are summed in float32 and rounded once. Zeros and NaN are kept.
        """
        if self.is_coalesced:
            return self
        csr = self._to_csr()
        return COO(csr.row_indices(), csr.col, csr.values, self.shape, is_coalesced=True, validate=False)

    def sort(self, by: Literal["row", "morton"] = "row") -> COO:
        """Return the same entries in another order; duplicates stay, in input order.

        Args:
            by: ``"row"`` sorts by (row, col). ``"morton"`` sorts along the Z curve (G. M. Morton, 1966),
                whose code interleaves the bits of row (higher) and column, so that nearby entries are close
                in memory.

        Raises:
            ValueError: another name, or ``"morton"`` with a dimension above 2^31.
        """
        if by == "row":
            if self.is_coalesced:
                return self
            # Two stable sorts: a linear key of row and column could overflow 64 bits.
            order = torch.argsort(self.col, stable=True)
            order = order[torch.argsort(self.row[order], stable=True)]
        elif by == "morton":
            order = torch.argsort(morton_codes(self.row, self.col, self.shape), stable=True)
        else:
            raise ValueError(f'by must be "row" or "morton", got {by!r}')
        values = self.values.index_select(0, order)
        # Duplicates may remain, so is_coalesced stays unknown.
        return COO(self.row[order], self.col[order], values, self.shape, validate=False)

    @classmethod
    def from_csr(cls, csr: CSR, **options: Any) -> Self:
        """Convert from CSR; takes no options."""
        if options:
            raise TypeError(f"{cls.__name__} takes no options, got {sorted(options)}")
        dtype = index_dtype_for(csr.nnz, *csr.shape)
        row, col = narrow(csr.row_indices(), dtype), narrow(csr.col, dtype)
        return cls(row, col, csr.values, csr.shape, is_coalesced=True, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR) -> int:
        """Return the bytes of :meth:`from_csr`, without converting."""
        index = index_dtype_for(csr.nnz, *csr.shape).itemsize
        return csr.nnz * (2 * index + csr.dtype.itemsize)

    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor; duplicates are summed as in :meth:`coalesce`."""
        matrix = self.coalesce()
        rows, columns = self.shape
        places = matrix.row.long() * columns + matrix.col
        return scatter_values(matrix.values, places, rows * columns).reshape(rows, columns)

    def to_scipy(self) -> Any:
        """Convert to ``scipy.sparse.coo_array``, with duplicates; half types become float32."""
        import scipy.sparse

        parts = (to_numpy(self.values), (to_numpy(self.row), to_numpy(self.col)))
        array = scipy.sparse.coo_array(parts, shape=self.shape)
        array.has_canonical_format = bool(self.is_coalesced)
        return array

    def to_torch(self) -> Tensor:
        """Convert to ``torch.sparse_coo``; duplicates stay."""
        indices = torch.stack([self.row, self.col]).long()
        coalesced = True if self.is_coalesced else None
        return torch.sparse_coo_tensor(
            indices, self.values, self.shape, is_coalesced=coalesced, check_invariants=False
        )

    def _to_csr(self) -> CSR:
        if self.is_coalesced:
            row_ptr, col = self.cached("csr", self._compress)
            return CSR(row_ptr, col, self.values, self.shape, validate=False)
        row, col = self._narrow_indices()
        return CSR(*assemble_csr(row, col, self.values, self.shape), self.shape, validate=False)

    def _compress(self) -> tuple[Tensor, Tensor]:
        row, col = self._narrow_indices()
        return pointers_from_rows(row, self.shape[0]), col

    def _narrow_indices(self) -> tuple[Tensor, Tensor]:
        dtype = index_dtype_for(self.nnz, *self.shape)
        return narrow(self.row, dtype), narrow(self.col, dtype)

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"row": self.row, "col": self.col}


def _not_after(row: Tensor, col: Tensor) -> Tensor:
    # (nnz - 1,) bool, True where entry i + 1 does not come after entry i by (row, col).
    same = row[1:] == row[:-1]
    return (row[1:] < row[:-1]).logical_or_(same.logical_and_(col[1:] <= col[:-1]))


def are_sorted(row: Tensor, col: Tensor) -> bool:
    """True if entries are sorted by (row, col) without duplicates."""
    return not bool(_not_after(row, col).any())


def morton_codes(row: Tensor, col: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return the position of each (row, col) along the Z curve: (nnz,) int64, row bits above column bits."""
    if max(shape) > 2**31:
        raise ValueError(f"Morton order supports dimensions up to 2^31, got shape {shape}")
    return (_spread_bits(row.long()) << 1) | _spread_bits(col.long())


def _spread_bits(numbers: Tensor) -> Tensor:
    # Move bit i to bit 2 i, halving the distance at every step.
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        numbers = (numbers | (numbers << shift)) & mask
    return numbers
