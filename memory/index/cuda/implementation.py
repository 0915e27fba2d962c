"""Which implementation runs, and what the kernels share."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from sparse_core.dispatch import Impl, check_impl, check_triton_runs, module_available, require_module
from sparse_core.errors import ImplementationError

#: Distance of what never counts: removed rows and empty slots.
NEVER = 32767


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
        from memory.index.cuda import selection_triton

        check_triton_runs(tensor, selection_triton.lowest_kernel)
        return "triton"
    if impl == "auto" and tensor.is_cuda and module_available("triton"):
        return "triton"
    return "reference"


def check_words(name: str, words: Tensor, dimensions: int) -> None:
    """Raise unless these are int32 words of this many dimensions."""
    if words.dim() != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, got shape {tuple(words.shape)}")
    if str(words.dtype) != "torch.int32":
        raise TypeError(f"{name} must be int32, got {words.dtype}")
