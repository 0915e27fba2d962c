"""A Transformer layer whose attention follows a pattern."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from sparse_core.attention.masked_arithmetic import zero_padding
from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.feed_forward import FeedForward
from sparse_core.attention.modules.linears import Linears, convert_linears
from sparse_core.attention.modules.sources import PatternSource
from sparse_core.attention.operands import AttentionImpl, check_ragged

Norm = Literal["layer", "rms"]
"""``nn.LayerNorm`` (Ba et al. 2016) or ``nn.RMSNorm`` (Zhang & Sennrich 2019)."""


class SparseTransformerLayer(nn.Module):
    """A pre-norm Transformer layer (Xiong et al. 2020) whose attention follows a pattern.

    It computes ``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``.

    Args:
        dim: width of the sequence.
        heads: query heads.
        pattern: see :class:`SparseAttention`.
        key_heads: see :class:`SparseAttention`.
        hidden, gated: see :class:`FeedForward`.
        norm: ``"layer"`` or ``"rms"``.
        bias: give Linear layers and LayerNorm a bias.
        dropout: of both residual branches in training, in [0, 1).
        attention_dropout: of the attention weights.
        linears: ``"dense"``; ``"2:4"``, pruned by magnitude now (or later by :meth:`convert_linears`, after
            loading trained weights); or ``"2:4-training"``, pruned anew in every step.
        impl: of :func:`sparse_attention`.
        device, dtype: of the parameters.

    Attributes:
        attention: :class:`SparseAttention`.
        feed_forward: :class:`FeedForward`.

    Raises:
        TypeError: ``pattern`` is not a pattern source.
        ValueError: sizes or options do not match; an error about ``linears`` names the layer.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        pattern: PatternSource | None = None,
        *,
        key_heads: int | None = None,
        hidden: int | None = None,
        gated: bool = False,
        norm: Norm = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        linears: Linears = "dense",
        impl: AttentionImpl = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
        self.attention_norm = _norm(norm, dim, bias, device, dtype)
        self.attention = SparseAttention(
            dim,
            heads,
            pattern,
            key_heads=key_heads,
            bias=bias,
            dropout=attention_dropout,
            impl=impl,
            device=device,
            dtype=dtype,
        )
        self.feed_forward_norm = _norm(norm, dim, bias, device, dtype)
        self.feed_forward = FeedForward(dim, hidden, gated=gated, bias=bias, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        self.convert_linears(linears)

    def convert_linears(self, kind: Linears) -> None:
        """Convert the Linear layers to dense, 2:4 or 2:4 in training; see :func:`convert_linears`.

        Raises:
            ValueError: an unknown kind, or a layer (which is named) whose sizes it does not support.
        """
        convert_linears(self, kind)

    def forward(
        self, x: Tensor, *, pattern: PatternSource | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Apply the layer.

        Args:
            x: (batch, length, dim).
            pattern: replaces the layer's pattern in this call.
            lengths: (batch,) int32 or int64, true lengths of sequences padded at the end. Padding may hold
                any value; the result is zero there.

        Returns:
            (batch, length, dim).

        Raises:
            TypeError, ValueError: shapes, lengths or the pattern do not match.
        """
        padded = check_ragged(lengths, x.shape[0], x.shape[-2], x.device, name="lengths")
        x = zero_padding(x, padded)
        attended = self.attention(self.attention_norm(x), pattern=pattern, query_lengths=padded)
        x = x + self.dropout(attended)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return zero_padding(x, padded)


def _norm(
    kind: Norm, dim: int, bias: bool, device: torch.device | str | None, dtype: torch.dtype | None
) -> nn.Module:
    if kind not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(get_args(Norm))}; got {kind!r}")
    if kind == "rms":
        return nn.RMSNorm(dim, device=device, dtype=dtype)
    return nn.LayerNorm(dim, bias=bias, device=device, dtype=dtype)
