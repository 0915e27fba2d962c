"""Attention over the blocks of a pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch import Tensor

from sparse_core.attention import cpu, reference, vendor
from sparse_core.attention.dropout import drawn_seed
from sparse_core.attention.gpu.attention import attend
from sparse_core.attention.gpu.launch_plans import attend_by_plan
from sparse_core.attention.operands import (
    KERNEL_TYPES,
    AttentionImpl,
    AttentionResult,
    check_operands,
    checked_options,
    padded_dims,
)
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton


def _has_kernels(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if scored:
        return "has no score_mod: take 'auto', 'vendor' or 'reference'"
    return None if dtype in KERNEL_TYPES else f"takes float16, bfloat16 and float32, not {dtype}"


def _gathers(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if kind != "cpu":
        return f"needs CPU tensors, got {kind}"
    if scored or not plain:
        return "has no score_mod, dropout or lengths: take 'auto' or 'reference'"
    return None if pairs <= _PAIRS else f"holds the masks of up to {_PAIRS} pairs, the blocks have {pairs}"


#: Pairs of stored blocks whose masks are held token by token, which takes up to a byte each.
_PAIRS = 1 << 28
_KERNELS: Implementation[torch.dtype, bool, bool, int] = by_triton(
    needs="16 bits or float32; no score_mod; forward by cuda where that runs",
    supports=_has_kernels,
    module=f"{__package__}.blocks.product",
)
#: By the type of the operands, whether a function changes the scores, whether there is neither dropout nor
#: lengths of sequences, and the pairs of stored blocks. What the CUDA kernel needs beyond that is known when
#: its lists are.
SPARSE_ATTENTION: Op[torch.dtype, bool, bool, int] = Op(
    "sparse_attention",
    __package__,
    _KERNELS,
    replace(_KERNELS, name="cuda", needs="triton; Hopper; 16 bits; plain; blocks, dim 64 or 128", auto=()),
    Implementation(
        "vendor",
        "neither dropout nor lengths; no gradient on a CPU",
        auto=("cuda",),
        prefers=lambda kind, dtype, scored, plain, pairs: scored and plain and dtype in KERNEL_TYPES,
    ),
    Implementation("cpu", "a CPU; no score_mod, dropout or lengths", _gathers, auto=("cpu",)),
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
    seed: int | None,
    score_mod: ScoreFunction | None,
    impl: AttentionImpl,
    return_lse: bool,
    **options: Any,
) -> AttentionResult:
    """All checks, the choice of an implementation and the product; options of dropout and lengths."""
    SPARSE_ATTENTION.check(impl)
    plain = not options["dropout_p"] and options["query_lengths"] is None and options["key_lengths"] is None
    pairs = pattern.blocks * pattern.block_size**2 if isinstance(pattern, BlockPattern) else 0
    chosen = _chosen(impl, q.device, q.dtype, score_mod is not None, plain, pairs)
    if score_mod is not None:
        options["score_mod"] = score_mod
    folded = _per_sequence(q, pattern, options)
    if folded:
        batch, heads = q.shape[:2]
        q, k, v = (tensor.flatten(0, 1)[None] for tensor in (q, k, v))
    dim = q.shape[-1]
    q, k, v, scale = padded_dims(q, k, v, scale)
    if chosen == "vendor":
        result = vendor.sparse_attention(q, k, v, pattern, scale=scale, **options)
    elif chosen == "cpu":
        result = cpu.sparse_attention(q, k, v, pattern, scale=scale, wants_lse=return_lse)
    elif chosen != "reference":
        result = _by_kernels(q, k, v, pattern, impl, scale=scale, seed=seed, **options)
    else:
        result = reference.sparse_attention(q, k, v, pattern, scale=scale, seed=seed, **options)
    out, lse = result
    if out.shape[-1] != dim:
        out = out[..., :dim]
    if folded:
        out, lse = out.unflatten(1, (batch, heads))[0], lse.unflatten(1, (batch, heads))[0]
    return AttentionResult(out, lse)


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


@torch.compiler.assume_constant_result
def _chosen(
    impl: AttentionImpl, device: torch.device, dtype: torch.dtype, scored: bool, plain: bool, pairs: int
) -> str:
    return SPARSE_ATTENTION.choose(impl, device, dtype, scored, plain, pairs)


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
