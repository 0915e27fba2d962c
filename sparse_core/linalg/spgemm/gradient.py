"""Gradient of a sparse-sparse product: the sparse gradient times the other operand, at its entries.

The product and both gradients are sums over the same scalar products, and each of the three has the other two
as derivatives. This gives gradients of any order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels.autocast import without_autocast
from sparse_core.linalg.operands import accumulation_dtype, as_gradient, gradient_needed, sum_of
from sparse_core.linalg.spgemm import reference, vendor
from sparse_core.linalg.spgemm.common import expand
from sparse_core.linalg.structure import segment_sum, transposed


@without_autocast
def multiply(a: CSR, b: CSR, chosen: str) -> CSR:
    """Return ``a @ b`` by the chosen implementation, without gradients."""
    return reference.spgemm(a, b) if chosen == "reference" else vendor.spgemm(a, b)


def recorded(a_values: Tensor, b_values: Tensor, a: CSR, b: CSR, product: CSR, chosen: str) -> Tensor:
    """Return the values of a product as a differentiable function of its operands' values."""
    values: Tensor = _ProductValues.apply(a_values, b_values, a, b, product, chosen)
    return values


def _product_values(a_values: Tensor, b_values: Tensor, a: CSR, b: CSR, chosen: str) -> Tensor:
    """Return the values of a product, differentiable if autograd follows them."""
    product = multiply(a.with_values(a_values.detach()), b.with_values(b_values.detach()), chosen)
    if not gradient_needed(a_values, b_values):
        return product.values
    return recorded(a_values, b_values, a, b, product, chosen)


class _ProductValues(torch.autograd.Function):
    """Values of a product as a function of its operands' values."""

    @staticmethod
    def forward(a_values: Tensor, b_values: Tensor, a: CSR, b: CSR, product: CSR, chosen: str) -> Tensor:
        return product.values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a_values, b_values, a, b, product, ctx.chosen = inputs
        ctx.save_for_backward(a_values, b_values)
        ctx.save_for_forward(a_values, b_values)
        ctx.operands = a, b, product.with_values(product.values[:0].new_zeros(()).expand(product.nnz))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a_values, b_values = ctx.saved_tensors
        a, b, product = ctx.operands
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = as_gradient(_left_gradient(gradient, b_values, a, b, product, ctx.chosen), a_values.dtype)
        if ctx.needs_input_grad[1]:
            of_b = as_gradient(_right_gradient(gradient, a_values, a, b, product, ctx.chosen), b_values.dtype)
        return of_a, of_b, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_a: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        a_values, b_values = ctx.saved_tensors
        a, b, _product = ctx.operands
        parts = []
        if of_a is not None:
            parts.append(_product_values(of_a, b_values, a, b, ctx.chosen))
        if of_b is not None:
            parts.append(_product_values(a_values, of_b, a, b, ctx.chosen))
        return sum_of(parts)


def _left_gradient(gradient: Tensor, b_values: Tensor, a: CSR, b: CSR, product: CSR, chosen: str) -> Tensor:
    """Return :func:`gradient_of_left`, differentiable if autograd follows an operand."""
    if not gradient_needed(gradient, b_values):
        return gradient_of_left(a, b.with_values(b_values), product, gradient)
    found: Tensor = _LeftGradient.apply(gradient, b_values, a, b, product, chosen)
    return found


def _right_gradient(gradient: Tensor, a_values: Tensor, a: CSR, b: CSR, product: CSR, chosen: str) -> Tensor:
    """Return the gradient of ``b``, the left operand of the transposed product."""
    flipped = transposed(product.with_values(gradient))
    right = transposed(a.with_values(a_values))
    found = _left_gradient(
        flipped.values, right.values, transposed(b), right.detach(), flipped.detach(), chosen
    )
    return torch.zeros_like(found).index_copy(0, b.transpose_order().long(), found)


class _LeftGradient(torch.autograd.Function):
    """Gradient of the left operand as a function of the incoming gradient and the right operand."""

    @staticmethod
    def forward(gradient: Tensor, b_values: Tensor, a: CSR, b: CSR, product: CSR, chosen: str) -> Tensor:
        return gradient_of_left(a, b.with_values(b_values), product, gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gradient, b_values, *operands, ctx.chosen = inputs
        ctx.save_for_backward(gradient, b_values)
        ctx.save_for_forward(gradient, b_values)
        ctx.operands = operands

    @staticmethod
    def backward(ctx: Any, second: Tensor) -> tuple[Tensor | None, ...]:
        gradient, b_values = ctx.saved_tensors
        a, b, product = ctx.operands
        of_gradient = of_b = None
        if ctx.needs_input_grad[0]:
            of_gradient = as_gradient(_product_values(second, b_values, a, b, ctx.chosen), gradient.dtype)
        if ctx.needs_input_grad[1]:
            of_b = as_gradient(_right_gradient(gradient, second, a, b, product, ctx.chosen), b_values.dtype)
        return of_gradient, of_b, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_gradient: Tensor | None, of_b: Tensor | None, *_: None) -> Tensor:
        gradient, b_values = ctx.saved_tensors
        a, b, product = ctx.operands
        parts = []
        if of_gradient is not None:
            parts.append(_left_gradient(of_gradient, b_values, a, b, product, ctx.chosen))
        if of_b is not None:
            parts.append(_left_gradient(gradient, of_b, a, b, product, ctx.chosen))
        return sum_of(parts)


def gradient_of_left(a: CSR, b: CSR, product: CSR, gradient: Tensor) -> Tensor:
    """Return ``gradient @ b^H`` at the entries of ``a``, summed in a fixed order.

    Args:
        a: (M, K); only the structure matters.
        b: (K, N).
        product: (M, N) structure of ``a @ b``.
        gradient: (nnz,) gradient of the values of the product.

    Returns:
        (nnz,) of ``a``, in the type of the sums.
    """
    working = accumulation_dtype(torch.promote_types(gradient.dtype, b.dtype))
    parts = [torch.zeros(0, dtype=working, device=a.device)]
    row_ptr = product.row_ptr.long()
    for run in expand(a, b):
        first, last = (int(row_ptr[row]) for row in run.rows)
        local_ptr = row_ptr[run.rows[0] : run.rows[1] + 1] - first
        local_rows = torch.repeat_interleave(local_ptr.diff())
        keys = local_rows * product.shape[1] + product.col[first:last]
        position = torch.searchsorted(keys, run.keys) + first
        terms = gradient[position].to(working) * b.values[run.right].to(working).conj()
        parts.append(segment_sum(terms, run.offsets))
    return torch.cat(parts)
