"""BSR: dense blocks in compressed block rows."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.formats.base import SparseMatrix, index_dtype_for
from sparse_core.formats.blocks import block_dimensions, block_keys, entries_by_row, scalar_places
from sparse_core.formats.csr import CSR
from sparse_core.formats.indexing import (
    ceil_div,
    expand_pointers,
    pointers_from_rows,
    scatter_values,
    to_numpy,
    transpose_structure,
)
from sparse_core.formats.validation import (
    check_indices,
    check_pointers,
    check_range,
    check_rising,
    check_size,
    check_values_dtype,
    element,
    first_true,
    require_dense,
    row_finder,
)

#: Scalars of a block from which a CPU reorders and transposes in one pass, instead of two.
_LARGE_BLOCK = 1024


class BSR(SparseMatrix):
    """Block sparse rows: block row b holds blocks ``row_ptr[b]`` to ``row_ptr[b + 1] - 1``.

    The shape need not be a multiple of the block size; blocks that cross the edge are zero outside the
    matrix. Every scalar of a stored block that lies inside the matrix counts as an entry, zeros included, and
    conversions keep it.

    Args:
        row_ptr: (block rows + 1,) int32 or int64, ascending from 0 to the number of blocks.
        col: (blocks,) of the same type, block columns, strictly ascending within a block row.
        values: (blocks, r, c) floating point or complex; r x c is the block size.
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
        if values.ndim != 3 or min(values.shape[1:]) < 1:
            raise ValueError(
                f"values must have shape (blocks, block_rows, block_cols) with blocks of at least 1x1,"
                f" got {tuple(values.shape)}"
            )
        check_indices((*self.shape, len(values)), values.device, row_ptr=row_ptr, col=col)
        check_size("col", col, (len(values),), "one block column per block")
        self.row_ptr = row_ptr
        self.col = col
        self.values = values
        block_rows = self.block_shape[0]
        check_size("row_ptr", row_ptr, (block_rows + 1,), "block rows + 1")
        self._check(validate)

    @property
    def block_size(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.values.shape[1], self.values.shape[2]

    @property
    def block_shape(self) -> tuple[int, int]:
        """Block rows and block columns of the matrix."""
        height, width = self.block_size
        return ceil_div(self.shape[0], height), ceil_div(self.shape[1], width)

    @property
    def is_ragged(self) -> bool:
        """True if the shape is not a multiple of the block size."""
        return self.shape[0] % self.block_size[0] != 0 or self.shape[1] % self.block_size[1] != 0

    @property
    def nnz(self) -> int:
        """Number of scalars of stored blocks inside the matrix."""
        return (
            self.cached("nnz", lambda: int(self.row_lengths().sum()))
            if self.is_ragged
            else self.values.numel()
        )

    def _nnz_known(self) -> bool:
        return not self.is_ragged or "nnz" in self._structure_cache

    @property
    def T(self) -> BSR:
        """Transposed matrix: transposed and sorted blocks, in an order that is cached."""
        row_ptr, col, order, cache = self.cached("transpose", self._plan_transpose)
        blocks = self.values
        if blocks.device.type == "cpu" and blocks[0:1].numel() >= _LARGE_BLOCK:
            values = blocks.transpose(1, 2).index_select(0, order)
        else:
            values = blocks.index_select(0, order).transpose(1, 2).contiguous()
        transposed = BSR(row_ptr, col, values, (self.shape[1], self.shape[0]), validate=False)
        transposed._structure_cache = cache
        return transposed

    def _plan_transpose(self) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        return (*transpose_structure(self.row_ptr, self.col, self.block_shape[1]), {})

    def row_lengths(self) -> Tensor:
        """Return the scalars of stored blocks inside the matrix, by row, (M,) int64."""
        width = (self.shape[1] - self.col.long() * self.block_size[1]).clamp(max=self.block_size[1])
        block_row = expand_pointers(self.row_ptr, len(self.col)).long()
        lengths = torch.zeros(self.block_shape[0], dtype=torch.int64, device=self.device)
        lengths.index_add_(0, block_row, width)
        return lengths.repeat_interleave(self.block_size[0])[: self.shape[0]]

    def validate(self) -> None:
        """Check pointers, block columns, and that edge blocks are zero outside the matrix."""
        check_pointers("row_ptr", self.row_ptr, len(self.col))
        check_range("col", self.col, self.block_shape[1], row_finder(self.row_ptr))
        check_rising("col", self.col, self.row_ptr, "BSR.from_coo sorts and sums duplicates", "block row")
        if self._edges_are_zero():
            return
        at = first_true(self._outside() & (self.values.detach() != 0))
        if at is not None:
            raise ValueError(
                f"{element('values', self.values, at)} lies outside the {self.shape[0]}x{self.shape[1]}"
                f" matrix and must be 0, got {self.values.detach().reshape(-1)[at].item()}"
            )

    def _outside(self) -> Tensor:
        row, column = scalar_places(self.row_ptr, self.col, self.block_size)
        return (row >= self.shape[0]) | (column >= self.shape[1])

    def _padding(self) -> Tensor | None:
        return self._outside() if self.is_ragged else None

    def _edges_are_zero(self) -> bool:
        (r, c), (rows, columns) = self.block_size, self.shape
        values = self.values.detach()
        if rows % r and bool(values[int(self.row_ptr[-2]) :, rows % r :].ne(0).any()):
            return False
        last = (self.col == columns // c).nonzero().squeeze(1) if columns % c else self.col[:0]
        return not bool(values.index_select(0, last)[:, :, columns % c :].ne(0).any()) if len(last) else True

    @classmethod
    def from_csr(cls, csr: CSR, *, block_size: int | tuple[int, int] = 16) -> Self:  # type: ignore[override]
        """Convert from CSR: store every block that holds an entry.

        Args:
            csr: the matrix.
            block_size: rows and columns of a block, or one number for both.
        """
        r, c = block_dimensions(block_size)
        rows, columns = csr.shape
        block_rows, block_columns = ceil_div(rows, r), ceil_div(columns, c)
        row, col = csr.row_indices().long(), csr.col.long()
        keys = block_keys(row, col, (r, c), block_columns)
        blocks, block_of = torch.unique(keys, return_inverse=True)
        positions = block_of * (r * c) + (row % r) * c + col % c
        values = scatter_values(csr.values, positions, len(blocks) * r * c).reshape(-1, r, c)
        return cls._from_keys(blocks, (block_rows, block_columns), values, csr.shape)

    @classmethod
    def _from_keys(
        cls, keys: Tensor, block_shape: tuple[int, int], values: Tensor, shape: tuple[int, int]
    ) -> Self:
        dtype = index_dtype_for(*shape, len(keys))
        block_row = torch.div(keys, max(block_shape[1], 1), rounding_mode="floor").to(dtype)
        col = (keys % max(block_shape[1], 1)).to(dtype)
        return cls(pointers_from_rows(block_row, block_shape[0]), col, values, shape, validate=False)

    @classmethod
    def from_dense(cls, dense: Tensor, *, block_size: int | tuple[int, int] = 16) -> Self:  # type: ignore[override]
        """Store every block that holds a nonzero (NaN is one).

        Args:
            dense: (M, N) floating point or complex.
            block_size: rows and columns of a block, or one number for both.
        """
        dense = require_dense(dense)
        r, c = block_dimensions(block_size)
        rows, columns = dense.shape
        grid = (ceil_div(rows, r), ceil_div(columns, c))
        padding = (0, grid[1] * c - columns, 0, grid[0] * r - rows)
        padded = torch.nn.functional.pad(dense, padding) if any(padding) else dense
        blocks = padded.reshape(grid[0], r, grid[1], c).transpose(1, 2).reshape(grid[0] * grid[1], r, c)
        keys = blocks.detach().ne(0).flatten(1).any(dim=1).nonzero().squeeze(1)
        return cls._from_keys(keys, grid, blocks.index_select(0, keys), (rows, columns))

    @staticmethod
    def planned_nbytes(csr: CSR, *, block_size: int | tuple[int, int] = 16) -> int:
        """Return the bytes of :meth:`from_csr` with the same options, without converting."""
        r, c = block_dimensions(block_size)
        keys = block_keys(csr.row_indices().long(), csr.col, (r, c), ceil_div(csr.shape[1], c))
        blocks = len(torch.unique(keys))
        index = index_dtype_for(*csr.shape, blocks).itemsize
        pointers = ceil_div(csr.shape[0], r) + 1
        return (pointers + blocks) * index + blocks * r * c * csr.dtype.itemsize

    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor."""
        (r, c), (rows, columns) = self.block_size, self.shape
        grid = self.block_shape
        places = expand_pointers(self.row_ptr.long(), len(self.col)) * grid[1] + self.col
        blocks = scatter_values(self.values, places, grid[0] * grid[1])
        dense = blocks.reshape(*grid, r, c).transpose(1, 2).reshape(grid[0] * r, grid[1] * c)
        return dense[:rows, :columns].contiguous()

    def to_scipy(self) -> Any:
        """Convert to ``scipy.sparse.bsr_array``, or ``csr_array`` if the matrix is ragged.

        Half types become float32.
        """
        if self.is_ragged:
            return super().to_scipy()
        import scipy.sparse

        parts = (to_numpy(self.values), to_numpy(self.col), to_numpy(self.row_ptr))
        return scipy.sparse.bsr_array(parts, shape=self.shape, blocksize=self.block_size)

    def to_torch(self) -> Tensor:
        """Convert to ``torch.sparse_bsr``, or CSR if the matrix is ragged."""
        if self.is_ragged:
            return super().to_torch()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse BSR tensor support is in beta")
            return torch.sparse_bsr_tensor(
                self.row_ptr, self.col, self.values, size=self.shape, check_invariants=False
            )

    def _to_csr(self) -> CSR:
        row_ptr, col, order = entries_by_row(self.row_ptr, self.col, self.block_size, self.shape)
        dtype = index_dtype_for(*self.shape, len(order))
        values = self.values.reshape(-1).index_select(0, order)
        return CSR(row_ptr.to(dtype), col.to(dtype), values, self.shape, validate=False)

    def _index_tensors(self) -> dict[str, Tensor]:
        return {"row_ptr": self.row_ptr, "col": self.col}
