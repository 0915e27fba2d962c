"""Nested tensors through layers that know matrices only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def through_parts(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a layer that works row by row makes of a nested tensor: the same layout, with gradients.

    Args:
        layer: (rows, in) to (rows, out).
        x: nested, (batch, rows of each, in).
    """
    parts = x.unbind()
    lengths = [len(part) for part in parts]
    rows = layer(torch.cat(parts))
    return torch.nested.as_nested_tensor(list(rows.split(lengths)), layout=x.layout)
