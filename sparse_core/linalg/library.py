"""Matrices as torch's and scipy's own CSR, without copying, for the vendor implementations."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats import CSR


def torch_csr(matrix: CSR, dtype: torch.dtype) -> Tensor:
    """torch's sparse CSR tensor on the memory of ``matrix``, with values of ``dtype``; made once."""

    def build() -> Tensor:
        _hear_the_beta_warning_once()
        values = matrix.values.detach().to(dtype)
        return torch.sparse_csr_tensor(
            matrix.row_ptr, matrix.col, values, size=matrix.shape, check_invariants=False
        )

    return matrix.cached_values(f"linalg torch csr {dtype}", build)


def scipy_csr(matrix: CSR, dtype: torch.dtype) -> scipy.sparse.csr_array:
    """scipy's CSR array on the memory of ``matrix`` (on a CPU), with values of ``dtype``; made once."""

    def build() -> Any:
        values = matrix.values.detach().resolve_conj().resolve_neg().to(dtype)
        parts = (values.numpy(), matrix.col.numpy(), matrix.row_ptr.numpy())
        return scipy.sparse.csr_array(parts, shape=matrix.shape)

    return matrix.cached_values(f"linalg scipy csr {dtype}", build)


def mkl_multiplies(matrix: CSR, dtype: torch.dtype) -> bool:
    """Whether torch's CSR product on a CPU is MKL's: it wants real values and 32-bit indices."""
    return torch.backends.mkl.is_available() and not dtype.is_complex and matrix.col.dtype == torch.int32


def pattern_csr(matrix: CSR, dtype: torch.dtype) -> Tensor:
    """torch's sparse CSR tensor with the structure of ``matrix`` and zeros of ``dtype`` for values."""
    _hear_the_beta_warning_once()
    zeros = torch.zeros(matrix.col.shape, dtype=dtype, device=matrix.device)
    return torch.sparse_csr_tensor(
        matrix.row_ptr, matrix.col, zeros, size=matrix.shape, check_invariants=False
    )


@cache
def _hear_the_beta_warning_once() -> None:
    """torch says once per process that sparse CSR is in beta; let it say so unheard, to nobody's filters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pointer = torch.zeros(1, dtype=torch.int32)
        torch.sparse_csr_tensor(pointer, pointer[:0], torch.zeros(0), size=(0, 0), check_invariants=False)
