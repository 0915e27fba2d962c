"""Which implementation runs."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sparse_core.dispatch import Impl, check_impl, check_triton_runs, module_available, require_module
from sparse_core.errors import ImplementationError


def chosen(impl: Impl, tensor: Tensor) -> Literal["reference", "triton"]:
    """The implementation for this tensor: Triton on a GPU where it is installed, else plain torch.

    Raises:
        ValueError: no such implementation.
        ImplementationError: a named one cannot run here.
    """
    check_impl(impl)
    if impl == "vendor":
        raise ImplementationError("the index has no impl='vendor'; use 'reference' or 'triton'")
    if impl == "triton":
        require_module("triton", impl=impl, hint="pip install 'sparsight[gpu]'")
        from memory.index.cuda import codes_triton

        check_triton_runs(tensor, codes_triton.levels_kernel)
        return "triton"
    if impl == "auto" and tensor.is_cuda and module_available("triton"):
        return "triton"
    return "reference"
