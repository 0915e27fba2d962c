"""The lowest numbers of many short lists."""

from __future__ import annotations

import torch
from torch import Tensor

from memory.index.cuda.implementation import NEVER, chosen
from sparse_core.dispatch import Impl

#: One program holds a whole list.
WIDTH_LIMIT = 1 << 15
_SCALE = 32768.0


def lowest(values: Tensor, count: int, *, impl: Impl = "auto") -> Tensor:
    """Places of the ``count`` lowest numbers of each list, equal ones by place.

    Args:
        values: (lists, width) int16 from 0; 32767 never counts. Or float16: coordinates of unit vectors,
            of which those of the largest magnitude come first.
        count: places a list.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Returns:
        (lists, count) int32 places in rising order, -1 behind them where fewer count.

    Raises:
        ValueError: shape, width or count do not fit.
        TypeError: neither int16 nor float16.
    """
    if values.dim() != 2 or values.shape[1] > WIDTH_LIMIT:
        raise ValueError(f"values must be (lists, at most {WIDTH_LIMIT}), got {tuple(values.shape)}")
    if values.dtype not in (torch.int16, torch.float16):
        raise TypeError(f"values must be int16 or float16, got {values.dtype}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    if 0 in values.shape:
        return torch.full((len(values), count), -1, dtype=torch.int32, device=values.device)
    if chosen(impl, values) == "triton":
        from memory.index.cuda import selection_triton

        return selection_triton.lowest(values, count)
    return lowest_reference(values, count)


def magnitude_order(values: Tensor) -> Tensor:
    """int16 numbers that fall as the magnitude of float16 coordinates rises."""
    return ((NEVER - 1) - (values.float().abs() * _SCALE).to(torch.int32).clamp_max(NEVER - 1)).to(
        torch.int16
    )


def lowest_reference(values: Tensor, count: int) -> Tensor:
    """See :func:`lowest`."""
    numbers = magnitude_order(values) if values.dtype == torch.float16 else values
    width = values.shape[1]
    kept = min(count, width)
    # Number above place: one key that has no equals.
    keys = (numbers.to(torch.int64) << 32) | torch.arange(width, device=values.device)
    best = keys.topk(kept, dim=1, largest=False, sorted=False).values
    place = torch.where(best >> 32 == NEVER, width, best & 0xFFFFFFFF).sort(1).values
    out = torch.full((len(values), count), -1, dtype=torch.int32, device=values.device)
    out[:, :kept] = torch.where(place == width, -1, place)
    return out
