"""Pooling of blocks of tokens to one vector each."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class TokenBlocks:
    """Rows in blocks, for pooling over the tokens that exist.

    Args:
        rows: (batch, heads, length, dim) floating; padding may hold any value.
        lengths: (batch,) int64, true lengths of sequences padded at the end, or None.

    Attributes:
        count: (batch, blocks) int64, tokens that exist.
    """

    def __init__(self, rows: Tensor, lengths: Tensor | None, size: int, dtype: torch.dtype) -> None:
        length = rows.shape[2]
        rest = -length % size
        rows = torch.nn.functional.pad(rows, (0, 0, 0, rest)) if rest else rows
        self._dtype = dtype
        self._rows = rows.unflatten(2, (-1, size))
        place = torch.arange(rows.shape[2], device=rows.device)
        limit = place.new_full((rows.shape[0],), length) if lengths is None else lengths
        exists = (place < limit[:, None]).unflatten(1, (-1, size))
        self.count: Tensor = exists.sum(dim=2)
        self._missing = ~exists[:, None, :, :, None] if rest or lengths is not None else None

    def mean(self) -> Tensor:
        """Return means (batch, heads, blocks, dim); zeros for a block without tokens."""
        rows = self._rows if self._missing is None else self._rows.masked_fill(self._missing, 0.0)
        total = rows.sum(dim=3, dtype=self._dtype)
        mean: Tensor = total / self.count.clamp(min=1)[:, None, :, None]
        return mean

    def extreme(self, sign: int) -> Tensor:
        """Return maxima (sign 1) or minima (-1), (batch, heads, blocks, dim); zeros without tokens."""
        rows = self._rows
        if self._missing is not None:
            rows = rows.masked_fill(self._missing, -sign * math.inf)
        found: Tensor = rows.amax(dim=3) if sign > 0 else rows.amin(dim=3)
        return found.to(self._dtype).masked_fill((self.count == 0)[:, None, :, None], 0.0)
