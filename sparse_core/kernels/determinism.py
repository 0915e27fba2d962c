"""Vector mathematics of a CPU, resolved by one thread before several ask for it.

torch computes ``exp``, ``log``, ``sqrt`` and the like with MKL's vector functions, one chunk to a thread. MKL
chooses the code of such a function at its first call, and where that is made by several threads at once, one
of them may run a far less accurate variant, for that call alone (seen with float64: errors of 1e-9; described
in https://github.com/pytorch/pytorch/issues/188792). One call of a single element per function, made here at
import, settles the choice: the first result of a process is the same as all later ones.
"""

from __future__ import annotations

import torch

#: What torch gives to MKL for contiguous tensors on a CPU.
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
