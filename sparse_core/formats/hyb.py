"""HYB: an ELL that is wide enough for most rows, and a COO for the rest."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.coo import COO
from sparse_core.formats.csr import CSR
from sparse_core.formats.ell import ELL
from sparse_core.formats.indexing import (
    concatenate,
    narrow,
    pointers_from_rows,
    rank_within_rows,
    true_positions,
)


class HYB(SparseMatrix):
    """Sum of an ELL and a COO (Bell and Garland, 2009).

    ``from_*`` choose the ELL's width so that 95 % of the rows fit (option ``quantile``), and store the other
    entries in the COO. Parts given to the constructor may overlap; overlapping entries add up.

    Args:
        ell: the regular part.
        coo: the rest; same dtype and device.
        shape: rows, columns of both.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(self, ell: ELL, coo: COO, shape: tuple[int, int], *, validate: bool = True) -> None:
        super().__init__(shape)
        if not isinstance(ell, ELL) or not isinstance(coo, COO):
            raise TypeError(f"HYB needs an ELL and a COO, got {type(ell).__name__} and {type(coo).__name__}")
        for name, part in (("ell", ell), ("coo", coo)):
            if part.shape != self.shape:
                raise ValueError(f"{name} has shape {part.shape}, expected {self.shape}")
        if coo.dtype != ell.dtype:
            raise TypeError(f"ell holds {ell.dtype} but coo holds {coo.dtype}: convert one with .to(dtype)")
        if coo.index_dtype != ell.index_dtype:
            raise TypeError(f"indices of ell are {ell.index_dtype} but those of coo are {coo.index_dtype}")
        if coo.device != ell.device:
            raise ValueError(f"ell is on {ell.device} but coo is on {coo.device}")
        self.ell = ell
        self.coo = coo
        self._check(validate)

    @property
    def values(self) -> Tensor:  # type: ignore[override]
        """Values of the ELL including padding, then those of the COO, (width * M + nnz of the COO,).

        This is a copy: change values with :meth:`with_values`.
        """
        return concatenate(self.ell.values.reshape(-1), self.coo.values)

    def _set_values(self, values: Tensor) -> None:
        split = self.ell.values.numel()
        self.ell = self.ell.with_values(values[:split].reshape(self.ell.values.shape))
        self.coo = self.coo.with_values(values[split:])

    def _value_tensors(self) -> tuple[Tensor, ...]:
        return self.ell.values, self.coo.values

    def _moved(self, device: torch.device) -> Self:
        return type(self)(self.ell.to(device), self.coo.to(device), self.shape, validate=False)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.ell.dtype

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.ell.device

    @property
    def nnz(self) -> int:
        """Number of stored entries of both parts, without padding."""
        return self.ell.nnz + self.coo.nnz

    def _nnz_known(self) -> bool:
        return self.ell._nnz_known()

    @property
    def T(self) -> HYB:
        """Transposed matrix, split again with the default quantile."""
        return HYB.from_csr(self._to_csr().T)

    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row, (M,) int64."""
        return self.ell.row_lengths() + self.coo.row_lengths()

    def validate(self) -> None:
        """Check both parts."""
        for name, part in (("ell", self.ell), ("coo", self.coo)):
            try:
                part.validate()
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None

    @classmethod
    def from_csr(cls, csr: CSR, *, quantile: float = 0.95) -> Self:  # type: ignore[override]
        """Convert from CSR.

        Args:
            csr: the matrix.
            quantile: share of the rows that fit into the ELL entirely, 0 to 1.
        """
        width = _width(csr.row_lengths(), quantile)
        row = csr.row_indices()
        inside = rank_within_rows(csr.row_ptr, row) < width
        kept, rest = true_positions(inside), true_positions(~inside)
        kept_rows = row.index_select(0, kept)
        row_ptr = pointers_from_rows(kept_rows, csr.shape[0])
        col, values = csr.col.index_select(0, kept), csr.values.index_select(0, kept)
        regular = CSR(row_ptr, col, values, csr.shape, validate=False)
        ell = ELL.from_csr(regular, width=width)
        coo = COO(
            narrow(row.index_select(0, rest), ell.index_dtype),
            narrow(csr.col.index_select(0, rest), ell.index_dtype),
            csr.values.index_select(0, rest),
            csr.shape,
            is_coalesced=True,
            validate=False,
        )
        return cls(ell, coo, csr.shape, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR, *, quantile: float = 0.95) -> int:
        """Return the bytes of :meth:`from_csr` with the same options, without converting."""
        rows = csr.shape[0]
        lengths = csr.row_lengths().long()
        width = _width(lengths, quantile)
        rest = int((lengths - width).clamp(min=0).sum())
        index = index_dtype_for(*csr.shape).itemsize
        value = csr.dtype.itemsize
        return rows * width * (index + value) + rows * 4 + rest * (2 * index + value)

    def _padding(self) -> Tensor:
        return torch.nn.functional.pad(self.ell._padding().reshape(-1), (0, self.coo.nnz))

    def _to_csr(self) -> CSR:
        regular = self.ell._to_csr()
        if self.coo.nnz == 0:
            return regular
        both = COO(
            torch.cat([regular.row_indices(), self.coo.row]),
            torch.cat([regular.col, self.coo.col]),
            concatenate(regular.values, self.coo.values),
            self.shape,
            validate=False,
        )
        return both._to_csr()

    def _index_tensors(self) -> dict[str, Tensor]:
        ell, coo = self.ell, self.coo
        return {"ell.col": ell.col, "ell.lengths": ell.lengths, "coo.row": coo.row, "coo.col": coo.col}


def _width(lengths: Tensor, quantile: float) -> int:
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must lie between 0 and 1, got {quantile}")
    rows = len(lengths)
    rows_inside = math.ceil(quantile * rows)
    return int(torch.sort(lengths).values[rows_inside - 1]) if rows_inside else 0
