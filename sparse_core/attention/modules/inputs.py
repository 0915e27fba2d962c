"""Inputs of attention modules: a sequence, an optional memory, and their true lengths."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from sparse_core.attention.masked_arithmetic import zero_padding
from sparse_core.attention.operands import check_ragged


class AttentionInputs(NamedTuple):
    """Checked inputs with zeroed padding.

    Attributes:
        x: (batch, length, dim).
        memory: (batch, memory_length, memory_dim); ``x`` itself without one.
        query_lengths, key_lengths: (batch,) int64, or None.
    """

    x: Tensor
    memory: Tensor
    query_lengths: Tensor | None
    key_lengths: Tensor | None


def attention_inputs(
    x: Tensor,
    memory: Tensor | None,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    *,
    dim: int,
    memory_dim: int,
) -> AttentionInputs:
    """Check the inputs and zero their padding.

    Args:
        x: (batch, length, dim).
        memory: (batch, memory_length, memory_dim), or None for ``x``.
        query_lengths, key_lengths: (batch,) int32 or int64, or None. Without a memory, ``key_lengths``
            defaults to ``query_lengths``.
    """
    _check_sequence("x", x, dim)
    if memory is not None:
        _check_sequence("memory", memory, memory_dim)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(f"memory must have batch {x.shape[0]} like x, got {memory.shape[0]}")
    elif memory_dim != dim:
        raise ValueError(f"memory is missing: pass one of width {memory_dim}, x has width {dim}")
    batch, length = x.shape[:2]
    keys = length if memory is None else memory.shape[1]
    query_lengths = check_ragged(query_lengths, batch, length, x.device, name="query_lengths")
    key_lengths = check_ragged(key_lengths, batch, keys, x.device, name="key_lengths")
    x = zero_padding(x, query_lengths)
    if memory is None:
        return AttentionInputs(x, x, query_lengths, query_lengths if key_lengths is None else key_lengths)
    return AttentionInputs(x, zero_padding(memory, key_lengths), query_lengths, key_lengths)


def _check_sequence(name: str, rows: Tensor, width: int) -> None:
    if rows.ndim != 3 or rows.shape[2] != width:
        raise ValueError(f"{name} must have shape (batch, length, {width}), got {tuple(rows.shape)}")
