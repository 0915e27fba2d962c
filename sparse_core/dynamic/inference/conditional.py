"""A block that processes only the rows with the largest gate; the others pass unchanged.

After Raposo et al., "Mixture-of-Depths" (2024): the number of rows is fixed, so sizes never depend on data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sparse_core.dynamic.ranking import best_entries, check_batch, nan_first, true_positions


class ConditionalBlock(nn.Module):
    """``x + gate * block(x)`` for the ``capacity`` share of rows with the largest gate, else ``x``.

    Args:
        block: maps (rows, features) to the same shape.
        features: width of the input.
        capacity: share of the rows per sample, above 0, at most 1; at least one row is computed.

    Raises:
        ValueError: ``capacity`` or ``features`` out of range.
    """

    def __init__(self, block: nn.Module, features: int, *, capacity: float = 0.25) -> None:
        super().__init__()
        if features < 1 or not 0 < capacity <= 1:
            raise ValueError(
                f"features must be at least 1 and capacity above 0, at most 1, got {features}, {capacity}"
            )
        self.block, self.capacity = block, capacity
        self.gate = nn.Linear(features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the shape of ``x``: (B, rows, features), or (rows, features) if rows of the batch compete.

        Raises:
            ValueError: an empty batch, or another shape.
        """
        check_batch(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.gate.in_features:
            raise ValueError(f"x must be (..., rows, {self.gate.in_features}), got {tuple(x.shape)}")
        samples = x if x.ndim == 3 else x[None]
        count = max(1, round(self.capacity * samples.shape[1]))
        scores = self.gate(samples).squeeze(-1)
        chosen = true_positions(best_entries(nan_first(scores), count), count)
        start = torch.arange(len(samples), device=x.device)[:, None] * samples.shape[1]
        places = (chosen + start).reshape(-1)
        rows = samples.reshape(-1, x.shape[-1])
        picked = rows.index_select(0, places)
        weight = torch.sigmoid(scores.reshape(-1).index_select(0, places))[:, None]
        result = picked + weight * self.block(picked)
        return rows.index_copy(0, places, result.to(rows.dtype)).reshape(x.shape)
