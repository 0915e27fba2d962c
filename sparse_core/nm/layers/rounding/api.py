"""Round a tensor to int8 with a given or computed scale, without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.kernels.op import Impl, Op, by_torch, by_triton


def _has_kernels(kind: str, dtype: torch.dtype, size: int) -> str | None:
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"takes float16, bfloat16 or float32, not {dtype}"
    return None if size else "takes what is not empty"


#: Case: type and size of the input.
QUANTISE_INPUT: Op[torch.dtype, int] = Op(
    "quantise_input",
    __package__,
    by_triton(needs="float16, bfloat16 or float32", supports=_has_kernels),
    by_torch(),
    gradient=False,
)


def quantise_input(x: Tensor, scale: Tensor | None = None, *, impl: Impl = "auto") -> tuple[Tensor, Tensor]:
    """Round ``x / scale`` to int8, half to even, clipped to ±127.

    Args:
        x: (..., in) floating point, any strides.
        scale: () float32 on the device of ``x``, positive. ``None`` uses a scale for each row: its largest
            absolute value over 127, 1 if the row is zero and NaN if it holds NaN.
        impl: ``"reference"`` is plain torch, ``"triton"`` one kernel; ``"auto"`` follows the device.

    Returns:
        The int8 tensor in the shape of ``x``, 0 for NaN, and the float32 scale: the given one, or (..., 1).
        Both are identical for every ``impl``.
    """
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point to be rounded to int8, got {x.dtype}")
    # Compilers fuse the plain steps with their neighbours.
    if impl == "auto" and torch.compiler.is_compiling():
        impl = "reference"
    implementation = QUANTISE_INPUT.pick(impl, x.device, x.dtype, x.numel())
    rounded: tuple[Tensor, Tensor] = implementation.quantise_input(x.detach(), scale)
    return rounded
