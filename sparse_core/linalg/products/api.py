"""Products of a sparse and a dense matrix, and dense products sampled at stored positions."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, SparseMatrix
from sparse_core.kernels.op import Impl
from sparse_core.linalg.operands import check_dense, check_matrix
from sparse_core.linalg.products.gradient import product, samples
from sparse_core.linalg.products.launch_plans import multiply_by_plan

PatternT = TypeVar("PatternT", CSR, COO, BSR)


def spmv(
    matrix: SparseMatrix,
    x: Tensor,
    *,
    transpose: bool = False,
    impl: Impl = "auto",
    method: str = "auto",
) -> Tensor:
    """Return ``matrix @ x``, or ``matrix.T @ x``, with gradients for the values and for ``x``.

    Formats other than BSR are transposed through CSR. The permutation is cached per structure, so transposes
    and gradients sum in a fixed order. See :func:`sparse_core.linalg.spmm` for higher gradients and
    ``torch.compile``.

    Args:
        matrix: (M, K), any format.
        x: (K,), or (M,) with ``transpose``; floating or complex, on the device of the matrix.
        transpose: multiply by the transpose (not conjugated).
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is cuSPARSE, or MKL and scipy on a CPU. ``"auto"`` on CUDA is Triton, whose results
            are bitwise reproducible (cuSPARSE for complex numbers); on a CPU it is the library (the
            reference for half precision).
        method: Triton kernel for CSR: ``"scalar"`` (a thread per row), ``"vector"`` (a warp or more per
            row), ``"adaptive"`` (rows binned by length), ``"merge"`` (equal shares for skewed rows) or
            ``"pattern"`` (rows with repeated offsets). Any name except ``"auto"`` selects Triton.

    Returns:
        (M,), or (K,) with ``transpose``, in the promoted type; half precision is summed in float32;
        autocast has no effect.

    Raises:
        TypeError: ``matrix`` is not sparse, or values or ``x`` are neither floating nor complex.
        ValueError: shapes or devices do not match; a method that the format does not have.
        ImplementationError: the named ``impl`` or ``method`` cannot run here.
    """
    if impl == "auto" and method == "auto" and not transpose and not torch.compiler.is_compiling():
        return multiply_by_plan(matrix, x, lambda: _vector_product(matrix, x, False, "auto", "auto"))
    return _vector_product(matrix, x, transpose, impl, method)


def _vector_product(matrix: SparseMatrix, x: Tensor, transpose: bool, impl: Impl, method: str) -> Tensor:
    check_matrix(matrix, "matrix")
    check_dense(x, "x", matrix.device)
    _check_vector(matrix, x, transpose)
    if method != "auto":
        if impl in ("reference", "vendor"):
            raise ValueError(f"method={method!r} needs impl='triton' or 'auto', got impl={impl!r}")
        impl = "triton"
    if torch.compiler.is_compiling():
        return _traced(matrix, x, transpose, impl)
    return product(matrix, x, transpose, impl, method)


def spmm(matrix: SparseMatrix, dense: Tensor, *, transpose: bool = False, impl: Impl = "auto") -> Tensor:
    """Return ``matrix @ dense``, or ``matrix.T @ dense``, with gradients for the values and for ``dense``.

    BSR and CSR are multiplied directly, other formats as CSR (converted once and cached). Gradients of any
    order, forward mode, ``torch.func.grad`` and ``jvp`` work. ``torch.compile`` keeps products with CSR and
    BSR, including ``matrix @ dense``, as one node with first-order gradients; other formats break its graph.

    Args:
        matrix: (M, K), any format.
        dense: (K, N) or (batch, K, N), or with ``transpose`` M for K; floating or complex, on the device
            of the matrix. A vector (K,) goes to :func:`sparse_core.linalg.spmv`.
        transpose: multiply by the transpose (not conjugated).
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is cuSPARSE, or MKL and scipy on a CPU, ``"cpu"`` is compiled loops for float32 and
            float64 (a source install compiles them at the first call). ``"auto"`` is Triton on CUDA (cuSPARSE
            for complex numbers) and the loops on a CPU; both are bitwise reproducible. Elsewhere on a CPU
            ``"auto"`` is the library, or the reference for half precision.

    Returns:
        (M, N) or (batch, M, N), with ``transpose`` K for M, in the promoted type; half precision is summed
        in float32; autocast has no effect.

    Raises:
        TypeError: ``matrix`` is not sparse, or values or ``dense`` are neither floating nor complex.
        ValueError: shapes or devices do not match.
        ImplementationError: the named ``impl`` cannot run here.
    """
    if impl == "auto" and not transpose and not torch.compiler.is_compiling():
        return multiply_by_plan(matrix, dense, lambda: _product(matrix, dense, False, "auto"))
    return _product(matrix, dense, transpose, impl)


def _product(matrix: SparseMatrix, dense: Tensor, transpose: bool, impl: Impl) -> Tensor:
    check_matrix(matrix, "matrix")
    check_dense(dense, "dense", matrix.device)
    if dense.ndim == 1:
        return _vector_product(matrix, dense, transpose, impl, "auto")
    _check_shape(matrix, dense, transpose)
    if torch.compiler.is_compiling():
        return _traced(matrix, dense, transpose, impl)
    return product(matrix, dense, transpose, impl)


def sddmm(pattern: PatternT, a: Tensor, b: Tensor, *, impl: Impl = "auto") -> PatternT:
    """Return ``a @ b`` at the stored positions of ``pattern``, with gradients for ``a`` and ``b``.

    Args:
        pattern: (M, N) CSR, COO or BSR; only its structure matters. Every stored position is sampled,
            including each duplicate of COO and all positions of BSR blocks.
        a: (M, K) floating or complex, on the device of the pattern.
        b: (K, N) likewise.
        impl: ``"reference"`` is plain torch, ``"triton"`` needs CUDA (or Triton's interpreter),
            ``"vendor"`` is torch's own (CSR in single or double precision: cuSPARSE on CUDA), ``"cpu"`` is
            compiled loops (CSR in single or double precision). ``"auto"`` is Triton on CUDA, the loops or
            torch's own on a CPU, and the reference where those are not supported.

    Returns:
        ``pattern`` with other values, of the promoted type; half precision is summed in float32; autocast
        has no effect.

    Raises:
        TypeError: ``pattern`` has another format, or an operand is neither floating nor complex.
        ValueError: shapes or devices do not match.
        ImplementationError: the named ``impl`` cannot run here.
    """
    check_matrix(pattern, "pattern")
    if not isinstance(pattern, CSR | COO | BSR):
        raise TypeError(f"pattern must be CSR, COO or BSR, got {type(pattern).__name__}: use .to(CSR)")
    for operand, name in ((a, "a"), (b, "b")):
        check_dense(operand, name, pattern.device)
        if operand.ndim != 2:
            raise ValueError(f"{name} must be a matrix, got shape {tuple(operand.shape)}")
    rows, columns = pattern.shape
    if len(a) != rows or b.shape[1] != columns or a.shape[1] != len(b):
        raise ValueError(
            f"a {pattern.shape} pattern needs a ({rows}, K) and b (K, {columns}),"
            f" got {tuple(a.shape)} and {tuple(b.shape)}"
        )
    return pattern.with_values(samples(pattern, a, b, impl))


def _traced(matrix: SparseMatrix, dense: Tensor, transpose: bool, impl: Impl) -> Tensor:
    # Import late: the operators load much of torch's compiler.
    from sparse_core.linalg.products.compiled import traced_product

    return traced_product(matrix, dense, transpose, impl)


def _check_vector(matrix: SparseMatrix, x: Tensor, transpose: bool) -> None:
    if x.ndim != 1:
        raise ValueError(f"x must have shape (K,), got {tuple(x.shape)}: use spmm for a matrix or a batch")
    needed, name = _needed(matrix, transpose)
    if len(x) != needed:
        raise ValueError(f"{name} needs x of length {needed}, got {len(x)}")


def _check_shape(matrix: SparseMatrix, dense: Tensor, transpose: bool) -> None:
    if dense.ndim not in (2, 3):
        raise ValueError(f"dense must have shape (K, N) or (batch, K, N), got {tuple(dense.shape)}")
    needed, name = _needed(matrix, transpose)
    if dense.shape[-2] != needed:
        raise ValueError(f"{name} needs dense with {needed} rows, got shape {tuple(dense.shape)}")


def _needed(matrix: SparseMatrix, transpose: bool) -> tuple[int, str]:
    # Rows that the dense operand must have, and the name of the matrix for the message.
    name = f"the {matrix.shape} matrix"
    return (matrix.shape[0], f"the transpose of {name}") if transpose else (matrix.shape[1], name)
