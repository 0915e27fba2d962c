"""Multiply two sparse matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparse_core.autocast import without_autocast
from sparse_core.dispatch import Impl
from sparse_core.errors import ImplementationError
from sparse_core.formats import CSR, SparseMatrix
from sparse_core.linalg.implementation import Chosen, choose_implementation
from sparse_core.linalg.operands import as_gradient, check_matrix, gradient_needed
from sparse_core.linalg.spgemm import reference, vendor
from sparse_core.linalg.spgemm.gradient import gradient_of_left
from sparse_core.linalg.structure import as_csr, transpose_plan, transposed


def spgemm(a: SparseMatrix, b: SparseMatrix, *, impl: Impl = "auto") -> CSR:
    """``a @ b`` as CSR, with gradients for the values of both.

    The result has an entry wherever a product of two stored entries falls, also where the sum is zero.

    Args:
        a: (M, K), any format; multiplied as CSR.
        b: (K, N), any format, on the device of ``a``.
        impl: ``"reference"`` expands, sorts and compresses in plain torch, ``"vendor"`` is cuSPARSE, or MKL
            or scipy on a CPU; ``"auto"`` is the library (the reference for half precision on a CPU).
            There is no Triton kernel.

    Returns:
        (M, N), columns rising in every row, values of the promoted type; half precision is summed in
        float32; autocast changes nothing.

    Raises:
        TypeError: an operand is not sparse, or has values neither floating nor complex.
        ValueError: shapes or devices do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    check_matrix(a, "a")
    check_matrix(b, "b")
    if a.device != b.device:
        raise ValueError(f"b is on {b.device} and a on {a.device}: move one of them with .to")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a {a.shape} needs b with {a.shape[1]} rows, got shape {b.shape}")
    if impl == "triton":
        raise ImplementationError(
            "the sparse-sparse product has no Triton kernel: take 'vendor' or 'reference'"
        )
    dtype = torch.promote_types(a.dtype, b.dtype)
    # Nothing here is Triton's, so what "auto" would give to Triton goes to the library.
    chosen = choose_implementation(impl, a.device, dtype, prefers_vendor=True)
    a, b = as_csr(a), as_csr(b)
    product = _multiply(a.detach(), b.detach(), chosen)
    if not gradient_needed(a, b):
        return product
    values: Tensor = _Values.apply(a.values, b.values, a.detach(), b.detach(), product)
    return product.with_values(values)


@without_autocast
def _multiply(a: CSR, b: CSR, chosen: Chosen) -> CSR:
    return reference.spgemm(a, b) if chosen == "reference" else vendor.spgemm(a, b)


class _Values(torch.autograd.Function):
    """Values of a finished product, tied to the values of its operands."""

    @staticmethod
    def forward(ctx: Any, a_values: Tensor, b_values: Tensor, a: CSR, b: CSR, product: CSR) -> Tensor:
        ctx.save_for_backward(a_values, b_values)
        ctx.operands = a, b, product.with_values(product.values[:0].new_zeros(()).expand(product.nnz))
        return product.values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        a_values, b_values = ctx.saved_tensors
        a, b, product = ctx.operands
        of_a = of_b = None
        if ctx.needs_input_grad[0]:
            of_a = as_gradient(gradient_of_left(a, b, product, gradient), a_values)
        if ctx.needs_input_grad[1]:
            # The right operand is the left one of the transposed product.
            flipped = transposed(product.with_values(gradient))
            found = gradient_of_left(transposed(b), transposed(a), flipped, flipped.values)
            in_order = torch.empty_like(found)
            in_order[transpose_plan(b).order] = found
            of_b = as_gradient(in_order, b_values)
        return of_a, of_b, None, None, None
