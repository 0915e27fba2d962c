"""Multiply a sparse matrix by a vector."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.formats import BSR, SparseMatrix
from sparse_core.linalg.implementation import PRODUCT
from sparse_core.linalg.operands import (
    as_gradient,
    check_dense,
    check_matrix,
    gradient_needed,
    result_dtype,
    sum_of,
    tracked_values,
)
from sparse_core.linalg.sddmm.api import samples
from sparse_core.linalg.structure import as_csr, at_values, transposed
from sparse_core.op import Impl, Op

SPMV: Op[torch.dtype] = Op("spmv", __package__, *PRODUCT, gradient=True)


def spmv(
    matrix: SparseMatrix,
    x: Tensor,
    *,
    transpose: bool = False,
    impl: Impl = "auto",
    method: str = "auto",
) -> Tensor:
    """``matrix @ x``, or ``matrix.T @ x``, with gradients for the values and for ``x``.

    Formats other than BSR are transposed through CSR; the permutation is found once per structure and
    kept on the matrix, so the transpose and the gradients gather in a fixed order. For higher gradients and
    ``torch.compile`` see :func:`sparse_core.linalg.spmm`.

    Args:
        matrix: (M, K), any format.
        x: (K,), or (M,) with ``transpose``; floating or complex, on the device of the matrix.
        transpose: multiply by the transpose (which is not conjugated).
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is cuSPARSE, or MKL and scipy on a CPU. ``"auto"`` is Triton on CUDA (cuSPARSE for
            complex numbers), whose results repeat to the bit, and the library on a CPU (the reference for
            half precision).
        method: the Triton kernel: for CSR ``"scalar"`` (a thread a row), ``"vector"`` (a warp or more a
            row), ``"adaptive"`` (rows binned by length), ``"merge"`` (equal shares for skewed rows) or
            ``"pattern"`` (rows that repeat the same offsets). A name other than ``"auto"`` asks for Triton.

    Returns:
        (M,), or (K,) with ``transpose``, in the promoted type; half precision is summed in float32;
        autocast changes nothing.

    Raises:
        TypeError: ``matrix`` is not sparse, or values or ``x`` are neither floating nor complex.
        ValueError: shapes or devices do not fit; a method that the format does not have.
        ImplementationError: a named ``impl`` or ``method`` cannot run here.
    """
    check_matrix(matrix, "matrix")
    check_dense(x, "x", matrix.device)
    _check_shape(matrix, x, transpose)
    if method != "auto":
        if impl in ("reference", "vendor"):
            raise ValueError(f"method={method!r} names a Triton kernel, impl={impl!r} has only 'auto'")
        impl = "triton"
    if torch.compiler.is_compiling():
        # Its operators load half of torch's compiler, which is loaded already here.
        from sparse_core.linalg.compiled import traced_product

        return traced_product(matrix, x, transpose, impl)
    if transpose:
        matrix = transposed(matrix)
    elif gradient_needed(matrix) and not isinstance(matrix, BSR):
        matrix = as_csr(matrix)
    chosen = SPMV.choose(impl, matrix.device, result_dtype(matrix, x))
    return product(matrix, x, chosen, method)


def product(matrix: SparseMatrix, x: Tensor, chosen: str, method: str = "auto") -> Tensor:
    """:func:`multiply`, recorded where autograd follows an operand; CSR or BSR then."""
    if not gradient_needed(matrix, x):
        return multiply(matrix, x, chosen, method)
    values = tracked_values(matrix)
    # Without a gradient for the values, the matrix itself keeps its plans for the next call.
    held = matrix if values is None else matrix.detach()
    made: Tensor = _Product.apply(values, x, held, chosen, method)
    return made


@without_autocast
def multiply(matrix: SparseMatrix, x: Tensor, chosen: str, method: str = "auto") -> Tensor:
    """``matrix @ x`` by the chosen implementation, without gradients and without checks of the arguments."""
    implementation = SPMV.load(chosen)
    made: Tensor
    if chosen == "triton":
        made = implementation.spmv(matrix, x, method=method)
    else:
        made = implementation.spmv(as_csr(matrix), x)
    return made


class _Product(torch.autograd.Function):
    """``matrix @ x`` with the gradients of PyTorch's convention (conjugated for complex numbers)."""

    @staticmethod
    def forward(values: Tensor | None, x: Tensor, matrix: SparseMatrix, chosen: str, method: str) -> Tensor:
        return multiply(at_values(matrix, values), x, chosen, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, x, ctx.matrix, ctx.chosen, _ = inputs
        ctx.save_for_backward(values, x)
        ctx.save_for_forward(values, x)
        ctx.dtype = output.dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, x = ctx.saved_tensors
        of_values = of_x = None
        if ctx.needs_input_grad[0]:
            impl: Impl = "auto" if ctx.chosen == "vendor" else ctx.chosen
            sampled = samples(ctx.matrix, gradient[:, None], x.conj()[None, :], impl)
            of_values = as_gradient(sampled, values)
        if ctx.needs_input_grad[1]:
            adjoint = transposed(at_values(ctx.matrix, values))
            of_x = as_gradient(product(adjoint, gradient.conj(), ctx.chosen).conj(), x)
        return of_values, of_x, None, None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor | None, of_x: Tensor | None, *_: None) -> Tensor:
        values, x = ctx.saved_tensors
        parts = []
        if of_x is not None:
            parts.append(_Product.apply(values, of_x, ctx.matrix, ctx.chosen, "auto"))
        if of_values is not None:
            parts.append(_Product.apply(of_values, x, ctx.matrix, ctx.chosen, "auto"))
        return sum_of(parts).to(ctx.dtype)


def _check_shape(matrix: SparseMatrix, x: Tensor, transpose: bool) -> None:
    if x.ndim != 1:
        raise ValueError(
            f"x must have shape (K,), got {tuple(x.shape)}; spmm multiplies by a matrix or a batch of them"
        )
    needed = matrix.shape[0] if transpose else matrix.shape[1]
    if len(x) != needed:
        name = f"the transpose of the {matrix.shape} matrix" if transpose else f"the {matrix.shape} matrix"
        raise ValueError(f"{name} needs x of length {needed}, got {len(x)}")
