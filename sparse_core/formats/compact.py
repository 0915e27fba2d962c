"""CompactCSR: 4 bytes per nonzero, a 16-bit column gap and a half-precision value."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import expand_pointers, narrow, pointers_from_rows
from sparse_core.formats.validation import (
    check_indices,
    check_pointers,
    check_range,
    check_rising,
    check_size,
    check_vector,
    first_true,
)
from sparse_core.kernels.autocast import without_autocast

#: Widest gap that 16 bits hold.
LARGEST_GAP = 65535
HALF_DTYPES = (torch.float16, torch.bfloat16)
#: Bits of -0.0 in either half type, read as int16.
_NEGATIVE_ZERO = -32768


class CompactCSR(SparseMatrix):
    """CSR with 16-bit column gaps and half-precision values, for memory-bound products.

    Row r starts with a cursor at column ``max(0, r + anchor_offset)``. Every stored entry moves the cursor by
    its gap (the unsigned bits of ``delta``) and lies there. ``anchor_offset`` lets rows of banded matrices
    start near their first entry. Fillers bridge gaps above 65535: they have gap 65535 and the value -0.0,
    which no entry has. Fillers are not entries and are never multiplied.

    Args:
        row_ptr: (M + 1,) int32 or int64, ascending from 0 to stored.
        delta: (stored,) int16 whose bits are an unsigned gap.
        values: (stored,) float16 or bfloat16.
        shape: rows, columns.
        anchor_offset: column minus row where the cursor starts.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        row_ptr: Tensor,
        delta: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        *,
        anchor_offset: int,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        _check_half(values)
        check_indices((*self.shape, values.numel()), values.device, row_ptr=row_ptr)
        if not isinstance(delta, Tensor) or delta.dtype != torch.int16:
            raise TypeError(f"delta must be an int16 tensor, got {getattr(delta, 'dtype', type(delta))}")
        if delta.device != values.device:
            raise ValueError(f"delta is on {delta.device} but values are on {values.device}")
        check_vector("values", values)
        check_size("delta", delta, (len(values),), "one gap per value")
        check_size("row_ptr", row_ptr, (self.shape[0] + 1,), "rows + 1")
        self.row_ptr = row_ptr
        self.delta = delta
        self.values = values
        self.anchor_offset = int(anchor_offset)
        self._check(validate)

    @property
    def fillers(self) -> int:
        """Number of fillers."""
        return self.cached("fillers", lambda: int(self._filler_mask().sum()))

    @property
    def nnz(self) -> int:
        """Number of stored entries without fillers; the first count waits for a CUDA device."""
        return len(self.delta) - self.fillers

    def _nnz_known(self) -> bool:
        return "fillers" in self._structure_cache

    def _filler_mask(self) -> Tensor:
        # Part of the structure although stored in the values, because with_values keeps the fillers.
        return self.cached("filler_mask", lambda: is_negative_zero(self.values))

    def with_values(self, values: Tensor) -> Self:
        """Return the same structure with other values.

        Fillers stay fillers and their new values are ignored; -0.0 elsewhere becomes 0.0.

        Args:
            values: (stored,) float16 or bfloat16, on the same device; may require grad.

        Raises:
            TypeError: another dtype.
            ValueError: another shape or device.
        """
        _check_half(values)
        return super().with_values(values)

    def _set_values(self, values: Tensor) -> None:
        if self.fillers:
            values = torch.where(self._filler_mask(), -0.0, values + 0.0)
        elif bool(is_negative_zero(values).any()):
            values = values + 0.0
        self.values = values

    @property
    def T(self) -> CompactCSR:
        """Transposed matrix, packed again."""
        return CompactCSR.from_csr(self._to_csr().T, dtype=self.dtype)

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row without fillers, (M,) of the index type."""
        lengths = self.row_ptr.diff()
        if not self.fillers:
            return lengths
        rows = expand_pointers(self.row_ptr, len(self.delta))
        return lengths.index_add(0, rows, -self._filler_mask().to(lengths.dtype))

    def validate(self) -> None:
        """Check pointers and fillers, and that columns are inside the matrix and ascend within a row."""
        check_pointers("row_ptr", self.row_ptr, len(self.delta))
        filler = self._filler_mask()
        at = first_true(filler & (self.delta != -1))
        if at is not None:
            raise ValueError(
                f"values[{at}] is -0.0, which marks a filler, but delta[{at}] is"
                f" {int(self.delta[at]) & LARGEST_GAP}, not {LARGEST_GAP} (store zeros as 0.0)"
            )
        if self._columns_are_sound():
            return
        column, rows = self._columns()
        entries = (~filler).nonzero().squeeze(1)
        column, rows = column.index_select(0, entries), rows.index_select(0, entries)
        check_range("column of entry", column, self.shape[1], lambda at: int(rows[at]))
        pointers = pointers_from_rows(rows, self.shape[0])
        check_rising("column of entry", column, pointers, "CompactCSR.from_coo sorts and sums duplicates")

    def _columns_are_sound(self) -> bool:
        # Fast check: every row ends inside the matrix and every gap after its first entry is positive.
        # Otherwise validate() checks each column, because fillers can make valid rows fail here.
        ends = self.row_ptr.long()
        stands = torch.nn.functional.pad(self.delta == 0, (0, 1)).index_fill_(0, ends, False)
        position = (self.delta.int() & LARGEST_GAP).cumsum(0, dtype=torch.int64)
        position = torch.nn.functional.pad(position, (1, 0)).index_select(0, ends).diff()
        start = (torch.arange(self.shape[0], device=self.device) + self.anchor_offset).clamp(min=0)
        beyond = (start + position >= self.shape[1]) & (ends.diff() > 0)
        return not bool(stands.any()) and not bool(beyond.any())

    def _columns(self) -> tuple[Tensor, Tensor]:
        # Cursor after each stored element (int64), and its row.
        rows = expand_pointers(self.row_ptr.long(), len(self.delta))
        gaps = self.delta.long() & LARGEST_GAP
        position = torch.nn.functional.pad(gaps.cumsum(0), (1, 0))
        before = position.index_select(0, self.row_ptr[:-1].long()).index_select(0, rows)
        start = (rows + self.anchor_offset).clamp(min=0)
        return start + position[1:] - before, rows

    @classmethod
    def from_csr(cls, csr: CSR, *, dtype: torch.dtype = torch.float16) -> Self:  # type: ignore[override]
        """Convert from CSR; values are rounded to ``dtype``.

        Args:
            csr: a real matrix.
            dtype: ``torch.float16`` or ``torch.bfloat16``.

        Raises:
            TypeError: complex values, or another dtype.
            ValueError: a finite value overflows ``dtype``.
        """
        values = _round_values(csr, dtype)
        anchor, gaps = _gaps(csr)
        fillers = _fillers_before(gaps)
        # Fillers precede the entry whose gap they bridge.
        places = torch.arange(csr.nnz, device=csr.device) + fillers.cumsum(0)
        added = torch.nn.functional.pad(fillers.cumsum(0), (1, 0))
        stored = csr.nnz + int(added[-1])
        row_ptr = csr.row_ptr.long() + added.index_select(0, csr.row_ptr.long())
        rest = gaps - fillers * LARGEST_GAP
        rest = torch.where(rest > LARGEST_GAP // 2, rest - (LARGEST_GAP + 1), rest).to(torch.int16)
        delta = torch.full((stored,), -1, dtype=torch.int16, device=csr.device).index_copy_(0, places, rest)
        filled = _fill(torch.full((stored,), -0.0, dtype=dtype, device=csr.device), places, values)
        index = index_dtype_for(*csr.shape, stored)
        return cls(row_ptr.to(index), delta, filled, csr.shape, anchor_offset=anchor, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR) -> int:
        """Return the bytes of :meth:`from_csr`, without converting."""
        _check_real(csr)
        stored = csr.nnz + int(_fillers_before(_gaps(csr)[1]).sum())
        return (csr.shape[0] + 1) * index_dtype_for(*csr.shape, stored).itemsize + stored * 4

    def _to_csr(self) -> CSR:
        dtype = index_dtype_for(*self.shape, len(self.delta))
        column, rows = self._columns()
        if not self.fillers:
            row_ptr, column = self.row_ptr.to(dtype), narrow(column, dtype)
            return CSR(row_ptr, column, self.values, self.shape, validate=False)
        kept = (~self._filler_mask()).nonzero().squeeze(1)
        row_ptr = pointers_from_rows(rows.index_select(0, kept).to(dtype), self.shape[0])
        column = narrow(column.index_select(0, kept), dtype)
        return CSR(row_ptr, column, self.values.index_select(0, kept), self.shape, validate=False)

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"row_ptr": self.row_ptr, "delta": self.delta}


@without_autocast
def _fill(fillers: Tensor, places: Tensor, values: Tensor) -> Tensor:
    # Autocast on a CPU rejects float16.
    return fillers.index_copy(0, places, values)


def is_negative_zero(values: Tensor) -> Tensor:
    """Return True for each half-precision value with the bits of -0.0."""
    return values.detach().contiguous().view(torch.int16) == _NEGATIVE_ZERO


def _check_half(values: Tensor) -> None:
    if not isinstance(values, Tensor) or values.dtype not in HALF_DTYPES:
        raise TypeError(
            f"CompactCSR holds float16 or bfloat16 values, got {getattr(values, 'dtype', type(values))}"
            " (x.to(CSR) holds every type)"
        )


def _check_real(csr: CSR) -> None:
    if csr.dtype.is_complex:
        raise TypeError(f"CompactCSR holds real values, got {csr.dtype}")


def _round_values(csr: CSR, dtype: torch.dtype) -> Tensor:
    _check_real(csr)
    if dtype not in HALF_DTYPES:
        raise TypeError(f"dtype must be torch.float16 or torch.bfloat16, got {dtype}")
    # Adding zero turns -0.0, the mark of fillers, into 0.0.
    values = csr.values.to(dtype) + 0.0
    at = first_true(values.detach().isinf() & csr.values.detach().isfinite())
    if at is not None:
        fix = "use dtype=torch.bfloat16" if dtype == torch.float16 else "scale the matrix"
        raise ValueError(f"values[{at}] = {csr.values.detach()[at].item():g} overflows {dtype}: {fix}")
    return values


def _gaps(csr: CSR) -> tuple[int, Tensor]:
    # anchor_offset, and the gap of each entry to the one before it or to the row's start.
    rows, col = csr.row_indices().long(), csr.col.long()
    if csr.nnz == 0:
        return 0, col
    is_first = torch.ones(csr.nnz, dtype=torch.bool, device=csr.device)
    is_first[1:] = rows[1:] != rows[:-1]
    highest = torch.iinfo(torch.int64).max
    anchor = int(torch.where(is_first, col - rows, highest).min())
    start = (rows + anchor).clamp(min=0)
    return anchor, torch.where(is_first, col - start, col - col.roll(1))


def _fillers_before(gaps: Tensor) -> Tensor:
    return torch.div((gaps - 1).clamp(min=0), LARGEST_GAP, rounding_mode="floor")
