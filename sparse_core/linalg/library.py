"""Conversions to torch's and scipy's CSR without copying, for the vendor implementations."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import scipy.sparse
import torch
from torch import Tensor

from sparse_core.formats import CSR


def torch_csr(matrix: CSR, dtype: torch.dtype) -> Tensor:
    """Return torch's sparse CSR tensor with values of ``dtype`` on the memory of ``matrix``; cached."""

    def build() -> Tensor:
        _suppress_beta_warning()
        values = matrix.values.detach().to(dtype)
        return torch.sparse_csr_tensor(
            matrix.row_ptr, matrix.col, values, size=matrix.shape, check_invariants=False
        )

    return matrix.cached_values(f"linalg torch csr {dtype}", build)


def scipy_csr(matrix: CSR, dtype: torch.dtype) -> scipy.sparse.csr_array:
    """Return scipy's CSR array with values of ``dtype`` on the memory of ``matrix`` (on a CPU); cached."""

    def build() -> Any:
        values = matrix.values.detach().resolve_conj().resolve_neg().to(dtype)
        parts = (values.numpy(), matrix.col.numpy(), matrix.row_ptr.numpy())
        return scipy.sparse.csr_array(parts, shape=matrix.shape)

    return matrix.cached_values(f"linalg scipy csr {dtype}", build)


def mkl_multiplies(matrix: CSR, dtype: torch.dtype) -> bool:
    """True if torch multiplies this CSR on a CPU by MKL, which needs real values and 32-bit indices."""
    return torch.backends.mkl.is_available() and not dtype.is_complex and matrix.col.dtype == torch.int32


def pattern_csr(matrix: CSR, dtype: torch.dtype) -> Tensor:
    """Return torch's sparse CSR tensor with the structure of ``matrix`` and zero values of ``dtype``."""
    _suppress_beta_warning()
    zeros = torch.zeros(matrix.col.shape, dtype=dtype, device=matrix.device)
    return torch.sparse_csr_tensor(
        matrix.row_ptr, matrix.col, zeros, size=matrix.shape, check_invariants=False
    )


@cache
def _suppress_beta_warning() -> None:
    """Trigger torch's beta warning of sparse CSR, issued once per process, where it is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pointer = torch.zeros(1, dtype=torch.int32)
        torch.sparse_csr_tensor(pointer, pointer[:0], torch.zeros(0), size=(0, 0), check_invariants=False)
