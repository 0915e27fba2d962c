"""Shared parts of the product's implementations: checks, shapes and the epilogue."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from sparse_core.kernels import torch_internals
from sparse_core.nm.packing.packed_weight import PackedNM

Activation = Literal["relu", "gelu"]
LinearImpl = Literal["auto", "reference", "dense", "cuda", "vendor", "cpu"]
"""``"dense"`` is the dense product of the unpacked weight, on any device; ``"cuda"`` is the kernel for few
rows and ``"vendor"`` cuSPARSELt, which need a GPU with sparse tensor cores; ``"cpu"`` is for few rows of
float32 on a processor with AVX-512; ``"auto"`` chooses."""

_SPARSE_CORES_SINCE = (8, 0)
INT8_RESULTS = (torch.int32, torch.float16, torch.bfloat16, torch.float32)


class LinearEpilogue(NamedTuple):
    """Operations on the sums of a product (scale, bias, activation), and the type of the result."""

    activation: str | None
    has_bias: bool
    scaled: bool
    out_dtype: torch.dtype


def needs_plain_torch() -> bool:
    """Return True if only torch's own operations can be traced.

    These are transforms of ``torch.func``, forward-mode derivatives, ``torch.jit.trace`` and exports to ONNX.
    """
    return (
        torch_internals.transforms_active()
        or torch_internals.forward_mode_active()
        or torch_internals.tracing()
        or (torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export())
    )


def check_operands(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    scale: Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.dtype:
    """Check everything that needs no values; returns the type of the result."""
    out, columns = weight.shape
    if x.ndim == 0 or x.shape[-1] != columns:
        raise ValueError(f"x must have {columns} features in its last dimension, got shape {tuple(x.shape)}")
    if x.device != weight.device:
        raise ValueError(f"x is on {x.device} but the weight is on {weight.device}")
    if x.dtype != weight.dtype:
        raise TypeError(f"x is {x.dtype} but the weight is {weight.dtype}: convert one of them")
    if bias is not None and tuple(bias.shape) != (out,):
        raise ValueError(f"bias must have shape {(out,)}, got {tuple(bias.shape)}")
    if bias is not None and bias.device != x.device:
        raise ValueError(f"bias is on {bias.device} but x is on {x.device}")
    if bias is not None and (
        not bias.is_floating_point() if x.dtype == torch.int8 else bias.dtype != x.dtype
    ):
        raise TypeError(f"bias is {bias.dtype} but x is {x.dtype}: convert one of them")
    if activation is not None and activation not in get_args(Activation):
        raise ValueError(
            f"activation must be None or one of {', '.join(get_args(Activation))}, got {activation!r}"
        )
    if x.dtype != torch.int8:
        if scale is not None:
            raise ValueError("scale needs an int8 weight; the weight is " + str(weight.dtype))
        if out_dtype not in (None, x.dtype):
            raise ValueError(f"out_dtype={out_dtype} needs an int8 weight; x is {x.dtype}")
        return x.dtype
    if scale is not None and scale.device != x.device:
        raise ValueError(f"scale is on {scale.device} but x is on {x.device}")
    return _check_int8(scale, out_dtype, out, bias, activation)


def check_dense(dense: Tensor | None, weight: PackedNM) -> None:
    """Raise unless ``dense`` has shape, type and device of the unpacked weight."""
    if dense is None:
        return
    if tuple(dense.shape) != weight.shape:
        raise ValueError(f"dense must have the weight's shape {weight.shape}, got {tuple(dense.shape)}")
    if dense.device != weight.device:
        raise ValueError(f"dense is on {dense.device} but the weight is on {weight.device}")
    if dense.dtype != weight.dtype:
        raise TypeError(f"dense is {dense.dtype} but the weight is {weight.dtype}")


def _check_int8(
    scale: Tensor | None, out_dtype: torch.dtype | None, out: int, bias: Tensor | None, activation: str | None
) -> torch.dtype:
    if scale is not None and (tuple(scale.shape) != (out,) or scale.dtype != torch.float32):
        raise ValueError(f"scale must be float32 of shape {(out,)}, got {scale.dtype} {tuple(scale.shape)}")
    result = out_dtype or default_result(torch.int8, scale)
    if result not in INT8_RESULTS:
        raise TypeError(
            f"out_dtype of an int8 product must be {', '.join(map(str, INT8_RESULTS))}, got {result}"
        )
    if result == torch.int32 and (scale is not None or bias is not None or activation is not None):
        raise ValueError("an int32 result takes no scale, bias or activation: choose another out_dtype")
    return result


def default_result(dtype: torch.dtype, scale: Tensor | None) -> torch.dtype:
    """Return the default result type: that of the operands; for int8 the int32 sum, scaled float16."""
    if dtype != torch.int8:
        return dtype
    return torch.int32 if scale is None else torch.float16


def as_aligned(tensor: Tensor) -> Tensor:
    """Return the tensor contiguous and aligned to 16 bytes, as kernels and the library assume."""
    if tensor.is_contiguous() and tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


@cache
def has_sparse_cores(device_index: int) -> bool:
    """Return True if a CUDA device is an NVIDIA GPU with sparse tensor cores."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device_index) >= _SPARSE_CORES_SINCE


def apply_activation(y: Tensor, activation: str | None) -> Tensor:
    """Apply ReLU, exact GELU or nothing."""
    if activation == "relu":
        return torch.relu(y)
    if activation == "gelu":
        return torch.nn.functional.gelu(y)
    return y
