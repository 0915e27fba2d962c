"""Choice of the implementation of the sampled dense product."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.kernels.autocast import without_autocast
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton
from sparse_core.linalg.implementation import real
from sparse_core.linalg.sddmm.common import Pattern


def _torch_samples(kind: str, dtype: torch.dtype, form: type) -> str | None:
    if form is CSR and (dtype in (torch.float32, torch.float64) or (dtype.is_complex and kind == "cuda")):
        return None
    return (
        "supports CSR in float32 and float64 (complex on CUDA),"
        f" not {form.__name__} in {dtype} on {kind}: use 'reference'"
    )


SDDMM: Op[torch.dtype, type] = Op(
    "sddmm",
    __package__,
    by_triton(needs="real numbers", supports=real),
    Implementation("vendor", "CSR; float32 or float64, on CUDA also complex", _torch_samples),
    by_torch(),
    gradient=True,
)


@without_autocast
def sampled_values(pattern: Pattern, a: Tensor, b: Tensor, impl: str) -> Tensor:
    """Return the values of :func:`sddmm`, like ``pattern.values``, without gradients and checks."""
    chosen = SDDMM.choose(impl, pattern.device, torch.promote_types(a.dtype, b.dtype), type(pattern))
    values: Tensor = SDDMM.load(chosen).sddmm(pattern, a.detach(), b.detach())
    return values
