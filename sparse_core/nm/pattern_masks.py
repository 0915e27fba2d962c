"""One mask function for every kind of pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import Select, weight_parameter
from sparse_core.nm.masks import block_mask, nm_mask
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, Pattern
from sparse_core.nm.pruning.selection import selected_layers


def pattern_mask(
    weight: Tensor,
    pattern: Pattern | None,
    score: Tensor | Literal["magnitude"] = "magnitude",
    *,
    check_nan: bool = True,
) -> Tensor:
    """The best mask of ``weight``'s shape that fits ``pattern``.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width).
        pattern: n:m, blocks, or ``None`` for dense (all true).
        score: ``"magnitude"`` or a tensor of the weight's shape; larger is kept.
        check_nan: look for NaN in n:m masks, which waits for the device.

    Returns:
        Bool tensor of the weight's shape.

    Raises:
        TypeError: another kind of pattern.
        ValueError: the pattern does not fit the weight, or NaN.
    """
    if pattern is None:
        return torch.ones_like(weight, dtype=torch.bool)
    if isinstance(pattern, Block):
        return block_mask(weight, pattern, score)
    if not isinstance(pattern, NMPattern):
        raise TypeError(f"pattern must be NMPattern, Block or None, got {pattern!r}")
    return nm_mask(weight, pattern.n, pattern.m, score, conv_layout=pattern.conv_layout, check_nan=check_nan)


def magnitude_masks(
    model: nn.Module, pattern: Pattern | Mapping[str, Pattern | None] = TWO_FOUR, *, select: Select = None
) -> dict[str, Tensor]:
    """Masks of the largest weights for every selected layer; the model is not changed.

    Args:
        model: any module.
        pattern: n:m or blocks for all layers, or one for each name.
        select: which layers, see :data:`sparse_core.common.surgery.Select`.

    Returns:
        Bool masks by dotted name, for :func:`sparse_core.nm.training.attach_masks`.

    Raises:
        ValueError: no layer matches, or a weight is NaN.
    """
    layers = selected_layers(model, pattern, select).layers
    wanted = pattern if isinstance(pattern, Mapping) else dict.fromkeys(layers, pattern)
    return {name: pattern_mask(weight_parameter(module), wanted[name]) for name, module in layers.items()}
