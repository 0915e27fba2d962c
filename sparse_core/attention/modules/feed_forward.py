"""Feed-forward part of a Transformer layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FeedForward(nn.Module):
    """``down(gelu(up(x)))``, or ``down(silu(gate(x)) * up(x))`` (SwiGLU; Shazeer 2020, "GLU Variants").

    Args:
        dim: width of input and result.
        hidden: hidden width, by default 4 * dim; gated 8 / 3 * dim, rounded up to a multiple of 64, which
            gives a similar number of weights.
        gated: use SwiGLU.
        bias: give the Linear layers a bias.
        device, dtype: of the parameters.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        gated: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if hidden is None:
            hidden = -(-8 * dim // 192) * 64 if gated else 4 * dim
        if dim < 1 or hidden < 1:
            raise ValueError(f"dim and hidden must be at least 1, got {dim} and {hidden}")
        self.up = nn.Linear(dim, hidden, bias, device, dtype)
        self.gate = nn.Linear(dim, hidden, bias, device, dtype) if gated else None
        self.down = nn.Linear(hidden, dim, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., dim) to (..., dim)."""
        if self.gate is None:
            hidden = torch.nn.functional.gelu(self.up(x))
        else:
            hidden = torch.nn.functional.silu(self.gate(x)) * self.up(x)
        result: Tensor = self.down(hidden)
        return result
