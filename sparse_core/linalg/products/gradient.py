"""Autograd of the products: the gradient of each is computed by the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.formats import BSR, SparseMatrix
from sparse_core.linalg.operands import (
    as_gradient,
    gradient_needed,
    result_dtype,
    sum_of,
    tracked_values,
)
from sparse_core.linalg.sddmm.api import impl_for, sampled_values
from sparse_core.linalg.sddmm.common import Pattern
from sparse_core.linalg.spmm import api as spmm
from sparse_core.linalg.spmm.common import side_by_side
from sparse_core.linalg.spmv import api as spmv
from sparse_core.linalg.structure import as_csr, at_values, transposed


def product(matrix: SparseMatrix, dense: Tensor, transpose: bool, impl: str, method: str = "auto") -> Tensor:
    """Return ``matrix @ dense``, or ``matrix.T @ dense``, of checked operands."""
    if transpose:
        matrix = transposed(matrix)
    elif not isinstance(matrix, BSR) and (dense.ndim > 1 or gradient_needed(matrix)):
        matrix = as_csr(matrix)
    op = spmv.SPMV if dense.ndim == 1 else spmm.SPMM
    chosen = op.choose(impl, matrix.device, result_dtype(matrix, dense))
    return recorded(matrix, dense, chosen, method)


def recorded(matrix: SparseMatrix, dense: Tensor, chosen: str, method: str = "auto") -> Tensor:
    """Return ``matrix @ dense``, differentiable if autograd follows an operand (CSR or BSR then)."""
    if not gradient_needed(matrix, dense):
        return _multiply(matrix, dense, chosen, method)
    values = tracked_values(matrix)
    # Without a gradient for the values, the matrix itself caches plans for the next call.
    stored = matrix if values is None else matrix.detach()
    result: Tensor = _MatrixProduct.apply(values, dense, stored, chosen, method)
    return result


def samples(pattern: Pattern, a: Tensor, b: Tensor, impl: str) -> Tensor:
    """Return :func:`sampled_values`, differentiable if autograd follows an operand."""
    if not gradient_needed(a, b):
        return sampled_values(pattern, a, b, impl)
    values: Tensor = _SampledProduct.apply(a, b, pattern.detach(), impl)
    return values


def columns_of(dense: Tensor) -> Tensor:
    """Return a vector as one column, and a batch of matrices side by side."""
    return dense[:, None] if dense.ndim == 1 else side_by_side(dense)


def _multiply(matrix: SparseMatrix, dense: Tensor, chosen: str, method: str) -> Tensor:
    if dense.ndim == 1:
        return spmv.multiply(matrix, dense, chosen, method)
    return spmm.multiply(matrix, dense, chosen)


class _MatrixProduct(torch.autograd.Function):
    """``matrix @ dense`` with PyTorch's gradient convention (conjugated for complex numbers)."""

    @staticmethod
    def forward(
        values: Tensor | None, dense: Tensor, matrix: SparseMatrix, chosen: str, method: str
    ) -> Tensor:
        return _multiply(at_values(matrix, values), dense, chosen, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, dense, ctx.matrix, ctx.chosen, _ = inputs
        ctx.save_for_backward(values, dense)
        ctx.save_for_forward(values, dense)
        ctx.dtype = output.dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, dense = ctx.saved_tensors
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            left, right = columns_of(gradient), columns_of(dense).conj().transpose(0, 1)
            sampled = samples(ctx.matrix, left, right, impl_for(ctx.chosen))
            of_values = as_gradient(sampled, values.dtype)
        if ctx.needs_input_grad[1]:
            adjoint = transposed(at_values(ctx.matrix, values))
            of_dense = as_gradient(recorded(adjoint, gradient.conj(), ctx.chosen).conj(), dense.dtype)
        return of_values, of_dense, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor | None, of_dense: Tensor | None, *_: None) -> Tensor:
        values, dense = ctx.saved_tensors
        parts = []
        if of_dense is not None:
            parts.append(_MatrixProduct.apply(values, of_dense, ctx.matrix, ctx.chosen, "auto"))
        if of_values is not None:
            parts.append(_MatrixProduct.apply(of_values, dense, ctx.matrix, ctx.chosen, "auto"))
        return sum_of(parts).to(ctx.dtype)


class _SampledProduct(torch.autograd.Function):
    """Sampled values whose gradients are products of the sparse gradient with the other operand."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, pattern: Pattern, impl: str) -> Tensor:
        return sampled_values(pattern, a, b, impl)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, ctx.pattern, ctx.impl = inputs
        ctx.save_for_backward(a, b)
        ctx.save_for_forward(a, b)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        sparse = ctx.pattern.with_values(gradient)
        chosen = spmm.SPMM.choose(impl_for(ctx.impl), gradient.device, gradient.dtype)
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = as_gradient(recorded(sparse, b.conj().transpose(0, 1), chosen), a.dtype)
        if ctx.needs_input_grad[1]:
            of_b = as_gradient(recorded(transposed(sparse), a.conj(), chosen).transpose(0, 1), b.dtype)
        return of_a, of_b, None, None

    @staticmethod
    def jvp(ctx: Any, of_a: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        a, b = ctx.saved_tensors
        parts = []
        if of_a is not None:
            parts.append(samples(ctx.pattern, of_a, b, ctx.impl))
        if of_b is not None:
            parts.append(samples(ctx.pattern, a, of_b, ctx.impl))
        return sum_of(parts)
