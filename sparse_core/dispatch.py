"""Choice of implementation: one function, no registry.

``"auto"`` follows the tensor's device; a name that cannot run raises and never falls back silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.libraries import module_available
from sparse_core.op import Impl

__all__ = [
    "Impl",
    "check_impl",
    "check_triton_runs",
    "module_available",
    "require_module",
    "triton_or_reference",
]


def check_impl(impl: str) -> None:
    """Raise ``ValueError`` when ``impl`` is not one of the four names."""
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(get_args(Impl))}; got {impl!r}")


def require_module(name: str, *, impl: str, hint: str) -> None:
    """Raise ``ImplementationError`` when the library behind ``impl`` is not installed."""
    if not module_available(name):
        raise ImplementationError(f"impl={impl!r} needs {name}, which is not installed: {hint}")


def check_triton_runs(tensor: Tensor, kernel: object) -> None:
    """Raise ``ImplementationError`` unless Triton can run ``kernel`` on this tensor."""
    import triton

    # TRITON_INTERPRET is read when a kernel is defined; asking the kernel tells what it was then.
    if not tensor.is_cuda and isinstance(kernel, triton.JITFunction):
        raise ImplementationError(
            f"impl='triton' needs CUDA tensors, got {tensor.device}"
            " (TRITON_INTERPRET=1 in the environment runs it on a CPU)"
        )


def triton_or_reference(
    impl: Impl, tensor: Tensor, *, operation: str, check_runs: Callable[[Tensor], None]
) -> Literal["reference", "triton"]:
    """The implementation of an operation without a vendor's: ``"auto"`` is Triton on CUDA where installed.

    Args:
        impl: as the caller got it.
        tensor: whose device decides.
        operation: for messages.
        check_runs: imports the kernels and raises ``ImplementationError`` unless they run on the tensor.

    Raises:
        ValueError: no such implementation.
        ImplementationError: a named one does not exist or cannot run here.
    """
    check_impl(impl)
    if impl == "vendor":
        raise ImplementationError(
            f"{operation}: no vendor implementation (no impl='vendor'); use 'reference' or 'triton'"
        )
    if impl == "triton":
        require_module("triton", impl=impl, hint="pip install triton")
        check_runs(tensor)
        return "triton"
    return "triton" if impl == "auto" and tensor.is_cuda and module_available("triton") else "reference"
