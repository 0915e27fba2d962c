"""Where products with sparse matrices run: what their ops have in common."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparse_core.kernels.op import Implementation, by_torch, by_triton

HALF = (torch.float16, torch.bfloat16)


def real(kind: str, dtype: torch.dtype, *_: object) -> str | None:
    """Why Triton has no kernels for numbers of this type."""
    return f"has no kernels for {dtype}: take 'vendor' or 'reference'" if dtype.is_complex else None


def _library_runs(kind: str, dtype: torch.dtype) -> str | None:
    if kind not in ("cpu", "cuda"):
        return f"has no library for {kind}: take 'reference'"
    if kind == "cpu" and dtype in HALF:
        return f"has no library for {dtype} on a CPU: take 'reference'"
    return None


LIBRARY: Implementation[torch.dtype] = Implementation(
    "vendor", "CUDA, or a CPU and no half precision", _library_runs
)
#: Implementations of products, by the type of the result.
PRODUCT: Sequence[Implementation[torch.dtype]] = (
    by_triton(needs="real numbers", supports=real),
    LIBRARY,
    by_torch(),
)
