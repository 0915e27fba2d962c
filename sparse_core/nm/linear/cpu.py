"""The packed product of a few rows on a CPU with AVX-512, directly from the kept values."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels import native
from sparse_core.nm.linear.common import apply_activation
from sparse_core.nm.packing.packed_weight import PackedNM

#: Rows up to which this is as fast as the dense product, and up to which it is faster than unpacking first.
MOST_ROWS, MOST_INSTEAD_OF_UNPACKING = 16, 128
_SOURCE = Path(__file__).with_name("two_four.cpp")
#: Nanoseconds per value of the weight, and per row that it is multiplied with, on one thread; and the work
#: that justifies another thread, which takes about 200 us to start.
_VALUE_NS, _ROW_NS, _THREAD_NS = 0.45, 0.04, 4e5


def why_not() -> str | None:
    """Return what is missing on this machine, in words that follow the implementation's name."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "needs a processor with AVX-512"
    if not native.available(_SOURCE):
        return "needs a C++ compiler: install g++, or name one in CXX"
    return None


def most_rows(dense: Tensor | None) -> int:
    """Return the rows up to which ``"auto"`` uses this: fewer if a dense copy exists."""
    return MOST_INSTEAD_OF_UNPACKING if dense is None else MOST_ROWS


def nm_linear(x: Tensor, weight: PackedNM, bias: Tensor | None, *, activation: str | None) -> Tensor:
    """Return ``activation(x @ weight.T + bias)``.

    Dropped weights are not multiplied, so an infinite input there gives no NaN. Each sum has a fixed order,
    whatever the number of rows and threads.

    Args:
        x: (..., in) float32, in at least 4.
        weight: (out, in) float32, 2:4.
        bias: (out,) float32.
        activation: as for the public function.
    """
    out, columns = weight.shape
    rows = x.numel() // columns
    flat = x.detach().reshape(rows, columns).contiguous()
    values, metadata = weight.values.detach().contiguous(), weight.metadata.contiguous()
    added = None if bias is None else bias.detach().contiguous()
    y = torch.empty((rows, out), dtype=torch.float32)
    threads = int(values.numel() * (_VALUE_NS + _ROW_NS * rows) / _THREAD_NS)
    threads = max(1, min(torch.get_num_threads(), threads))
    _function()(
        flat.data_ptr(), values.data_ptr(), metadata.data_ptr(), None if added is None else added.data_ptr(),
        y.data_ptr(), rows, columns, out, threads,
    )  # fmt: skip
    return apply_activation(y, activation).view(*x.shape[:-1], out)


@cache
def _function() -> Any:
    function = native.load(_SOURCE).two_four_linear
    function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * 4
    function.restype = None
    return function
