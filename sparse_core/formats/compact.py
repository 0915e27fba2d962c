"""CompactCSR: 4 bytes a nonzero, a 16-bit column gap and a half-precision value."""

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
    """CSR with column gaps in 16 bits and half-precision values, for work that waits for memory.

    Row r starts with the cursor at column ``max(0, r + anchor_offset)``; every stored entry moves it on by
    its gap (the bits of ``delta``, unsigned) and lies there. ``anchor_offset`` lets banded matrices start
    close to their first entry. A gap above 65535 is bridged by fillers: gap 65535 and the value -0.0, which
    only fillers have. Fillers move the cursor; they are not entries and are never multiplied.

    Args:
        row_ptr: (M + 1,) int32 or int64, from 0 to stored, never falling.
        delta: (stored,) int16 whose bits are an unsigned gap.
        values: (stored,) float16 or bfloat16.
        shape: rows, columns.
        anchor_offset: column minus row where the cursor starts.
        validate: check every element; see :meth:`SparseMatrix.validate` for what False promises.

    Attributes:
        row_ptr, delta, values, shape, anchor_offset: as given.

    Raises:
        TypeError: wrong dtypes.
        ValueError: wrong shapes or devices, or a wrong element.
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
        check_size("delta", delta, (len(values),), "one gap a value")
        check_size("row_ptr", row_ptr, (self.shape[0] + 1,), "rows + 1")
        self.row_ptr = row_ptr
        self.delta = delta
        self.values = values
        self.anchor_offset = int(anchor_offset)
        self._check(validate)

    @property
    def fillers(self) -> int:
        """Stored places that only bridge a wide gap."""
        return self.cached("fillers", lambda: int(self._filler_mask().sum()))

    @property
    def nnz(self) -> int:
        """Stored entries; fillers are not counted (they are found once; waits for a CUDA device then)."""
        return len(self.delta) - self.fillers

    def _nnz_known(self) -> bool:
        return "fillers" in self._structure_cache

    def _filler_mask(self) -> Tensor:
        # Of the structure, although it is read off the values: with_values keeps fillers where they are.
        return self.cached("filler_mask", lambda: is_negative_zero(self.values))

    def with_values(self, values: Tensor) -> Self:
        """The same structure with other values.

        Fillers stay fillers whatever ``values`` holds in their places, and -0.0 elsewhere becomes 0.0.

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
        """The transposed matrix, packed anew."""
        return CompactCSR.from_csr(self._to_csr().T, dtype=self.dtype)

    def row_lengths(self) -> Tensor:
        """(M,) of the index type, stored entries of each row without fillers."""
        lengths = self.row_ptr.diff()
        if not self.fillers:
            return lengths
        rows = expand_pointers(self.row_ptr, len(self.delta))
        return lengths.index_add(0, rows, -self._filler_mask().to(lengths.dtype))

    def validate(self) -> None:
        """Check pointers, fillers and that columns lie inside the matrix and rise within a row.

        Raises:
            ValueError: names array and position.
        """
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
        # Whether every row ends inside the matrix and moves on with each entry after its first. A filler
        # where no entry follows, or an entry right behind one, needs the closer look of validate().
        ends = self.row_ptr.long()
        stands = torch.nn.functional.pad(self.delta == 0, (0, 1)).index_fill_(0, ends, False)
        travelled = (self.delta.int() & LARGEST_GAP).cumsum(0, dtype=torch.int64)
        travelled = torch.nn.functional.pad(travelled, (1, 0)).index_select(0, ends).diff()
        start = (torch.arange(self.shape[0], device=self.device) + self.anchor_offset).clamp(min=0)
        beyond = (start + travelled >= self.shape[1]) & (ends.diff() > 0)
        return not bool(stands.any()) and not bool(beyond.any())

    def _columns(self) -> tuple[Tensor, Tensor]:
        # Cursor after each stored place (int64) and row of each.
        rows = expand_pointers(self.row_ptr.long(), len(self.delta))
        gaps = self.delta.long() & LARGEST_GAP
        travelled = torch.nn.functional.pad(gaps.cumsum(0), (1, 0))
        before = travelled.index_select(0, self.row_ptr[:-1].long()).index_select(0, rows)
        start = (rows + self.anchor_offset).clamp(min=0)
        return start + travelled[1:] - before, rows

    @classmethod
    def from_csr(cls, csr: CSR, *, dtype: torch.dtype = torch.float16) -> Self:  # type: ignore[override]
        """Convert from CSR; values are rounded to ``dtype``.

        Args:
            csr: a real matrix.
            dtype: ``torch.float16`` or ``torch.bfloat16``.

        Raises:
            TypeError: complex values, or another dtype.
            ValueError: a finite value that ``dtype`` cannot hold.
        """
        values = _round_values(csr, dtype)
        anchor, gaps = _gaps(csr)
        fillers = _fillers_before(gaps)
        # Fillers come right before the entry whose gap they bridge.
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
        """Bytes that ``from_csr`` would take, without converting.

        Raises:
            TypeError: complex values.
        """
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
    # Autocast on a CPU would refuse float16.
    return fillers.index_copy(0, places, values)


def is_negative_zero(values: Tensor) -> Tensor:
    """Whether each half-precision value has the bits of -0.0."""
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
    # anchor_offset, and how far each entry is from the one before it or, if first, from the row's start.
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
