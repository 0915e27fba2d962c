"""Compiled loops over the rows of a CSR matrix, for the CPU implementations of products."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels import native

_SOURCE = Path(__file__).with_name("loops.cpp")
#: Multiply-adds that justify another thread.
_SHARE = 2**19


def why_not(kind: str, dtype: torch.dtype, *_: object) -> str | None:
    """Return why the loops cannot run, in words that follow the implementation's name; None if they can."""
    if kind != "cpu":
        return f"needs a CPU, got {kind}"
    if dtype not in (torch.float32, torch.float64):
        return f"needs float32 or float64, got {dtype}"
    if not native.available(_SOURCE):
        return "needs a C++ compiler: install g++, or name one in CXX"
    return None


def multiply(matrix: CSR, dense: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``matrix @ dense``, (M, N), for a dense (K, N)."""
    result = torch.empty(matrix.shape[0], dense.shape[1], dtype=dtype)
    _run(False, matrix, matrix.values, dense, result, dense.shape[1])
    return result


def sample(pattern: CSR, a: Tensor, b_rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``a @ b_rows.T`` at the entries, (nnz,), for a (M, K) and b_rows (N, K)."""
    result = torch.empty(pattern.nnz, dtype=dtype)
    _run(True, pattern, a, b_rows, result, a.shape[1])
    return result


def _run(sampled: bool, matrix: CSR, left: Tensor, right: Tensor, result: Tensor, width: int) -> None:
    dtype = result.dtype
    left, right = (one.detach().to(dtype).resolve_neg().contiguous() for one in (left, right))
    row_ptr, col = matrix.row_ptr.contiguous(), matrix.col.contiguous()
    threads = max(1, min(torch.get_num_threads(), matrix.nnz * width // _SHARE))
    _function()(
        sampled, dtype == torch.float64, col.dtype == torch.int64, row_ptr.data_ptr(), col.data_ptr(),
        left.data_ptr(), right.data_ptr(), result.data_ptr(), width, matrix.shape[0], threads,
    )  # fmt: skip


@cache
def _function() -> Any:
    function = native.load(_SOURCE).sparse_product
    function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 3
    function.restype = None
    return function
