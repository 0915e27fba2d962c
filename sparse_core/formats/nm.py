"""NM: n slots in every group of m columns, the packed form of N:M sparsity."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import ceil_div, pointers_from_lengths, scatter_values
from sparse_core.formats.validation import (
    check_range,
    check_size,
    check_values_dtype,
    first_true,
    require_dense,
)


class NM(SparseMatrix):
    """Packed N:M sparsity: ``values[r, g, s]`` lies in row r, column ``g * m + index[r, g, s]``.

    Every group of m neighbouring columns of a row has exactly n slots. An empty slot has the value 0 and any
    free position, so it looks like an entry of value 0: all slots inside the matrix count as entries, and
    conversions keep them. The last group may extend beyond the matrix; slots there are never used.

    Args:
        values: (M, G, n) floating point or complex, G = ceil(columns / m).
        index: (M, G, n) uint8, position within the group, 0..m - 1, strictly ascending.
        shape: rows, columns.
        n: slots per group.
        m: columns per group, at most 256.
        validate: check every element; see :meth:`SparseMatrix.validate`.
    """

    def __init__(
        self,
        values: Tensor,
        index: Tensor,
        shape: tuple[int, int],
        *,
        n: int,
        m: int,
        validate: bool = True,
    ) -> None:
        super().__init__(shape)
        check_pattern(n, m)
        check_values_dtype(values)
        if not isinstance(index, Tensor) or index.dtype != torch.uint8:
            raise TypeError(f"index must be a uint8 tensor, got {getattr(index, 'dtype', type(index))}")
        if index.device != values.device:
            raise ValueError(f"index is on {index.device} but values are on {values.device}")
        expected = (self.shape[0], ceil_div(self.shape[1], m), n)
        check_size("values", values, expected, "rows x groups x n")
        check_size("index", index, expected, "rows x groups x n")
        self.values = values
        self.index = index
        self.n = n
        self.m = m
        self._check(validate)

    @property
    def groups(self) -> int:
        """Groups per row."""
        return self.index.shape[1]

    @property
    def index_dtype(self) -> torch.dtype:
        """Index type of conversions; ``index`` itself is uint8."""
        return index_dtype_for(*self.shape, self.index.numel())

    @property
    def _is_partial(self) -> bool:
        return self.shape[1] % self.m != 0

    @property
    def nnz(self) -> int:
        """Number of slots inside the matrix; the first count may wait for a CUDA device."""
        if not self._is_partial:
            return self.index.numel()
        return self.cached("nnz", lambda: int(self._inside().sum()))

    def _nnz_known(self) -> bool:
        return not self._is_partial or "nnz" in self._structure_cache

    def _columns(self) -> Tensor:
        start = torch.arange(self.groups, device=self.device)[:, None] * self.m
        return start + self.index

    def _inside(self) -> Tensor:
        return self._columns() < self.shape[1]

    def _padding(self) -> Tensor | None:
        return ~self._inside() if self._is_partial else None

    @property
    def T(self) -> NM:
        """Transposed matrix with the same n and m, without slots of value 0.

        Raises:
            ValueError: a group of the transposed matrix has more than n nonzeros, which is usual, because N:M
                sparsity is a property of rows. ``x.to(CSR).T`` always works.
        """
        try:
            return NM.from_csr(self._to_csr().without_zeros().T, n=self.n, m=self.m)
        except ValueError as error:
            message = f"the transposed matrix is not {self.n}:{self.m} sparse ({error}); use x.to(CSR).T"
            raise ValueError(message) from None

    def row_lengths(self) -> Tensor:
        """Return the slots of each row inside the matrix, (M,) int64."""
        return self._inside().sum(dim=(1, 2))

    def validate(self) -> None:
        """Check positions (range and order) and that slots outside the matrix are zero."""
        check_range("index", self.index, self.m)
        at = first_true(self.index[..., 1:] <= self.index[..., :-1]) if self.n > 1 else None
        if at is not None:
            group, slot = divmod(at, self.n - 1)
            row, group = divmod(group, self.groups)
            current, before = int(self.index[row, group, slot + 1]), int(self.index[row, group, slot])
            raise ValueError(
                f"index[{row}, {group}, {slot + 1}] = {current} comes after {before}:"
                " positions must rise within a group"
            )
        if not self._is_partial:
            return
        # Only the last group can extend beyond the matrix.
        values = self.values.detach()[:, -1]
        at = first_true((self.index[:, -1] >= self.shape[1] % self.m) & (values != 0))
        if at is not None:
            row, slot = divmod(at, self.n)
            raise ValueError(
                f"values[{row}, {self.groups - 1}, {slot}] lies outside the {self.shape[0]}x{self.shape[1]}"
                " matrix and must be 0"
            )

    @classmethod
    def from_csr(cls, csr: CSR, *, n: int = 2, m: int = 4) -> Self:  # type: ignore[override]
        """Convert from CSR; stored zeros take slots too (``csr.without_zeros()`` drops them).

        Args:
            csr: the matrix.
            n: slots per group.
            m: columns per group.

        Raises:
            ValueError: a group has more than n entries; names row and group.
        """
        check_pattern(n, m)
        rows, columns = csr.shape
        groups = ceil_div(columns, m)
        places = csr.row_indices().long() * (groups * m) + csr.col
        used = torch.zeros(rows * groups * m, dtype=torch.bool, device=csr.device)
        used[places] = True
        index, rank = _choose_slots(used.reshape(rows, groups, m), n)
        group = torch.div(places, m, rounding_mode="floor")
        slots = group * n + rank.reshape(-1).index_select(0, places)
        values = scatter_values(csr.values, slots, rows * groups * n).reshape(rows, groups, n)
        return cls(values, index, csr.shape, n=n, m=m, validate=False)

    @classmethod
    def from_dense(cls, dense: Tensor, *, n: int = 2, m: int = 4) -> Self:  # type: ignore[override]
        """Pack a dense matrix with at most n nonzeros (including NaN) in each group of m columns.

        Args:
            dense: (M, N) floating point or complex.
            n: slots per group.
            m: columns per group.

        Raises:
            ValueError: a group has more nonzeros; names row and group.
        """
        check_pattern(n, m)
        dense = require_dense(dense)
        rows, columns = dense.shape
        groups = ceil_div(columns, m)
        padding = groups * m - columns
        padded = torch.nn.functional.pad(dense, (0, padding)) if padding else dense
        padded = padded.reshape(rows, groups, m)
        index, _ = _choose_slots(padded.detach() != 0, n)
        return cls(padded.gather(2, index.long()), index, (rows, columns), n=n, m=m, validate=False)

    @staticmethod
    def planned_nbytes(csr: CSR, *, n: int = 2, m: int = 4) -> int:
        """Return the bytes of :meth:`from_csr` with the same options, without converting."""
        check_pattern(n, m)
        rows, groups = csr.shape[0], ceil_div(csr.shape[1], m)
        keys = csr.row_indices().long() * groups + torch.div(csr.col, m, rounding_mode="floor")
        # Entries are sorted, so a group with more than n of them repeats its key n places later.
        at = first_true(keys[n:] == keys[:-n])
        if at is not None:
            row, group = divmod(int(keys[at]), groups)
            raise ValueError(_overfull(row, group, int((keys == keys[at]).sum()), n, m))
        return rows * groups * n * (csr.dtype.itemsize + 1)

    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor."""
        rows, columns = self.shape
        padded = torch.zeros((rows, self.groups, self.m), dtype=self.dtype, device=self.device)
        dense = padded.scatter(2, self.index.long(), self.values)
        return dense.reshape(rows, self.groups * self.m)[:, :columns].contiguous()

    def _to_csr(self) -> CSR:
        dtype = self.index_dtype
        column = self._columns().reshape(-1)
        values = self.values.reshape(-1)
        if self._is_partial:
            kept = (column < self.shape[1]).nonzero().squeeze(1)
            column, values = column.index_select(0, kept), values.index_select(0, kept)
        row_ptr = pointers_from_lengths(self.row_lengths(), dtype)
        return CSR(row_ptr, column.to(dtype), values, self.shape, validate=False)

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"index": self.index}


def check_pattern(n: int, m: int) -> None:
    """Raise ``ValueError`` unless 1 <= n <= m <= 256."""
    if not 1 <= n <= m <= 256:
        raise ValueError(f"n:m must satisfy 1 <= n <= m <= 256, got {n}:{m}")


def _choose_slots(used: Tensor, n: int) -> tuple[Tensor, Tensor]:
    # (M, G, n) uint8 positions, the used ones filled up with the lowest free ones; and (M, G, m) slot of
    # each.
    rows, groups, m = used.shape
    count = used.sum(dim=2)
    at = first_true(count > n)
    if at is not None:
        row, group = divmod(at, groups)
        raise ValueError(_overfull(row, group, int(count[row, group]), n, m))
    free_rank = (~used).cumsum(dim=2, dtype=torch.int16)
    chosen = used | (free_rank <= (n - count)[..., None])
    rank = chosen.cumsum(dim=2, dtype=torch.int16) - 1
    index = (chosen.reshape(-1).nonzero() % m).to(torch.uint8).reshape(rows, groups, n)
    return index, rank


def _overfull(row: int, group: int, count: int, n: int, m: int) -> str:
    return (
        f"row {row}, group {group} (columns {group * m}..{group * m + m - 1}) has {count} nonzeros,"
        f" more than the {n} of {n}:{m}: prune the matrix first"
    )
