"""Operators of sparse matrices: products, sums, scaling, selection of rows and columns."""

from __future__ import annotations

import math
import numbers
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.common.matrix_operations import operations


class Operators(ABC):
    """Operators ``@ + - * /`` and ``[]`` of sparse matrices.

    ``*`` and ``/`` are elementwise, ``@`` is the matrix product. Scaling keeps the format and the structure.
    Sums and products of two matrices, and selected rows, are CSR. With a dense tensor, a sum is dense and an
    elementwise product sparse.
    """

    shape: tuple[int, int]
    values: Tensor
    #: Makes numpy arrays defer to the operators of the matrix.
    __array_ufunc__ = None

    @abstractmethod
    def _to_csr(self) -> Any:
        """Return this matrix as CSR, differentiable in ``values``."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor."""

    @abstractmethod
    def with_values(self, values: Tensor) -> Self:
        """Return the same structure with other values."""

    def _padding(self) -> Tensor | None:
        # True for each value that is padding and must stay 0; None without padding.
        return None

    # Matrix products.

    def __matmul__(self, other: Any) -> Any:
        return operations.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return operations.matmul(other, self)

    # Sums.

    def __add__(self, other: Any) -> Any:
        _refuse_arrays(other)
        if isinstance(other, Operators):
            return operations.add(self, other)
        if isinstance(other, Tensor):
            return self.to_dense() + other
        if not _is_scalar(other):
            return NotImplemented
        if other != 0:
            raise ValueError(
                f"adding {other} would make the matrix dense: use matrix.to_dense() + {other}, or change"
                " the stored values with matrix.with_values(matrix.values + number)"
            )
        return self

    # sum([a, b]) starts with 0 + a.
    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        _refuse_arrays(other)
        return self + -other if _is_operand(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        _refuse_arrays(other)
        return -self + other if _is_operand(other) else NotImplemented

    def __neg__(self) -> Self:
        return self.with_values(-self.values)

    # Elementwise products and quotients.

    def __mul__(self, other: Any) -> Any:
        _refuse_arrays(other)
        if isinstance(other, Operators):
            return operations.multiply(self, other)
        if _is_scalar(other):
            return self._scaled(operator.mul, other)
        if isinstance(other, Tensor):
            return operations.at_entries(self, other, operator.mul)
        return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        _refuse_arrays(other)
        if _is_scalar(other):
            return self._scaled(operator.truediv, other)
        if isinstance(other, Tensor):
            return operations.at_entries(self, other, operator.truediv)
        return NotImplemented

    def _scaled(self, operation: Callable[[Tensor, Any], Tensor], number: Any) -> Self:
        values = operation(self.values, number)
        # 0 times infinity is NaN, and a tensor may hold infinity.
        plain = not isinstance(number, Tensor) and number != 0 and math.isfinite(abs(number))
        padding = None if plain else self._padding()
        return self.with_values(values if padding is None else values.masked_fill(padding, 0))

    def conj(self) -> Self:
        """Return the complex conjugate in the same format; a real matrix returns itself."""
        if not self.values.is_complex():
            return self
        return self.with_values(self.values.conj().resolve_conj())

    # Selection.

    def __getitem__(self, key: Any) -> Any:
        """Select rows, or rows and columns; waits for a CUDA device.

        Args:
            key: an integer (a dense row (N,)), a slice, or a tensor or list of integers or booleans; or two
                of these for rows and columns. Use ``matrix[rows][:, columns]`` for two lists.

        Returns:
            CSR; a dense vector for an integer row or column, a scalar tensor for both.
        """
        if not isinstance(key, tuple):
            key = (key, slice(None))
        if len(key) != 2:
            raise IndexError(f"a matrix has rows and columns, got {len(key)} indices")
        lists = [part for part in key if not isinstance(part, slice) and not _is_integer(part)]
        if len(lists) == 2:
            raise TypeError("rows and columns are both lists: use matrix[rows][:, columns]")
        found = self._to_csr()
        rows, columns = key
        if rows != slice(None) if isinstance(rows, slice) else True:
            found = operations.take_rows(found, _to_indices(rows, self.shape[0], found.device))
        if columns != slice(None) if isinstance(columns, slice) else True:
            found = operations.take_columns(found, _to_indices(columns, self.shape[1], found.device))
        named = [_is_integer(rows), _is_integer(columns)]
        if not any(named):
            return found
        dense = found.to_dense()
        return dense.reshape(()) if all(named) else dense.reshape(-1)

    def diagonal(self, k: int = 0) -> Tensor:
        """Return the k-th diagonal (k > 0: above the main one) as a dense vector."""
        return operations.diagonal(self, k)

    def sum(self, axis: int | None = None) -> Tensor:
        """Sum all entries, or along an axis.

        Args:
            axis: None for all, shape (); 0 for each column, (N,); 1 for each row, (M,); negative from the
                end.

        Returns:
            Dense, in the type of the values; half precision is summed in float32.
        """
        if axis is None:
            return self._to_csr().values.sum()  # type: ignore[no-any-return]
        if axis not in (-2, -1, 0, 1):
            raise ValueError(f"axis must be None, 0, 1, -1 or -2, got {axis}")
        along_rows = axis % 2 == 1
        ones = torch.ones(self.shape[along_rows], dtype=self.values.dtype, device=self.values.device)
        total: Tensor = self @ ones if along_rows else ones @ self
        return total


def _refuse_arrays(other: object) -> None:
    """Raise ``TypeError`` for numpy arrays, which only ``@`` supports."""
    if isinstance(other, np.ndarray):
        raise TypeError(
            "+, -, * and / of a sparse matrix need a tensor, not a numpy array: use torch.from_numpy(array)"
        )


def _is_scalar(other: object) -> bool:
    return isinstance(other, numbers.Number) or (isinstance(other, Tensor) and other.ndim == 0)


def _is_operand(other: object) -> bool:
    return isinstance(other, Operators | Tensor | numbers.Number)


def _is_integer(part: object) -> bool:
    return isinstance(part, numbers.Integral) and not isinstance(part, bool)


def _to_indices(part: Any, size: int, device: torch.device) -> Tensor | range:
    # Convert an integer or a slice to a range, a list to (count,) int64 indices.
    if isinstance(part, slice):
        return range(*part.indices(size))
    if _is_integer(part):
        if not -size <= part < size:
            raise IndexError(f"index {int(part)} is outside -{size}..{size - 1}")
        return range(int(part) % size, int(part) % size + 1)
    if not isinstance(part, Tensor | list):
        raise TypeError(f"expected an integer, a slice, a tensor or a list, got {type(part).__name__}")
    index = torch.as_tensor(part, device=device)
    if index.dtype == torch.bool:
        if index.shape != (size,):
            raise IndexError(f"a mask must have shape ({size},), got {tuple(index.shape)}")
        return index.nonzero().squeeze(1)
    index = index.long() if index.numel() == 0 else index
    if index.ndim != 1 or index.is_floating_point() or index.is_complex():
        raise TypeError(
            f"indices must be a list of integers, got {index.dtype} of shape {tuple(index.shape)}"
        )
    wrong = index[(index < -size) | (index >= size)]
    if len(wrong):
        raise IndexError(f"index {int(wrong[0])} is outside -{size}..{size - 1}")
    return torch.where(index < 0, index + size, index).long()
