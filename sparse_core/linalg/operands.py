"""Operands of the products: accepted types, and types of results, sums and gradients."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from sparse_core.formats import CSR, SparseMatrix
from sparse_core.formats.validation import VALUE_DTYPES
from sparse_core.kernels import torch_internals
from sparse_core.kernels.gradients import needs_autograd

#: Types that solvers and factorisations support.
WORKING_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums: float32 for half-precision results, else the type itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def result_dtype(matrix: SparseMatrix, dense: Tensor) -> torch.dtype:
    """Return the type of a product: the promotion of both operands (float16 with bfloat16 gives float32)."""
    return torch.promote_types(matrix.dtype, dense.dtype)


def as_gradient(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a gradient to its operand's type, taking the real part for a real operand."""
    return (gradient.real if gradient.is_complex() and not dtype.is_complex else gradient).to(dtype)


def check_matrix(matrix: object, name: str) -> None:
    """Raise ``TypeError`` unless ``matrix`` is a matrix of sparse_core.formats."""
    if not isinstance(matrix, SparseMatrix):
        raise TypeError(
            f"{name} must be a sparse matrix of sparse_core.formats, got {type(matrix).__name__}"
            ": convert it with CSR.from_dense, CSR.from_scipy or CSR.from_torch"
        )


def check_square(matrix: object) -> None:
    """Raise ``TypeError`` unless ``matrix`` is CSR, ``ValueError`` unless it is square."""
    if not isinstance(matrix, CSR):
        own = "matrix.to(CSR)" if isinstance(matrix, SparseMatrix) else None
        how = own or ("CSR.from_torch" if isinstance(matrix, Tensor) else "CSR.from_scipy")
        raise TypeError(f"matrix must be CSR, got {type(matrix).__name__}: convert it with {how}")
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, got {matrix.shape[0]} x {matrix.shape[1]}")


def check_dense(dense: Tensor, name: str, device: torch.device) -> None:
    """Raise unless ``dense`` is a strided floating or complex tensor on ``device``."""
    if not isinstance(dense, Tensor) or dense.layout != torch.strided:
        found = f"a tensor of layout {dense.layout}" if isinstance(dense, Tensor) else type(dense).__name__
        how = "CSR.from_torch, or .to_dense()" if isinstance(dense, Tensor) else "torch.as_tensor"
        raise TypeError(f"{name} must be a dense tensor, got {found}: convert it with {how}")
    if dense.dtype not in VALUE_DTYPES:
        raise TypeError(
            f"{name} must be floating or complex, got {dense.dtype}: convert it with .to(float32)"
        )
    if dense.device != device:
        raise ValueError(f"{name} is on {dense.device} and the matrix on {device}: move one of them with .to")


def gradient_needed(*operands: SparseMatrix | Tensor) -> bool:
    """True if autograd or a transform of torch.func follows any of these matrices and tensors."""
    if torch_internals.transforms_active():
        # Only an autograd.Function gets tensors that kernels can read.
        return True
    parts = [one._value_tensors() if isinstance(one, SparseMatrix) else (one,) for one in operands]
    return needs_autograd(*(tensor for tensors in parts for tensor in tensors))


def tracked_values(matrix: SparseMatrix) -> Tensor | None:
    """Return the values of a matrix if autograd follows them, else None."""
    return matrix.values if gradient_needed(matrix) else None


def sum_of(parts: list[Tensor]) -> Tensor:
    """Sum of one or more tensors."""
    return functools.reduce(torch.add, parts)
