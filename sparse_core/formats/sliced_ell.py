"""SlicedELL: rows in slices, each slice padded to its own width (SELL-C-sigma)."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    ceil_div,
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
    check_pointers,
    check_range,
    check_rising,
    check_size,
    check_values_dtype,
    check_vector,
    first_true,
    row_finder,
)


class SlicedELL(SparseMatrix):
    """Slices of ``slice_height`` rows, each as wide as its longest row (Kreutzer et al., SELL-C-sigma, 2014).

    Entry k of local row r of slice s is at ``slice_ptr[s] + k * slice_height + r`` of ``col`` and ``values``.
    Padding (column 0, value 0) is never used, not even multiplied. With ``row_order``, stored row i is row
    ``row_order[i]`` of the matrix, so that a slice holds rows of similar length. The last slice is padded
    with empty rows.

    Args:
        slice_ptr: (slices + 1,) int32 or int64, multiples of ``slice_height``, ascending from 0 to stored.
        col: (stored,) of the same type, strictly ascending along a row's entries.
        values: (stored,) floating point or complex.
        lengths: (M,) int32, entries of each row, in stored order.
        shape: rows, columns.
        slice_height: rows per slice.
        row_order: (M,) of the type of ``col``, a permutation of the rows; None for matrix order.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        slice_ptr: Tensor,
        col: Tensor,
        values: Tensor,
        lengths: Tensor,
        shape: tuple[int, int],
        *,
        slice_height: int = 32,
        row_order: Tensor | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        check_values_dtype(values)
        arrays = {"slice_ptr": slice_ptr, "col": col}
        if row_order is not None:
            arrays["row_order"] = row_order
        check_indices((*self.shape, values.numel()), values.device, **arrays)
        check_lengths(lengths, self.shape[0], values.device)
        check_vector("values", values)
        check_size("col", col, (len(values),), "one column per value")
        if slice_height < 1:
            raise ValueError(f"slice_height must be at least 1, got {slice_height}")
        slices = ceil_div(self.shape[0], slice_height)
        check_size("slice_ptr", slice_ptr, (slices + 1,), "slices + 1")
        if row_order is not None:
            check_size("row_order", row_order, (self.shape[0],), "one matrix row per stored row")
        self.slice_ptr = slice_ptr
        self.col = col
        self.values = values
        self.lengths = lengths
        self.slice_height = slice_height
        self.row_order = row_order
        self._check(validate)

    @property
    def nnz(self) -> int:
        """Number of stored entries without padding; the first count waits for a CUDA device."""
        return self.cached("nnz", lambda: int(self.lengths.sum()))

    def _nnz_known(self) -> bool:
        return "nnz" in self._structure_cache

    @property
    def T(self) -> SlicedELL:
        """Transposed matrix with this slice height; sorted by length if this matrix has a row order."""
        window = self.shape[1] if self.row_order is not None else 1
        return SlicedELL.from_csr(
            self._to_csr().T, slice_height=self.slice_height, sort_window=max(window, 1)
        )

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row in matrix order, (M,) int32."""
        if self.row_order is None:
            return self.lengths
        return torch.empty_like(self.lengths).index_copy_(0, self.row_order.long(), self.lengths)

    def validate(self) -> None:
        """Check slices, lengths, row order, columns (range and order) and that padding is zero."""
        check_pointers("slice_ptr", self.slice_ptr, len(self.values))
        widths = self.slice_ptr.diff()
        at = first_true(widths % self.slice_height != 0)
        if at is not None:
            raise ValueError(
                f"slice {at} holds {int(widths[at])} places, not a multiple of"
                f" slice_height={self.slice_height}"
            )
        room = torch.div(widths, self.slice_height, rounding_mode="floor")
        room = room.repeat_interleave(self.slice_height)[: self.shape[0]]
        at = first_true((self.lengths < 0) | (self.lengths > room))
        if at is not None:
            raise ValueError(f"lengths[{at}] is {int(self.lengths[at])}, outside 0..{int(room[at])}")
        if self.row_order is not None:
            self._validate_order(self.row_order)
        if self._columns_are_sound():
            return
        places, row_ptr = self._entry_places()
        col = self.col.index_select(0, places)
        check_range("entries of col", col, self.shape[1], row_finder(row_ptr))
        advice = "SlicedELL.from_coo sorts and sums duplicates"
        check_rising("entries of col", col, row_ptr, advice, "stored row")
        padding = self._padding()
        check_padding("values", self.values, padding)
        check_padding("col", self.col, padding)

    def _padding(self) -> Tensor:
        padding = torch.ones(len(self.col), dtype=torch.bool, device=self.device)
        return padding.index_fill_(0, self._entry_places()[0], False)

    def _columns_are_sound(self) -> bool:
        # Fast check by lines of one entry per row of a slice; validate() finds the wrong element.
        height, columns = self.slice_height, self.shape[1]
        if len(self.col) == 0:
            return True
        low, high = torch.aminmax(self.col)
        if int(low) < 0 or int(high) >= columns:
            return False
        first = torch.div(self.slice_ptr, height, rounding_mode="floor")
        col = self.col.reshape(-1, height)
        slice_of = expand_pointers(first, len(col))
        step = torch.arange(len(col), dtype=first.dtype, device=self.device)
        step -= first.index_select(0, slice_of)
        lengths = torch.nn.functional.pad(self.lengths, (0, (len(first) - 1) * height - self.shape[0]))
        padding = lengths.reshape(-1, height).index_select(0, slice_of) <= step[:, None]
        falls = (col[1:] <= col[:-1]) & ~padding[1:] & (step[1:, None] > 0)
        stored = (col != 0) | (self.values.detach().reshape(-1, height) != 0)
        return not bool(falls.any()) and not bool((stored & padding).any())

    def _validate_order(self, order: Tensor) -> None:
        check_range("row_order", order, self.shape[0])
        ranked, by_row = torch.sort(order, stable=True)
        at = first_true(ranked[1:] == ranked[:-1])
        if at is not None:
            raise ValueError(
                f"row_order[{int(by_row[at + 1])}] repeats row {int(ranked[at])} of"
                f" row_order[{int(by_row[at])}]: it must be a permutation"
            )

    def _entry_places(self) -> tuple[Tensor, Tensor]:
        # Flat positions of the entries in stored order, and row pointers into them.
        row_ptr = pointers_from_lengths(self.lengths, torch.int64)
        row = expand_pointers(row_ptr, self.nnz)
        places = _places(self.slice_ptr, row, rank_within_rows(row_ptr, row), self.slice_height)
        return places, row_ptr

    @classmethod
    def from_csr(  # type: ignore[override]
        cls, csr: CSR, *, slice_height: int = 32, sort_window: int = 1
    ) -> Self:
        """Convert from CSR.

        Args:
            csr: the matrix.
            slice_height: rows per slice.
            sort_window: sort rows by descending length within windows of this many rows; 1 keeps their order.
        """
        row_order, lengths, widths = _plan_slices(csr, slice_height, sort_window)
        padded = int(widths.sum()) * slice_height
        dtype = index_dtype_for(*csr.shape, padded)
        slice_ptr = pointers_from_lengths(widths * slice_height, dtype)
        row = csr.row_indices().long()
        rank = rank_within_rows(csr.row_ptr, row)
        if row_order is not None:
            row = _inverse(row_order).index_select(0, row)
        places = _places(slice_ptr, row, rank, slice_height)
        return cls(
            slice_ptr,
            scatter_values(narrow(csr.col, dtype), places, padded),
            scatter_values(csr.values, places, padded),
            lengths.to(torch.int32),
            csr.shape,
            slice_height=slice_height,
            row_order=None if row_order is None else row_order.to(dtype),
            validate=False,
        )

    @staticmethod
    def planned_nbytes(csr: CSR, *, slice_height: int = 32, sort_window: int = 1) -> int:
        """Return the bytes of :meth:`from_csr` with the same options, without converting."""
        row_order, _, widths = _plan_slices(csr, slice_height, sort_window)
        padded = int(widths.sum()) * slice_height
        index = index_dtype_for(*csr.shape, padded).itemsize
        ordered = 0 if row_order is None else len(row_order)
        stored = padded * (index + csr.dtype.itemsize)
        return stored + (len(widths) + 1 + ordered) * index + csr.shape[0] * 4

    def _to_csr(self) -> CSR:
        dtype = index_dtype_for(*self.shape, self.nnz)
        row_ptr = pointers_from_lengths(self.row_lengths(), torch.int64)
        row = expand_pointers(row_ptr, self.nnz)
        rank = rank_within_rows(row_ptr, row)
        if self.row_order is not None:
            row = _inverse(self.row_order.long()).index_select(0, row)
        places = _places(self.slice_ptr, row, rank, self.slice_height)
        col = narrow(self.col.index_select(0, places), dtype)
        values = self.values.index_select(0, places)
        return CSR(row_ptr.to(dtype), col, values, self.shape, validate=False)

    def _index_tensors(self) -> dict[str, Tensor]:
        arrays = {"slice_ptr": self.slice_ptr, "col": self.col, "lengths": self.lengths}
        return arrays if self.row_order is None else {**arrays, "row_order": self.row_order}


def _places(slice_ptr: Tensor, row: Tensor, rank: Tensor, height: int) -> Tensor:
    # Flat position of entry ``rank`` of stored row ``row``.
    start = slice_ptr.long().index_select(0, torch.div(row, height, rounding_mode="floor"))
    return start + rank * height + row % height


def _inverse(order: Tensor) -> Tensor:
    return torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))


def _plan_slices(csr: CSR, height: int, window: int) -> tuple[Tensor | None, Tensor, Tensor]:
    # Order of the rows (None for matrix order), their lengths in that order, and the width of each slice.
    if height < 1:
        raise ValueError(f"slice_height must be at least 1, got {height}")
    if window < 1:
        raise ValueError(f"sort_window must be at least 1, got {window}")
    rows = csr.shape[0]
    lengths = csr.row_lengths().long()
    order = None
    if window > 1:
        order = torch.argsort(lengths, descending=True, stable=True)
        if window < rows:
            by_window = torch.argsort(torch.div(order, window, rounding_mode="floor"), stable=True)
            order = order.index_select(0, by_window)
        lengths = lengths.index_select(0, order)
    slices = ceil_div(rows, height)
    padded = torch.nn.functional.pad(lengths, (0, slices * height - rows)).reshape(slices, height)
    widths = padded.amax(dim=1) if slices else lengths
    return order, lengths, widths
