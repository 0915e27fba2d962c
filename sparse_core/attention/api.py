"""Attention over the blocks of a pattern."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from sparse_core.attention import reference, vendor
from sparse_core.attention.blocks.product import TYPES, attend
from sparse_core.attention.dropout import drawn_seed
from sparse_core.attention.operands import (
    AttentionImpl,
    AttentionResult,
    check_attention_impl,
    check_dropout,
    check_operands,
    check_pattern,
    check_ragged,
    default_scale,
)
from sparse_core.attention.pattern import BlockPattern


@overload
def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    query_lengths: Tensor | None = None,
    key_lengths: Tensor | None = None,
    impl: AttentionImpl = "auto",
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    query_lengths: Tensor | None = None,
    key_lengths: Tensor | None = None,
    impl: AttentionImpl = "auto",
    return_lse: Literal[True],
) -> AttentionResult: ...


def sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    query_lengths: Tensor | None = None,
    key_lengths: Tensor | None = None,
    impl: AttentionImpl = "auto",
    return_lse: bool = False,
) -> Tensor | AttentionResult:
    """``softmax(scale * q @ k.T) @ v`` over the keys that ``pattern`` allows; nothing else is computed.

    A query without keys gives zeros, without a gradient. Results repeat to the bit.

    Args:
        q: (batch, heads, query_length, dim) floating; dim a multiple of 8 from 16 to 256.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        v: as k.
        pattern: for these lengths, with one head for all or as many as q.
        scale: of the scores; 1 / sqrt(dim) by default.
        dropout_p: share of the weights that is dropped, in [0, 1); the others grow by 1 / (1 - dropout_p).
        seed: of the dropout; by default drawn from torch's generator.
        query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.
        impl: ``"triton"`` for kernels on a GPU in float16, bfloat16 and float32. ``"auto"`` takes these
            there, but forward a CUDA kernel where that takes the operands; ``"cuda"`` insists on it: Hopper,
            16 bits, blocks of 64 or 128, dim 64 or 128, neither dropout nor lengths of sequences.
            ``"vendor"`` is torch's FlexAttention, ``"reference"`` plain torch on any device.
        return_lse: also return the logarithm of the sum of exponentials.

    Returns:
        (batch, heads, query_length, dim) like q; with ``return_lse`` an :class:`AttentionResult`.

    Raises:
        TypeError: dtypes do not fit, or ``pattern`` is none.
        ValueError: shapes, lengths, devices or options do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    check_attention_impl(impl)
    if impl == "vendor":
        result = vendor.sparse_attention(
            q,
            k,
            v,
            pattern,
            scale=scale,
            dropout_p=dropout_p,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
        )
    elif impl in ("triton", "cuda") or (impl == "auto" and q.is_cuda and q.dtype in TYPES):
        result = _by_kernels(q, k, v, pattern, scale, dropout_p, seed, query_lengths, key_lengths, impl)
    else:
        result = reference.sparse_attention(
            q,
            k,
            v,
            pattern,
            scale=scale,
            dropout_p=dropout_p,
            seed=seed,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
        )
    return result if return_lse else result.out


def _by_kernels(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    scale: float | None,
    dropout_p: float,
    seed: int | None,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    impl: str,
) -> AttentionResult:
    shape = check_operands(q, k, v)
    check_pattern(pattern, shape, q.device)
    check_dropout(dropout_p, seed)
    queries = check_ragged(query_lengths, shape.batch, shape.query_length, q.device, name="query_lengths")
    keys = check_ragged(key_lengths, shape.batch, shape.key_length, q.device, name="key_lengths")
    if dropout_p and seed is None:
        # Compiled code draws at every call.
        seed = -1 if torch.compiler.is_compiling() else drawn_seed()
    return attend(
        q,
        k,
        v,
        pattern,
        shape,
        scale=default_scale(scale, shape.dim),
        dropout_p=dropout_p,
        seed=seed or 0,
        query_lengths=queries,
        key_lengths=keys,
        cuda=None if impl == "auto" else impl == "cuda",
    )
