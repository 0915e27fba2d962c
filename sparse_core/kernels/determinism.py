"""Deterministic vector functions on a CPU: one thread resolves them before several threads call them.

torch computes ``exp``, ``log``, ``sqrt`` and others with MKL's vector functions, one chunk per thread. MKL
selects the code of a function at its first call. If several threads make that call at once, one of them may
run a far less accurate variant for that call (float64 errors of 1e-9;
https://github.com/pytorch/pytorch/issues/188792). So each function is called here once, on a single element,
at import.
"""

from __future__ import annotations

import torch

#: Functions that torch delegates to MKL for contiguous tensors on a CPU.
VECTOR_FUNCTIONS = (
    "acos",
    "asin",
    "atan",
    "cos",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "tan",
    "tanh",
)


def resolve_vector_functions() -> None:
    """Call every vector function once for float32 and float64; takes well under a millisecond."""
    for dtype in (torch.float32, torch.float64):
        half = torch.full((1,), 0.5, dtype=dtype, device="cpu")
        for name in VECTOR_FUNCTIONS:
            getattr(torch, name)(half)


resolve_vector_functions()
