"""Keep the k largest activations of each row, the k strongest channels, or the k strongest blocks."""

from __future__ import annotations

from numbers import Integral
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from sparse_core.dynamic.ranking import best_entries, check_batch
from sparse_core.nm.training.estimators import masked_weight

Granularity = Literal["row", "channel", "block"]
RankedBy = Literal["magnitude", "value"]
Gradient = Literal["kept", "straight-through"]


def top_k_mask(
    x: Tensor, k: int, *, granularity: Granularity = "row", block_size: int = 16, by: RankedBy = "magnitude"
) -> Tensor:
    """Return a mask with exactly ``k`` entries, channels or blocks; ties go to the first.

    NaN counts as the largest, so that it stays visible.

    Args:
        x: (..., width) for ``"row"`` and ``"block"``; (B, C, ...) for ``"channel"``.
        k: number of entries per row, channels per sample, or blocks per row.
        granularity: ``"row"`` ranks single entries of the last dimension, ``"channel"`` the channels of a
            sample, ``"block"`` runs of ``block_size`` entries. Channels and blocks rank by sum of squares,
            or by sum with ``by="value"``.
        block_size: divides the width.
        by: rank by absolute value or by value.

    Returns:
        Bool mask of the shape of ``x``.

    Raises:
        TypeError: ``x`` is not floating point.
        ValueError: ``k`` is out of range, the batch is empty, or blocks do not divide the width.
    """
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point, got {x.dtype}")
    if granularity not in get_args(Granularity):
        raise ValueError(f"granularity must be one of {get_args(Granularity)}, got {granularity!r}")
    if by not in get_args(RankedBy):
        raise ValueError(f"by must be one of {get_args(RankedBy)}, got {by!r}")
    if x.ndim < (2 if granularity == "channel" else 1):
        raise ValueError(f"x has too few dimensions for granularity {granularity!r}: {tuple(x.shape)}")
    check_batch(x)
    strength = x.detach()
    if granularity == "row":
        scores = strength.reshape(-1, x.shape[-1])
        scores = scores.abs() if by == "magnitude" else scores
    elif granularity == "channel":
        scores = _pooled(strength.flatten(2) if x.ndim > 2 else strength[..., None], by)
    else:
        if block_size < 1 or x.shape[-1] % block_size:
            raise ValueError(f"block_size {block_size} does not divide the width {x.shape[-1]}")
        scores = _pooled(strength.reshape(-1, x.shape[-1] // block_size, block_size), by)
    if not 1 <= k <= scores.shape[1]:
        units = {"row": "entries", "channel": "channels", "block": "blocks"}[granularity]
        raise ValueError(f"k must be 1 to {scores.shape[1]} ({units} of x {tuple(x.shape)}), got {k}")
    kept = best_entries(torch.where(scores.isnan(), float("inf"), scores), k)
    if granularity == "channel":
        return kept.reshape(*kept.shape, *(1 for _ in x.shape[2:])).expand_as(x)
    if granularity == "block":
        kept = kept.repeat_interleave(block_size, dim=1, output_size=x.shape[-1])
    return kept.reshape(x.shape)


def _pooled(groups: Tensor, by: RankedBy) -> Tensor:
    """Return scores (P, W) of groups (P, W, members), float32 or better."""
    exact = groups.to(torch.promote_types(groups.dtype, torch.float32))
    return (exact.square() if by == "magnitude" else exact).sum(dim=2)


def _check_whole(k: object) -> None:
    if not isinstance(k, Integral):
        raise TypeError(f"k must be a whole number of entries, channels or blocks, got {k!r}")


class TopKActivation(nn.Module):
    """Keep the ``k`` largest activations, channels or blocks and zero the others; see :func:`top_k_mask`.

    Plain layers still compute the zeros. This saves time only if the next layer skips them.

    Args:
        k: number to keep.
        granularity, block_size, by: see :func:`top_k_mask`.
        gradient: ``"kept"``: only kept entries receive a gradient, the exact derivative for a fixed mask.
            ``"straight-through"``: all entries receive it, as if nothing were dropped (Bengio et al. 2013).

    Raises:
        TypeError: ``k`` is no whole number, such as a share.
        ValueError: ``k`` below 1 or an unknown option.
    """

    def __init__(
        self,
        k: int,
        *,
        granularity: Granularity = "row",
        block_size: int = 16,
        by: RankedBy = "magnitude",
        gradient: Gradient = "kept",
    ) -> None:
        super().__init__()
        if gradient not in get_args(Gradient):
            raise ValueError(f"gradient must be one of {get_args(Gradient)}, got {gradient!r}")
        _check_whole(k)
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if granularity not in get_args(Granularity):
            raise ValueError(f"granularity must be one of {get_args(Granularity)}, got {granularity!r}")
        self.k, self.granularity, self.block_size, self.by = k, granularity, block_size, by
        self.gradient = gradient

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with zeros outside the best ``k``; same shape."""
        mask = top_k_mask(x, self.k, granularity=self.granularity, block_size=self.block_size, by=self.by)
        return masked_weight(x, mask, "fixed" if self.gradient == "kept" else "ste")

    def extra_repr(self) -> str:
        """Return the options for ``print(model)``."""
        return f"k={self.k}, granularity={self.granularity!r}, by={self.by!r}, gradient={self.gradient!r}"
