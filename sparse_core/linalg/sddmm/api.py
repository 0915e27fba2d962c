"""Dense product sampled at the stored positions of a sparse matrix: which implementation runs."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.autocast import without_autocast
from sparse_core.dispatch import Impl
from sparse_core.linalg.implementation import Chosen, choose_implementation
from sparse_core.linalg.sddmm import reference, vendor
from sparse_core.linalg.sddmm.common import Pattern


@without_autocast
def sampled_values(pattern: Pattern, a: Tensor, b: Tensor, impl: Impl) -> Tensor:
    """Values of :func:`sddmm`, in the layout of ``pattern.values``, without gradients and argument checks."""
    chosen = _choose(impl, pattern, torch.promote_types(a.dtype, b.dtype))
    if chosen == "reference":
        return reference.sddmm(pattern, a.detach(), b.detach())
    if chosen == "vendor":
        return vendor.sddmm(pattern, a.detach(), b.detach())
    from sparse_core.linalg.sddmm import triton

    triton.check_runnable(a)
    return triton.sddmm(pattern, a.detach(), b.detach())


def _choose(impl: Impl, pattern: Pattern, dtype: torch.dtype) -> Chosen:
    chosen = choose_implementation(impl, pattern.device, dtype)
    if impl == "auto" and chosen == "vendor" and not vendor.supports(pattern, dtype):
        return "reference"
    return chosen
