"""Sparse convolution over a kernel map."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.conv.convolution import reference
from sparse_core.conv.convolution.plan import TRITON_DTYPES
from sparse_core.conv.kernel_map import KernelMap
from sparse_core.dispatch import Impl, check_impl, module_available, require_module
from sparse_core.errors import ImplementationError

__all__ = ["sparse_convolution"]


def sparse_convolution(
    features: Tensor,
    weight: Tensor,
    kernel_map: KernelMap,
    *,
    bias: Tensor | None = None,
    groups: int = 1,
    impl: Impl = "auto",
) -> Tensor:
    """Convolve features over a kernel map, with gradients for features, weight and bias.

    Under ``torch.autocast`` the product runs in the autocast dtype.

    Args:
        features: (N, C_in) floating point.
        weight: (C_out, *kernel, C_in / groups), the layout of spconv 2.
        kernel_map: pairs for N inputs and M outputs, with as many taps as the kernel has.
        bias: (C_out,) or None.
        groups: parts of the channels that are convolved on their own, one after the other.
        impl: ``"triton"`` (float16, bfloat16 or float32, sums in float32), ``"reference"`` or ``"auto"``:
            Triton for CUDA tensors of its types. spconv runs whole layers (it owns its maps): ask the modules
            of ``sparse_core.conv.modules`` for ``impl="vendor"``.

    Returns:
        (M, C_out).

    Raises:
        ValueError: shapes that do not fit together.
        ImplementationError: an ``impl`` that does not exist for this op.
    """
    check_impl(impl)
    if impl == "vendor":
        raise ImplementationError("sparse_convolution has no 'vendor' implementation; use 'reference'")
    if groups != 1:
        return _grouped(features, weight, kernel_map, bias, groups, impl)
    kernel_taps = kernel_map.neighbors.shape[1]
    if weight.ndim < 3 or weight.shape[-1] != features.shape[-1] or weight[0, ..., 0].numel() != kernel_taps:
        raise ValueError(
            f"weight must be (C_out, *kernel, {features.shape[-1]}) with {kernel_taps} taps,"
            f" got {tuple(weight.shape)}"
        )
    if len(kernel_map.inverse) != len(features):
        raise ValueError(
            f"the map is for {len(kernel_map.inverse)} input rows, features have {len(features)}"
        )
    if torch.is_autocast_enabled(features.device.type):
        dtype = torch.get_autocast_dtype(features.device.type)
        features, weight = features.to(dtype), weight.to(dtype)
    if bias is not None:
        bias = bias.to(weight.dtype)
    supported = features.dtype in TRITON_DTYPES and features.dtype == weight.dtype
    if impl == "auto" and features.is_cuda and supported and module_available("triton"):
        impl = "triton"
    if impl != "triton":
        return reference.sparse_convolution(features, weight, kernel_map, bias)
    require_module("triton", impl="triton", hint="pip install triton")
    from sparse_core.conv.convolution import gradient, triton

    triton.check_runnable(features)
    if not supported:
        raise ImplementationError(
            "impl='triton' takes features and weight of one type, float16, bfloat16 or float32;"
            f" got {features.dtype} and {weight.dtype}"
        )
    return gradient.sparse_convolution(features, weight, kernel_map, bias)


def _grouped(
    features: Tensor, weight: Tensor, kernel_map: KernelMap, bias: Tensor | None, groups: int, impl: Impl
) -> Tensor:
    if groups < 1 or len(weight) % groups or features.shape[-1] % groups:
        raise ValueError(f"groups must divide {features.shape[-1]} and {len(weight)} channels, got {groups}")
    parts = zip(features.chunk(groups, 1), weight.chunk(groups), strict=True)
    found = [sparse_convolution(some, matrix, kernel_map, impl=impl) for some, matrix in parts]
    result = torch.cat(found, 1)
    return result if bias is None else result + bias.to(result.dtype)
