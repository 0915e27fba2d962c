"""Attention over the blocks of a pattern."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from sparse_core.attention import reference, vendor
from sparse_core.attention.blocks.product import TYPES, attend
from sparse_core.attention.dropout import drawn_seed
from sparse_core.attention.operands import (
    AttentionImpl,
    AttentionResult,
    check_attention_impl,
    check_operands,
    checked_options,
    padded_dims,
)
from sparse_core.attention.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction
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
    score_mod: ScoreFunction | None = None,
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
    score_mod: ScoreFunction | None = None,
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
    score_mod: ScoreFunction | None = None,
    impl: AttentionImpl = "auto",
    return_lse: bool = False,
) -> Tensor | AttentionResult:
    """``softmax(scale * q @ k.T) @ v`` over the keys that ``pattern`` allows; nothing else is computed.

    A query without keys gives zeros, without a gradient. Results repeat to the bit.

    Args:
        q: (batch, heads, query_length, dim) floating; dim from 1 to 256. Multiples of 8 from 16 on need no
            copies with zeros behind.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        v: as k.
        pattern: for these lengths, with one head for all, as many as q, or one for each head of each sequence
            of the batch (:func:`per_sequence`).
        scale: of the scores; 1 / sqrt(dim) by default.
        dropout_p: share of the weights that is dropped, in [0, 1); the others grow by 1 / (1 - dropout_p).
        seed: of the dropout; by default drawn from torch's generator.
        query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.
            Sequences behind each other in one, without padding, are a pattern: :func:`documents`.
        score_mod: changes the scaled scores before the softmax: :func:`alibi`, :func:`relative_positions`,
            :func:`soft_cap` or a function of yours (:mod:`sparse_core.attention.scores`). ``"auto"`` takes
            FlexAttention for it on a GPU, where neither dropout nor lengths are given, else plain torch.
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
    options: dict[str, Any] = {
        "dropout_p": dropout_p,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
    }
    if score_mod is not None:
        impl = _impl_of_scores(impl, q, options)
        options["score_mod"] = score_mod
    folded = _per_sequence(q, pattern, options)
    if folded:
        batch, heads = q.shape[:2]
        q, k, v = (tensor.flatten(0, 1)[None] for tensor in (q, k, v))
    dim = q.shape[-1]
    q, k, v, scale = padded_dims(q, k, v, scale)
    if impl == "vendor":
        result = vendor.sparse_attention(q, k, v, pattern, scale=scale, **options)
    elif impl in ("triton", "cuda") or (impl == "auto" and q.is_cuda and q.dtype in TYPES):
        result = _by_kernels(q, k, v, pattern, impl, scale=scale, seed=seed, **options)
    else:
        result = reference.sparse_attention(q, k, v, pattern, scale=scale, seed=seed, **options)
    out, lse = result
    if out.shape[-1] != dim:
        out = out[..., :dim]
    if folded:
        out, lse = out.unflatten(1, (batch, heads))[0], lse.unflatten(1, (batch, heads))[0]
    return AttentionResult(out, lse) if return_lse else out


def _per_sequence(q: Tensor, pattern: BlockPattern, options: dict[str, Any]) -> bool:
    """Whether each sequence of a batch has a pattern of its own: they stand beside each other like heads.

    Raises:
        ValueError: options that tell sequences apart, which then nothing does.
    """
    # What does not fit is told by the implementations.
    if q.ndim != 4 or not isinstance(pattern, BlockPattern) or q.shape[0] < 2:
        return False
    if pattern.heads != q.shape[0] * q.shape[1]:
        return False
    if any(options.get(name) is not None for name in ("score_mod", "query_lengths", "key_lengths")):
        raise ValueError(
            "patterns for each sequence go with neither score_mod nor lengths: cut them to the lengths"
        )
    return True


def _impl_of_scores(impl: AttentionImpl, q: Tensor, options: dict[str, Any]) -> AttentionImpl:
    """What runs a function of scores."""
    if impl in ("triton", "cuda"):
        raise ImplementationError(f"impl={impl!r} has no score_mod: take 'auto', 'vendor' or 'reference'")
    if impl != "auto":
        return impl
    plain = not options["dropout_p"] and options["query_lengths"] is None and options["key_lengths"] is None
    return "vendor" if plain and q.is_cuda and q.dtype in TYPES else "reference"


def _by_kernels(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, impl: str, **given: Any
) -> AttentionResult:
    shape = check_operands(q, k, v)
    options = checked_options(pattern, shape, q.device, **given)
    if not options.dropout_p:
        options = options._replace(seed=options.seed or 0)
    elif options.seed is None:
        # Compiled code draws at every call.
        options = options._replace(seed=-1 if torch.compiler.is_compiling() else drawn_seed())
    return attend(q, k, v, pattern, shape, options, cuda=None if impl == "auto" else impl == "cuda")
