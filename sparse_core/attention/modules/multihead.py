"""Drop-in replacement of ``torch.nn.MultiheadAttention``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sparse_core.attention.modules.attention import SparseAttention
from sparse_core.attention.modules.sources import PatternSource
from sparse_core.attention.operands import AttentionImpl


class SparseMultiheadAttention(nn.Module):
    """Sparse attention with the signature of ``torch.nn.MultiheadAttention``.

    ``layer.self_attn = SparseMultiheadAttention.from_multihead(layer.self_attn, pattern)`` needs no other
    change: the pattern replaces the mask.

    Args:
        attention: module that computes the attention.
        batch_first: True for sequences of shape (batch, length, dim), as in torch's module.
    """

    def __init__(self, attention: SparseAttention, *, batch_first: bool = False) -> None:
        super().__init__()
        self.attention = attention
        self.batch_first = batch_first

    @classmethod
    def from_multihead(
        cls,
        multihead: nn.MultiheadAttention,
        pattern: PatternSource | None = None,
        *,
        impl: AttentionImpl = "auto",
    ) -> SparseMultiheadAttention:
        """Copy the weights; see :meth:`SparseAttention.from_multihead`."""
        attention = SparseAttention.from_multihead(multihead, pattern, impl=impl)
        return cls(attention, batch_first=multihead.batch_first).train(multihead.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """Attend as torch's module does.

        Args:
            query: (length, batch, dim), (batch, length, dim) with ``batch_first``, or (length, dim).
            key, value: likewise; the same tensor.
            key_padding_mask: (batch, key_length) or (key_length,) bool, True for padding, which must be at
                the end of each sequence. Checking it waits for the device.
            need_weights, average_attn_weights: ignored; weights are never returned.
            attn_mask, is_causal: not supported; use a pattern (``pattern.causal()``).

        Returns:
            Attention like the query, and None in place of the weights.

        Raises:
            TypeError: a padding mask that is not bool.
            ValueError: key is not value, a mask, or padding before the end.
        """
        if attn_mask is not None or is_causal:
            raise ValueError(
                "attn_mask and is_causal are not supported: use a causal pattern, pattern.causal(), or build"
                " the pattern with from_token_mask(mask)"
            )
        if key is not value:
            raise ValueError("key and value must be the same tensor: pass key twice")
        single = query.ndim == 2
        if single:
            query, key = query[None], query[None] if key is query else key[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            same = key is query
            query = query.transpose(0, 1)
            key = query if same else key.transpose(0, 1)
        found = self.attention(
            query, None if key is query else key, key_lengths=_lengths(key_padding_mask, key)
        )
        if single:
            return found[0], None
        return (found if self.batch_first else found.transpose(0, 1)), None


def _lengths(mask: Tensor | None, keys: Tensor) -> Tensor | None:
    """Return the number of keys before the padding, (batch,)."""
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise TypeError(f"key_padding_mask must be bool, got {mask.dtype}")
    if mask.shape != keys.shape[:2]:
        raise ValueError(f"key_padding_mask must be {tuple(keys.shape[:2])}, got {tuple(mask.shape)}")
    if bool((mask[:, :-1] & ~mask[:, 1:]).any()):
        raise ValueError("key_padding_mask must be True at the end of each sequence only")
    return (~mask).sum(1)
