"""Attention over the blocks of a pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch import Tensor

from sparse_core.attention.gpu.launch_plans import attend_by_plan
from sparse_core.attention.operands import (
    KERNEL_TYPES,
    AttentionImpl,
    AttentionOptions,
    AttentionResult,
    check_operands,
    check_options,
    default_scale,
    padded_dims,
)
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton


def _runs_kernels(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if scored:
        return "has no score_mod: take 'auto', 'vendor' or 'reference'"
    return None if dtype in KERNEL_TYPES else f"takes float16, bfloat16 and float32, not {dtype}"


def _runs_flex(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if not plain:
        return "has neither dropout nor lengths: take 'auto' or 'reference', or one call a sequence"
    if kind == "cuda" and dtype == torch.float64:
        return "has no float64 on a GPU: take 'reference'"
    return None if kind in ("cpu", "cuda") else f"needs CUDA or CPU tensors, got {kind}"


def _runs_tiles(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if kind != "cpu":
        return f"needs CPU tensors, got {kind}"
    if scored or not plain:
        return "has no score_mod, dropout or lengths: take 'auto' or 'reference'"
    return None if pairs <= _PAIRS else f"holds the masks of up to {_PAIRS} pairs, the blocks have {pairs}"


#: Pairs of stored blocks whose masks are held token by token, which takes up to a byte each.
_PAIRS = 1 << 28
_KERNELS: Implementation[torch.dtype, bool, bool, int] = by_triton(
    needs="16 bits or float32; no score_mod; forward by cuda where that runs",
    supports=_runs_kernels,
    module=f"{__package__}.gpu.attention",
)
#: The case: the type of the operands, whether a function changes the scores, whether there is neither dropout
#: nor a length of a sequence, and the pairs of stored blocks. The CUDA kernel checks the rest when its lists
#: are made.
SPARSE_ATTENTION: Op[torch.dtype, bool, bool, int] = Op(
    "sparse_attention",
    __package__,
    _KERNELS,
    replace(_KERNELS, name="cuda", needs="triton; Hopper; 16 bits; plain; blocks, dim 64 or 128", auto=()),
    Implementation(
        "vendor",
        "neither dropout nor lengths; no gradient on a CPU",
        _runs_flex,
        auto=("cuda",),
        prefers=lambda kind, dtype, scored, plain, pairs: scored and plain and dtype in KERNEL_TYPES,
    ),
    Implementation("cpu", "a CPU; no score_mod, dropout or lengths", _runs_tiles, auto=("cpu",)),
    by_torch(),
    gradient=True,
)


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
        seed: of the dropout, from 0 to 2^63 - 1; by default drawn from torch's generator. The choice depends
            on seed, batch entry, head, query and key alone, see :mod:`sparse_core.attention.dropout`.
        query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.
            Sequences behind each other in one, without padding, are a pattern: :func:`documents`.
        score_mod: changes the scaled scores before the softmax: :func:`alibi`, :func:`relative_positions`,
            :func:`soft_cap` or a function of yours (:mod:`sparse_core.attention.scores`). ``"auto"`` takes
            FlexAttention for it on a GPU, where neither dropout nor lengths are given, else plain torch.
        impl: ``"triton"`` for kernels on a GPU in float16, bfloat16 and float32. ``"auto"`` takes these
            there, but forward a CUDA kernel where that takes the operands; ``"cuda"`` insists on it: Hopper,
            16 bits, blocks of 64 or 128, dim 64 or 128, neither dropout nor lengths of sequences.
            ``"cpu"`` gathers the keys of tiles of queries, on a CPU, where ``"auto"`` takes it without
            score_mod, dropout and lengths. ``"vendor"`` is torch's FlexAttention, ``"reference"`` plain torch
            on any device.
        return_lse: also return the logarithm of the sum of exponentials.

    Returns:
        (batch, heads, query_length, dim) like q; with ``return_lse`` an :class:`AttentionResult`.

    Raises:
        TypeError: dtypes do not fit, or ``pattern`` is none.
        ValueError: shapes, lengths, devices or options do not fit.
        ImplementationError: a named ``impl`` cannot run here.
    """
    options: dict[str, Any] = {
        "scale": scale,
        "dropout_p": dropout_p,
        "seed": seed,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
        "score_mod": score_mod,
        "impl": impl,
        "return_lse": return_lse,
    }
    given = seed is not None or query_lengths is not None or key_lengths is not None or score_mod is not None
    if not (given or dropout_p or return_lse) and impl == "auto" and not torch.compiler.is_compiling():
        return attend_by_plan(q, k, v, pattern, scale, lambda: _whole(q, k, v, pattern, **options).out)
    result = _whole(q, k, v, pattern, **options)
    return result if return_lse else result.out


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    *,
    scale: float | None,
    impl: AttentionImpl,
    return_lse: bool,
    **given: Any,
) -> AttentionResult:
    """Check the operands and options, choose an implementation, and run it."""
    separate = q.ndim == 4 and isinstance(pattern, BlockPattern) and q.shape[0] > 1
    separate = separate and pattern.heads == q.shape[0] * q.shape[1]
    batch, heads, dim = q.shape[0], q.shape[1:2], q.shape[-1]
    if separate:
        # Sequences with a pattern each stand beside each other like heads.
        if any(given[name] is not None for name in ("score_mod", "query_lengths", "key_lengths")):
            raise ValueError(
                "patterns for each sequence go with neither score_mod nor lengths: cut them to the lengths"
            )
        q, k, v = (tensor.flatten(0, 1)[None] for tensor in (q, k, v))
    q, k, v = padded_dims(q, k, v)
    shape = check_operands(q, k, v)
    options = AttentionOptions(default_scale(scale, dim), impl=impl, wants_lse=return_lse, **given)
    options = check_options(options, pattern, shape, q.device)
    scored, pairs = options.score_mod is not None, pattern.blocks * pattern.block_size**2
    name = _chosen(impl, q.device, q.dtype, scored, options.plain, pairs)
    if torch.compiler.is_compiling() and name in ("triton", "cuda"):
        # An operator, which torch.compile keeps whole.
        from sparse_core.attention.gpu.operators import attend
    else:
        attend = SPARSE_ATTENTION.load(name).attend
    out, lse = attend(q, k, v, pattern, shape, options)
    if shape.dim != dim:
        out = out[..., :dim]
    if separate:
        out, lse = (found.unflatten(1, (batch, *heads))[0] for found in (out, lse))
    return AttentionResult(out, lse)


@torch.compiler.assume_constant_result
def _chosen(
    impl: AttentionImpl, device: torch.device, dtype: torch.dtype, scored: bool, plain: bool, pairs: int
) -> str:
    """The name of the implementation that runs; loads it, so that ``torch.compile`` traces no import."""
    name = SPARSE_ATTENTION.choose(impl, device, dtype, scored, plain, pairs)
    SPARSE_ATTENTION.load(name)
    return name
