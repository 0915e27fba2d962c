"""Symmetric integers with a scale per row, or per group of values of a row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Shares of the largest absolute value at which the search for a scale may clip a group.
CLIP_SHARES = tuple(1 - step / 20 for step in range(11))


class QuantisedWeight(NamedTuple):
    """Result of :func:`quantise_weight`; ``values * scale[:, None]`` approximates the weight.

    Attributes:
        values: int8, shape of the weight.
        scale: (out,) float32, positive.
    """

    values: Tensor
    scale: Tensor


def quantise_weight(weight: Tensor, bits: int = 8) -> QuantisedWeight:
    """Round each row to integers of ``bits`` bits; its largest absolute value becomes the largest integer.

    Args:
        weight: (out, columns) floating point; dense, or the values of a packed weight.
        bits: 2 to 8; with b bits integers go from -(2^(b-1) - 1) to 2^(b-1) - 1.

    Returns:
        Integers, at most half a scale away from the weight, and the scales; 1 for an all-zero row.

    Raises:
        TypeError: ``weight`` is not floating point.
        ValueError: not two-dimensional, values that are not finite, or another number of bits.
    """
    if not weight.is_floating_point():
        raise TypeError(f"weight must be floating point, got {weight.dtype}")
    if weight.ndim != 2:
        raise ValueError(f"weight must have shape (out, columns), got {tuple(weight.shape)}")
    if not 2 <= bits <= 8:
        raise ValueError(f"bits must be 2 to 8, got {bits}")
    levels = 2 ** (bits - 1) - 1
    exact = weight.detach().double()
    wrong = (~exact.isfinite()).any(dim=1).nonzero()
    if len(wrong):
        raise ValueError(f"weight cannot be quantised: row {int(wrong[0])} holds NaN or infinite values")
    largest = exact.abs().amax(dim=1) if weight.shape[1] else exact.new_zeros(len(exact))
    scale = (largest / levels).float()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    values = torch.round(exact / scale.double()[:, None]).clamp_(-levels, levels)
    return QuantisedWeight(values.to(torch.int8), scale)


class GroupQuantised(NamedTuple):
    """Result of :func:`quantise_groups`.

    Attributes:
        values: (rows, count) int8.
        scale: (rows, groups) float32, or float16 if requested; positive.
        group_size: values that share a scale.
    """

    values: Tensor
    scale: Tensor
    group_size: int

    def dequantised(self) -> Tensor:
        """Return integers times their scales, (rows, count) float32."""
        return dequantise(self.values, self.scale, self.group_size)


def quantise_groups(
    values: Tensor,
    bits: int = 8,
    *,
    group_size: int | None = None,
    clip: bool = False,
    half_scales: bool = False,
) -> GroupQuantised:
    """Round values to integers of ``bits`` bits without an offset, so that zeros stay zero.

    Args:
        values: (rows, count) floating point, finite.
        bits: 2 to 8; with b bits numbers go from -(2^(b-1) - 1) to 2^(b-1) - 1.
        group_size: neighbouring values that share a scale; ``None``: one scale per row. The last group of a
            row may be shorter.
        clip: choose for each group the scale of least squared error among 11, from half of the largest
            absolute value to all of it; clips large values if the others gain more.
        half_scales: keep scales in float16; numbers are rounded with the stored scale.

    Raises:
        TypeError, ValueError: as for :func:`sparse_core.nm.quantise_weight`, or ``group_size`` below 1, or a
            scale that float16 cannot hold.
    """
    if values.ndim != 2:
        raise ValueError(f"values must have shape (rows, count), got {tuple(values.shape)}")
    rows, count = values.shape
    size = max(count, 1) if group_size is None else group_size
    if size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    padded = torch.nn.functional.pad(values.detach(), (0, -count % size))
    flat = padded.reshape(rows * (padded.shape[1] // size), size)
    numbers, scale = quantise_weight(flat, bits)
    if clip or half_scales:
        numbers, scale = _best_scales(flat, scale, bits, clip=clip, half=half_scales)
    numbers = numbers.reshape(rows, padded.shape[1])[:, :count]
    return GroupQuantised(numbers.contiguous(), scale.reshape(rows, -1), size)


def dequantise(values: Tensor, scale: Tensor, group_size: int) -> Tensor:
    """Return integers (rows, count) times scales (rows, groups), float32."""
    count = values.shape[1]
    wide = scale.float()
    if wide.shape[1] == 1:
        return values * wide
    return values * wide.repeat_interleave(group_size, dim=1)[:, :count]


def _best_scales(flat: Tensor, scale: Tensor, bits: int, *, clip: bool, half: bool) -> tuple[Tensor, Tensor]:
    """Return numbers and scales of (groups, size), each with its best candidate scale."""
    levels = 2 ** (bits - 1) - 1
    exact = flat.double()
    best_numbers = torch.zeros_like(flat, dtype=torch.int8)
    best_scale = scale
    best_error = torch.full_like(scale, float("inf"), dtype=torch.float64)
    for share in CLIP_SHARES if clip else (1.0,):
        kept = _to_half(scale * share) if half else scale * share
        step = kept.double()[:, None]
        numbers = torch.round(exact / step).clamp_(-levels, levels)
        error = (numbers * step - exact).square().sum(dim=1)
        better = error < best_error
        best_numbers = torch.where(better[:, None], numbers.to(torch.int8), best_numbers)
        best_scale = torch.where(better, kept.float(), best_scale)
        best_error = torch.where(better, error, best_error)
    return best_numbers, best_scale.half() if half else best_scale


def _to_half(scale: Tensor) -> Tensor:
    """Return scales rounded to float16, at least its smallest normal number."""
    if scale.numel() and float(scale.max()) > torch.finfo(torch.float16).max:
        raise ValueError(
            f"a scale of {float(scale.max()):.3g} does not fit float16 scales: use half_scales=False"
        )
    return scale.clamp_min(torch.finfo(torch.float16).tiny).half().float()
