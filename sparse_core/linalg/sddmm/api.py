"""Choice of the implementation of the sampled dense product."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels.autocast import without_autocast
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton
from sparse_core.linalg import loops
from sparse_core.linalg.implementation import real
from sparse_core.linalg.sddmm.common import Pattern


def _torch_samples(kind: str, dtype: torch.dtype, form: type) -> str | None:
    if form is CSR and (dtype in (torch.float32, torch.float64) or (dtype.is_complex and kind == "cuda")):
        return None
    return (
        "supports CSR in float32 and float64 (complex on CUDA),"
        f" not {form.__name__} in {dtype} on {kind}: use 'reference'"
    )


def _loops_sample(kind: str, dtype: torch.dtype, form: type) -> str | None:
    return loops.why_not(kind, dtype) if form is CSR else f"needs CSR, got {form.__name__}"


SDDMM: Op[torch.dtype, type] = Op(
    "sddmm",
    __package__,
    Implementation("cpu", "CSR; float32 or float64; a CPU, a C++ compiler", _loops_sample, ("cpu",)),
    by_triton(needs="real numbers", supports=real),
    Implementation("vendor", "CSR; float32 or float64, on CUDA also complex", _torch_samples),
    by_torch(),
    gradient=True,
)


def impl_for(product: str) -> str:
    """Return the implementation that samples the gradient of a product's values."""
    # Those of the product may support more formats and types.
    return "auto" if product in ("vendor", "cpu") else product


@without_autocast
def sampled_values(pattern: Pattern, a: Tensor, b: Tensor, impl: str) -> Tensor:
    """Return the values of :func:`sddmm`, like ``pattern.values``, without gradients and checks."""
    chosen = SDDMM.choose(impl, pattern.device, torch.promote_types(a.dtype, b.dtype), type(pattern))
    values: Tensor = SDDMM.load(chosen).sddmm(pattern, a.detach(), b.detach())
    return values
