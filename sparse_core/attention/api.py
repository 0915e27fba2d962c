"""Attention over the blocks of a pattern."""

from __future__ import annotations

from typing import Literal, overload

from torch import Tensor

from sparse_core.attention import reference
from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.pattern import BlockPattern
from sparse_core.dispatch import Impl, check_impl
from sparse_core.errors import ImplementationError


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
    impl: Impl = "auto",
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
    impl: Impl = "auto",
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
    impl: Impl = "auto",
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
        impl: ``"reference"``, plain torch on any device, which is also what ``"auto"`` takes.
        return_lse: also return the logarithm of the sum of exponentials.

    Returns:
        (batch, heads, query_length, dim) like q; with ``return_lse`` an :class:`AttentionResult`.

    Raises:
        TypeError: dtypes do not fit, or ``pattern`` is none.
        ValueError: shapes, lengths, devices or options do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    check_impl(impl)
    if impl not in ("auto", "reference"):
        raise ImplementationError(f"sparse_attention has no impl={impl!r}; use 'auto' or 'reference'")
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
