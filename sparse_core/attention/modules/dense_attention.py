"""Dense attention, the baseline of the sparse one."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import zero_padding


def dense_attention(q: Tensor, k: Tensor, v: Tensor, key_lengths: Tensor | None, dropout_p: float) -> Tensor:
    """Attend to every key by torch's function; a sequence without keys gives zeros.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k, v: (batch, key_heads, key_length, dim).
        key_lengths: (batch,) int64, true lengths of sequences padded at the end.
    """
    mask = None
    if key_lengths is not None:
        mask = (torch.arange(k.shape[2], device=k.device) < key_lengths[:, None])[:, None, None, :]
        k, v = zero_padding(k, key_lengths), zero_padding(v, key_lengths)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_p, enable_gqa=q.shape[1] != k.shape[1]
    )
