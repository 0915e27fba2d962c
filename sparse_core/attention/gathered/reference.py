"""Gathered attention in plain torch: copy the keys of each query, then compute an ordinary softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.attention.masked_arithmetic import masked_softmax, run_chunk, take
from sparse_core.attention.operands import AttentionResult, arithmetic_dtype

#: Most gathered numbers per chunk of queries.
CHUNK_NUMBERS = 1 << 22

#: Most gathered numbers that are kept for the backward pass; with more, it gathers each chunk again.
KEPT_NUMBERS = 1 << 24


def gathered_attention(q: Tensor, k: Tensor, v: Tensor, index: Tensor, *, scale: float) -> AttentionResult:
    """See the public function."""
    per_query = q.shape[0] * q.shape[1] * max(1, index.shape[3]) * q.shape[3]
    recompute = per_query * q.shape[2] > KEPT_NUMBERS
    dtype = arithmetic_dtype(q.dtype)
    # The backward pass makes a gradient as large as the table per chunk, so use few chunks.
    numbers = max(CHUNK_NUMBERS, k.numel() if _needs_gradient(k) or _needs_gradient(v) else 0)
    length = max(1, numbers // max(1, per_query))
    with torch.autocast(q.device.type, enabled=False):
        # Sum the gradients of all queries that read a key in this type.
        k, v = (table.to(dtype) if _needs_gradient(table) else table for table in (k, v))
        results = [
            run_chunk(_attend, q_chunk.to(dtype), k, v, index_chunk, scale, recompute=recompute)
            for q_chunk, index_chunk in zip(q.split(length, 2), index.split(length, 2), strict=True)
        ]
        out = torch.cat([result.out for result in results], dim=2).to(q.dtype)
        return AttentionResult(out, torch.cat([result.lse for result in results], dim=2))


def _attend(q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float) -> AttentionResult:
    batch, heads, queries, dim = q.shape
    key_heads, key_length = k.shape[1], k.shape[2]
    # Heads that share keys and lists also share one copy of the gathered keys.
    lists = key_heads if index.shape[1] == 1 else heads
    stacked = heads // lists
    index = index.long().expand(batch, lists, queries, -1)
    missing = index == -1
    key_head = torch.arange(lists, device=q.device) // (lists // key_heads)
    first = (torch.arange(batch, device=q.device)[:, None] * key_heads + key_head) * key_length
    # One table for all heads. An index out of range points past its end, so that torch raises.
    inside = (index >= 0) & (index < key_length)
    row = torch.where(inside, index + first[..., None, None], batch * key_heads * key_length)
    row = row.masked_fill(missing, 0)
    keys, values = (_rows(table, row).masked_fill(missing[..., None], 0.0).to(q.dtype) for table in (k, v))
    grouped = q.reshape(batch, lists, stacked, queries, dim).transpose(2, 3)
    scores = grouped @ keys.transpose(-1, -2) * scale
    weights, total, lse = masked_softmax(scores, ~missing.unsqueeze(-2))
    out = (weights @ values / total).transpose(2, 3).reshape(batch, heads, queries, dim)
    return AttentionResult(out, lse.transpose(2, 3).reshape(batch, heads, queries))


def _rows(table: Tensor, row: Tensor) -> Tensor:
    """Gather rows (..., dim) of (batch, key_heads, key_length, dim); zeros from an empty table."""
    flat = table.reshape(1, -1, table.shape[3])
    if flat.shape[1] == 0:
        flat = torch.nn.functional.pad(flat, (0, 0, 0, 1))
    return take(flat, row.flatten()).reshape(*row.shape, table.shape[3])


def _needs_gradient(table: Tensor) -> bool:
    return torch.is_grad_enabled() and table.requires_grad
