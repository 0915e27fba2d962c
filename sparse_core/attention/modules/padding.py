"""The padding behind the sequences of a ragged batch."""

from __future__ import annotations

import torch
from torch import Tensor


def zero_padding(rows: Tensor, lengths: Tensor | None) -> Tensor:
    """Zeros in place of the padding, whatever it holds; without ``lengths`` the same tensor.

    Args:
        rows: (batch, ..., length, width).
        lengths: (batch,) int64, on the same device.
    """
    if lengths is None:
        return rows
    exists = torch.arange(rows.shape[-2], device=rows.device) < lengths[:, None]
    shape = (rows.shape[0], *(1 for _ in rows.shape[1:-2]), rows.shape[-2], 1)
    return rows.masked_fill(~exists.view(shape), 0.0)
