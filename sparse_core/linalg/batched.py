"""Batches of small dense systems, factorised once and solved repeatedly by torch."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.linalg.operands import WORKING_DTYPES

_LISTED = 5


class _BatchedFactors:
    """Base of both factorisations: shape, failures, checks of right-hand sides.

    Attributes:
        shape: (..., n, n) of the matrices.
        failed: (...) bool, True for matrices without a factorisation; their solutions are NaN.
    """

    def __init__(self, matrices: Tensor, info: Tensor) -> None:
        self.shape = tuple(matrices.shape)
        self.dtype, self.device = matrices.dtype, matrices.device
        self.failed = info != 0

    def _right(self, b: Tensor) -> tuple[Tensor, bool]:
        """Return ``b`` as (..., n, k), and True if it was a vector."""
        if b.dtype != self.dtype or b.device != self.device:
            raise ValueError(
                f"b is {b.dtype} on {b.device}, the matrices are {self.dtype} on {self.device}: use b.to(...)"
            )
        batch, size = self.shape[:-2], self.shape[-1]
        if tuple(b.shape) == (*batch, size):
            return b[..., None], True
        if tuple(b.shape[:-1]) == (*batch, size):
            return b, False
        raise ValueError(f"b must be {(*batch, size)} or {(*batch, size, 'k')}, got {tuple(b.shape)}")

    def _finish(self, x: Tensor, vectors: bool) -> Tensor:
        x = torch.where(self.failed[..., None, None], torch.full_like(x, float("nan")), x)
        return x[..., 0] if vectors else x


class BatchedLU(_BatchedFactors):
    """``P L U`` of each matrix of a batch, with partial pivoting; made by :func:`batched_lu`.

    Attributes:
        factors: (..., n, n) L below the diagonal and U on and above it, as in LAPACK.
        pivots: (..., n) int32 row exchanges, counted from 1 as in LAPACK.
    """

    def __init__(self, matrices: Tensor, factors: Tensor, pivots: Tensor, info: Tensor) -> None:
        super().__init__(matrices, info)
        self.factors, self.pivots = factors, pivots

    def solve(self, b: Tensor) -> Tensor:
        """Solve ``A x = b``.

        Args:
            b: (..., n) or (..., n, k), dtype and device of the matrices.

        Returns:
            Same shape as ``b``; NaN for matrices in ``failed``. Gradients reach ``b`` and the matrices.

        Raises:
            ValueError: another shape, dtype or device.
        """
        right, vectors = self._right(b)
        return self._finish(torch.linalg.lu_solve(self.factors, self.pivots, right), vectors)


class BatchedCholesky(_BatchedFactors):
    """``L L^H`` of each matrix of a batch; made by :func:`batched_cholesky`.

    Attributes:
        factors: (..., n, n) lower triangles L.
    """

    def __init__(self, matrices: Tensor, factors: Tensor, info: Tensor) -> None:
        super().__init__(matrices, info)
        self.factors = factors

    def solve(self, b: Tensor) -> Tensor:
        """Solve ``A x = b``; see :meth:`BatchedLU.solve`."""
        right, vectors = self._right(b)
        return self._finish(torch.cholesky_solve(right, self.factors), vectors)


def batched_lu(matrices: Tensor, *, check: bool = True) -> BatchedLU:
    """Factorise a batch of square matrices by LU with partial pivoting.

    Args:
        matrices: (..., n, n) float32, float64, complex64 or complex128.
        check: raise if a matrix is singular, which waits for the device; False marks it in ``failed``.

    Raises:
        TypeError: another dtype.
        ValueError: not square; a matrix (named by index) that is singular or not finite.
    """
    _check(matrices)
    factors, pivots, info = torch.linalg.lu_factor_ex(matrices)
    if check:
        _check_finite(matrices)
        _raise_for(info, "singular: pivot {} is zero")
    return BatchedLU(matrices, factors, pivots, info)


def batched_cholesky(matrices: Tensor, *, check: bool = True) -> BatchedCholesky:
    """Factorise a batch of Hermitian positive definite matrices by Cholesky, from their lower triangles.

    Args:
        matrices: (..., n, n) float32, float64, complex64 or complex128.
        check: raise if a matrix is not positive definite, which waits for the device; False marks it in
            ``failed``.

    Raises:
        TypeError: another dtype.
        ValueError: not square; a matrix (named by index) that is not positive definite or not finite.
    """
    _check(matrices)
    factors, info = torch.linalg.cholesky_ex(matrices)
    if check:
        _check_finite(matrices)
        _raise_for(info, "not positive definite: its leading block of {} rows is not")
    return BatchedCholesky(matrices, factors, info)


def _check(matrices: Tensor) -> None:
    if not isinstance(matrices, Tensor) or matrices.dtype not in WORKING_DTYPES:
        found = matrices.dtype if isinstance(matrices, Tensor) else type(matrices).__name__
        raise TypeError(f"matrices must be float32, float64, complex64 or complex128 tensors, got {found}")
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"matrices must have shape (..., n, n), got {tuple(matrices.shape)}")


def _check_finite(matrices: Tensor) -> None:
    wrong = (~torch.isfinite(matrices)).nonzero()[:1].tolist()
    if wrong:
        *which, row, column = wrong[0]
        name = f"matrices[{', '.join(map(str, which))}]" if which else "matrices"
        value = matrices[tuple(wrong[0])].item()
        raise ValueError(f"{name} is not finite: entry ({row}, {column}) is {value}; replace it")


def _raise_for(info: Tensor, complaint: str) -> None:
    wrong = info.nonzero()
    if len(wrong) == 0:
        return
    places = [tuple(place) for place in wrong[:_LISTED].tolist()]
    names = [f"[{', '.join(map(str, place))}]" if place else "" for place in places]
    more = f"; so are {', '.join('matrices' + name for name in names[1:])}" if len(names) > 1 else ""
    left = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
    order = int(info[places[0]])
    pivot = order - 1 if "pivot" in complaint else order
    raise ValueError(f"matrices{names[0]} is {complaint.format(pivot)}{more}{left}")
