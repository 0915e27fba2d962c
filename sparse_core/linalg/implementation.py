"""Implementations that the sparse product ops share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparse_core.kernels.op import Implementation, by_torch, by_triton
from sparse_core.linalg import loops

HALF = (torch.float16, torch.bfloat16)


def real(kind: str, dtype: torch.dtype, *_: object) -> str | None:
    """Return why Triton kernels do not support a complex type, None for a real one."""
    return f"does not support {dtype}: use 'vendor' or 'reference'" if dtype.is_complex else None


def _library_runs(kind: str, dtype: torch.dtype) -> str | None:
    if kind not in ("cpu", "cuda"):
        return f"does not support {kind}: use 'reference'"
    if kind == "cpu" and dtype in HALF:
        return f"does not support {dtype} on a CPU: use 'reference'"
    return None


LIBRARY: Implementation[torch.dtype] = Implementation(
    "vendor", "CUDA, or a CPU and no half precision", _library_runs
)
LOOPS: Implementation[torch.dtype] = Implementation(
    "cpu", "float32 or float64; a CPU, a C++ compiler", loops.why_not, ("cpu",)
)
#: Implementations of products; the case is the dtype of the result.
PRODUCT: Sequence[Implementation[torch.dtype]] = (
    by_triton(needs="real numbers", supports=real),
    LIBRARY,
    by_torch(),
)
