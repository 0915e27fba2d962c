"""scipy's own tests of sparse arrays (scipy.sparse.tests.test_base in its wheel), with our operators inside.

The array under test is scipy's ``csr_array`` whose operators are ours where our types allow: values in single
or double precision, two dimensions. So scipy's tests check our operators. Nothing of scipy is
copied. ``test_scipy_suite.py`` runs this module: scipy's marks and warnings are not ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.tests import test_base as base

from sparse_core.formats import BSR, COO, CSR

FLOATING = (np.float32, np.float64, np.complex64, np.complex128)
#: Calls that our operators answered, by name.
ANSWERED: dict[str, int] = {}


def fits(found: Any) -> bool:
    return found.ndim == 2 and found.dtype.type in FLOATING and found.dtype.isnative


def ours(array: Any) -> CSR:
    return CSR.from_scipy(scipy.sparse.csr_array(array))


def operand(other: Any, *, shape: tuple[int, ...] | None = None) -> Any:
    """Return ``other`` for our operators, or None if scipy must answer."""
    if type(other) in (int, float, complex):
        return other
    if scipy.sparse.issparse(other):
        sound = fits(other) and (shape is None or other.shape == shape)
        return CSR.from_scipy(other) if sound else None
    if type(other) is np.ndarray and other.dtype.type in FLOATING and other.dtype.isnative:
        sound = other.ndim in (1, 2) if shape is None else other.shape == shape
        return torch.from_numpy(np.ascontiguousarray(other)) if sound else None
    return None


def is_selection(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    lists = [part for part in parts if type(part) is list]
    return (
        len(parts) <= 2
        and len(lists) <= 1
        and all(type(part) in (int, slice, list) for part in parts)
        and all(type(number) is int for part in lists for number in part)
        and not any(type(part) is int for part in parts)
    )


class Ours(scipy.sparse.csr_array):  # type: ignore[misc]
    """scipy's array; operators, parts and conversions by sparse_core."""

    def _answer(self, name: str, found: Any) -> Any:
        ANSWERED[name] = ANSWERED.get(name, 0) + 1
        if isinstance(found, torch.Tensor):
            return found.numpy() if found.ndim else found.item()
        result = type(self)(found.to_scipy())
        # scipy stores no sum that is zero; we do, as the structure must not depend on values.
        if name in ("+", "-", "@"):
            result.eliminate_zeros()
        return result

    def __add__(self, other: Any) -> Any:
        found = operand(other, shape=self.shape) if fits(self) else None
        if found is None or (isinstance(found, int | float | complex) and found != 0):
            return super().__add__(other)
        return self._answer("+", ours(self) + found)

    def __sub__(self, other: Any) -> Any:
        found = operand(other, shape=self.shape) if fits(self) else None
        if found is None or (isinstance(found, int | float | complex) and found != 0):
            return super().__sub__(other)
        return self._answer("-", ours(self) - found)

    def __rsub__(self, other: Any) -> Any:
        found = operand(other, shape=self.shape) if fits(self) else None
        if not isinstance(found, torch.Tensor):
            return super().__rsub__(other)
        return self._answer("r-", found - ours(self))

    def __neg__(self) -> Any:
        return self._answer("neg", -ours(self)) if fits(self) else super().__neg__()

    def multiply(self, other: Any) -> Any:
        found = operand(other, shape=self.shape) if fits(self) else None
        if found is None:
            return super().multiply(other)
        return self._answer("*", ours(self) * found)

    def __truediv__(self, other: Any) -> Any:
        if fits(self) and type(other) in (int, float, complex) and other != 0:
            return self._answer("/", ours(self) / other)
        return super().__truediv__(other)

    def __matmul__(self, other: Any) -> Any:
        found = operand(other) if fits(self) else None
        if found is None or np.ndim(found) == 0 or self.shape[1] != found.shape[0]:
            return super().__matmul__(other)
        return self._answer("@", ours(self) @ found)

    def __rmatmul__(self, other: Any) -> Any:
        found = operand(other) if fits(self) else None
        if not isinstance(found, torch.Tensor) or found.shape[-1] != self.shape[0]:
            return super().__rmatmul__(other)
        return self._answer("r@", found @ ours(self))

    def __getitem__(self, key: Any) -> Any:
        if not fits(self) or not is_selection(key):
            return super().__getitem__(key)
        return self._answer("[]", ours(self)[key])

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if not fits(self) or dtype is not None or out is not None or axis not in (None, 0, 1, -1, -2):
            return super().sum(axis=axis, dtype=dtype, out=out)
        found = self._answer("sum", ours(self).sum(axis))
        return self.dtype.type(found) if axis is None else found

    def diagonal(self, k: int = 0) -> Any:
        if not fits(self) or k <= -self.shape[0] or k >= self.shape[1]:
            return super().diagonal(k)
        return self._answer("diagonal", ours(self).diagonal(k))

    def conj(self, copy: bool = True) -> Any:
        return self._answer("conj", ours(self).conj()) if fits(self) else super().conj(copy)

    def toarray(self, order: Any = None, out: Any = None) -> Any:
        if not fits(self) or order is not None or out is not None:
            return super().toarray(order, out)
        return self._answer("to_dense", ours(self).to_dense())

    def tocoo(self, copy: bool = True) -> Any:
        if not fits(self):
            return super().tocoo(copy)
        ANSWERED["to COO"] = ANSWERED.get("to COO", 0) + 1
        return ours(self).to(COO).to_scipy()

    def tobsr(self, blocksize: Any = None, copy: bool = True) -> Any:
        if (
            not fits(self)
            or blocksize is None
            or any(n % b for n, b in zip(self.shape, blocksize, strict=True))
        ):
            return super().tobsr(blocksize, copy)
        ANSWERED["to BSR"] = ANSWERED.get("to BSR", 0) + 1
        return ours(self).to(BSR, block_size=blocksize).to_scipy()


class _Operators:
    @classmethod
    def spcreator(cls, *args: Any, **kwargs: Any) -> Ours:
        """The array under test."""
        return Ours(*args, **kwargs)


class TestCanonical(_Operators, base.TestCSR):  # type: ignore[misc, name-defined]
    """Every test of ``csr_array``."""


class TestNotCanonical(base._NonCanonicalCSMixin, TestCanonical):  # type: ignore[misc, name-defined]
    """The same with duplicates and columns out of order."""


@pytest.fixture(autouse=True, scope="module")
def _report(record_testsuite_property: Any) -> Any:
    yield
    for name, count in ANSWERED.items():
        record_testsuite_property(name, count)
