"""Which implementation a product runs: the one place where ``impl`` becomes a decision."""

from __future__ import annotations

from typing import Literal

import torch

from sparse_core.dispatch import Impl, check_impl, module_available, require_module
from sparse_core.errors import ImplementationError

#: An implementation by name, after ``"auto"`` was decided.
Chosen = Literal["reference", "triton", "vendor"]

_HALF = (torch.float16, torch.bfloat16)


def choose_implementation(
    impl: Impl, device: torch.device, dtype: torch.dtype, *, prefers_vendor: bool = False
) -> Chosen:
    """Decide ``impl`` for a result of ``dtype`` on ``device``.

    ``"auto"`` on CUDA is Triton where it is installed, and the library for complex values and for products
    that have no kernel (``prefers_vendor``). On a CPU it is the library, except for half precision, which
    no library multiplies there.

    Raises:
        ValueError: ``impl`` is not one of the four names.
        ImplementationError: ``impl`` was named and cannot run here.
    """
    check_impl(impl)
    if impl == "auto":
        return _automatic(device, dtype, prefers_vendor)
    if impl == "triton":
        require_module("triton", impl=impl, hint="pip install triton")
        if dtype.is_complex:
            raise ImplementationError(
                f"impl='triton' has no kernels for {dtype}: take 'vendor' or 'reference'"
            )
    if impl == "vendor":
        if device.type not in ("cpu", "cuda"):
            raise ImplementationError(f"impl='vendor' has no library for {device}: take 'reference'")
        if device.type == "cpu" and dtype in _HALF:
            raise ImplementationError(f"impl='vendor' has no library for {dtype} on a CPU: take 'reference'")
    return impl


def _automatic(device: torch.device, dtype: torch.dtype, prefers_vendor: bool) -> Chosen:
    if device.type == "cuda":
        triton = module_available("triton") and not dtype.is_complex and not prefers_vendor
        return "triton" if triton else "vendor"
    if device.type == "cpu" and dtype not in _HALF:
        return "vendor"
    return "reference"
