"""The number formats that features of a frame may have, and where each runs."""

from __future__ import annotations

from typing import Literal

import torch

from perception.model.network import Network
from perception.stages.cpu import PlannedMaps

Precision = Literal["float16", "bfloat16", "float32"]
PRECISIONS: dict[Precision, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}


def usable_precision(
    asked: Precision | None, network: Network, device: torch.device, *, graphs: bool
) -> Precision:
    """The precision of the features of frames, checked.

    Args:
        asked: None: float16 in CUDA graphs, float32 elsewhere.
        network: that makes them.
        device: where it runs.
        graphs: frames are CUDA graphs.

    Raises:
        ValueError: no such precision, or not here.
    """
    if asked is not None and asked not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {asked!r}")
    if graphs:
        return asked or "float16"
    reason = _why_not(asked, network, device)
    if reason is not None:
        raise ValueError(f"precision={asked!r} cannot be: {reason}; precision='float32' can")
    return asked or "float32"


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 numbers; others take much longer than in float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _why_not(asked: Precision | None, network: Network, device: torch.device) -> str | None:
    if asked is None or asked == "float32":
        return None
    if asked != "bfloat16" or device.type != "cpu":
        return "frames that are no CUDA graphs are float32, or bfloat16 on a CPU"
    if not PlannedMaps.suits(network):
        return (
            "on a CPU bfloat16 is for sparse networks of no named implementation whose strided layers dilate"
        )
    if not has_bfloat16():
        return "this CPU has no products of bfloat16 (AVX512-BF16 or AMX)"
    return None
