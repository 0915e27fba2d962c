"""Multiply a sparse matrix by a dense matrix, or by a batch of them."""

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
from sparse_core.linalg.spmm.common import apart, side_by_side
from sparse_core.linalg.spmv.api import spmv
from sparse_core.linalg.structure import as_csr, at_values, transposed
from sparse_core.op import Impl, Op

SPMM: Op[torch.dtype] = Op("spmm", __package__, *PRODUCT, gradient=True)


def spmm(matrix: SparseMatrix, dense: Tensor, *, transpose: bool = False, impl: Impl = "auto") -> Tensor:
    """``matrix @ dense``, or ``matrix.T @ dense``, with gradients for the values and for ``dense``.

    BSR and CSR are multiplied as they are, other formats as CSR (converted once and kept on the matrix).
    Gradients of any order and forward mode (``torch.func.jvp``) work. ``torch.compile`` keeps products with
    CSR and BSR whole, also written ``matrix @ dense``, with gradients of first order; other formats break
    its graph.

    Args:
        matrix: (M, K), any format.
        dense: (K, N) or (batch, K, N), or with ``transpose`` M for K; floating or complex, on the device
            of the matrix. A vector (K,) goes to :func:`sparse_core.linalg.spmv`.
        transpose: multiply by the transpose (which is not conjugated).
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is cuSPARSE, or MKL and scipy on a CPU. ``"auto"`` is Triton on CUDA (cuSPARSE for
            complex numbers), whose results repeat to the bit, and the library on a CPU (the reference for
            half precision).

    Returns:
        (M, N) or (batch, M, N), with ``transpose`` K for M, in the promoted type; half precision is
        summed in float32; autocast changes nothing.

    Raises:
        TypeError: ``matrix`` is not sparse, or values or ``dense`` are neither floating nor complex.
        ValueError: shapes or devices do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    check_matrix(matrix, "matrix")
    check_dense(dense, "dense", matrix.device)
    if dense.ndim == 1:
        return spmv(matrix, dense, transpose=transpose, impl=impl)
    _check_shape(matrix, dense, transpose)
    if torch.compiler.is_compiling():
        # Its operators load half of torch's compiler, which is loaded already here.
        from sparse_core.linalg.compiled import traced_product

        return traced_product(matrix, dense, transpose, impl)
    if transpose:
        matrix = transposed(matrix)
    elif not isinstance(matrix, BSR):
        matrix = as_csr(matrix)
    return product(matrix, dense, SPMM.choose(impl, matrix.device, result_dtype(matrix, dense)))


def product(matrix: SparseMatrix, dense: Tensor, chosen: str) -> Tensor:
    """:func:`multiply`, recorded where autograd follows an operand; CSR or BSR then."""
    if not gradient_needed(matrix, dense):
        return multiply(matrix, dense, chosen)
    values = tracked_values(matrix)
    # Without a gradient for the values, the matrix itself keeps its plans for the next call.
    held = matrix if values is None else matrix.detach()
    made: Tensor = _Product.apply(values, dense, held, chosen)
    return made


@without_autocast
def multiply(matrix: SparseMatrix, dense: Tensor, chosen: str) -> Tensor:
    """``matrix @ dense`` by the chosen implementation, without gradients and without argument checks."""
    if chosen != "triton":
        return apart(SPMM.load(chosen).spmm(as_csr(matrix), side_by_side(dense)), dense)
    if isinstance(matrix, BSR):
        from sparse_core.linalg.spmm import triton_bsr

        return apart(triton_bsr.spmm(matrix, side_by_side(dense)), dense)
    made: Tensor = SPMM.load(chosen).spmm(as_csr(matrix), dense)
    return made


class _Product(torch.autograd.Function):
    """``matrix @ dense`` with the gradients of PyTorch's convention (conjugated for complex numbers)."""

    @staticmethod
    def forward(values: Tensor | None, dense: Tensor, matrix: SparseMatrix, chosen: str) -> Tensor:
        return multiply(at_values(matrix, values), dense, chosen)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, dense, ctx.matrix, ctx.chosen = inputs
        ctx.save_for_backward(values, dense)
        ctx.save_for_forward(values, dense)
        ctx.dtype = output.dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, dense = ctx.saved_tensors
        of_values = of_dense = None
        if ctx.needs_input_grad[0]:
            impl: Impl = "auto" if ctx.chosen == "vendor" else ctx.chosen
            sampled = samples(
                ctx.matrix, side_by_side(gradient), side_by_side(dense).conj().transpose(0, 1), impl
            )
            of_values = as_gradient(sampled, values)
        if ctx.needs_input_grad[1]:
            adjoint = transposed(at_values(ctx.matrix, values))
            of_dense = as_gradient(product(adjoint, gradient.conj(), ctx.chosen).conj(), dense)
        return of_values, of_dense, None, None

    @staticmethod
    def jvp(ctx: Any, of_values: Tensor | None, of_dense: Tensor | None, *_: None) -> Tensor:
        values, dense = ctx.saved_tensors
        parts = []
        if of_dense is not None:
            parts.append(_Product.apply(values, of_dense, ctx.matrix, ctx.chosen))
        if of_values is not None:
            parts.append(_Product.apply(of_values, dense, ctx.matrix, ctx.chosen))
        return sum_of(parts).to(ctx.dtype)


def _check_shape(matrix: SparseMatrix, dense: Tensor, transpose: bool) -> None:
    if dense.ndim not in (2, 3):
        raise ValueError(f"dense must have shape (K, N) or (batch, K, N), got {tuple(dense.shape)}")
    needed = matrix.shape[0] if transpose else matrix.shape[1]
    if dense.shape[-2] != needed:
        name = f"the transpose of the {matrix.shape} matrix" if transpose else f"the {matrix.shape} matrix"
        raise ValueError(f"{name} needs dense with {needed} rows, got shape {tuple(dense.shape)}")
