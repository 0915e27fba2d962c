"""Number formats of a frame's features, and the devices that support them."""

from __future__ import annotations

from typing import Literal

import torch

from perception.model.network import Network
from perception.stages.cpu import PlannedMaps

Precision = Literal["float16", "bfloat16", "float32", "int8"]
PRECISIONS: dict[Precision, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "int8": torch.int8,
}


def usable_precision(
    asked: Precision | None, network: Network, device: torch.device, *, graphs: bool
) -> Precision:
    """Return the precision of features: ``asked``, or float16 in CUDA graphs and float32 elsewhere."""
    if asked is not None and asked not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {asked!r}")
    if graphs and asked != "int8":
        return asked or "float16"
    reason = _why_not(asked, network, device)
    if reason is not None:
        raise ValueError(f"precision={asked!r} is not supported here: {reason}. Use precision='float32'.")
    return asked or "float32"


def name_of(dtype: torch.dtype) -> Precision:
    """Return the name of a dtype of features."""
    return next(name for name, known in PRECISIONS.items() if known == dtype)


def has_bfloat16() -> bool:
    """Return True if this CPU multiplies bfloat16 numbers; on others they are slower than float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _why_not(asked: Precision | None, network: Network, device: torch.device) -> str | None:
    if asked is None or asked == "float32":
        return None
    if asked == "int8" and device.type != "cpu":
        return "int8 runs on a CPU only"
    if asked == "float16" or device.type != "cpu":
        return "without CUDA graphs frames run in float32, or in bfloat16 or int8 on a CPU"
    if not PlannedMaps.suits(network):
        return f"on a CPU {asked} needs a sparse network with impl='auto' and dilating strided layers"
    if asked == "int8":
        return _why_not_int8(network)
    if not has_bfloat16():
        return "this CPU cannot multiply bfloat16 (AVX512-BF16 or AMX)"
    return None


def _why_not_int8(network: Network) -> str | None:
    if network.ranges is None:
        return "these weights have no int8 ranges, which perceive quantise measures on about 20 scans"
    # This module loads all of sparse_core.nm.
    from sparse_core.conv.convolution.cpu.int8 import compiled

    if not compiled.available():
        return "int8 needs a C++ compiler (install g++), or a platform wheel"
    # Start the compilation now; the reference computes frames until it is ready.
    compiled.PRODUCTS.library()
    return None
