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
from sparse_core.common.libraries import missing, module_available
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton


def _runs_kernels(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if scored:
        return "does not support score_mod: use 'auto', 'vendor' or 'reference'"
    return None if dtype in KERNEL_TYPES else f"supports float16, bfloat16 and float32, not {dtype}"


def _runs_flex(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if not plain:
        return "supports neither dropout nor lengths: use 'auto' or 'reference', or call it per sequence"
    if kind == "cuda" and dtype == torch.float64:
        return "does not support float64 on a GPU: use 'reference'"
    return None if kind in ("cpu", "cuda") else f"needs CUDA or CPU tensors, got {kind}"


def _runs_tiles(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if kind != "cpu":
        return f"needs CPU tensors, got {kind}"
    if scored or not plain:
        return "supports no score_mod, dropout or lengths: use 'auto' or 'reference'"
    if pairs > _MAX_MASK_PAIRS:
        return f"supports blocks of up to {_MAX_MASK_PAIRS} pairs of tokens, not {pairs}: use 'reference'"
    return None


def _runs_fa4(kind: str, dtype: torch.dtype, scored: bool, plain: bool, pairs: int) -> str | None:
    if not module_available("flash_attn.cute"):
        return missing("flash-attn-4", "pip install 'sparsight[fa4]'")
    if kind != "cuda":
        return f"needs CUDA tensors, got {kind}"
    if scored or not plain:
        return "supports no score_mod, dropout or lengths: use 'auto' or 'reference'"
    return None if dtype in (torch.float16, torch.bfloat16) else f"needs float16 or bfloat16, got {dtype}"


#: Largest number of query-key pairs in stored blocks; a mask takes up to one byte per pair.
_MAX_MASK_PAIRS = 1 << 28
_KERNELS: Implementation[torch.dtype, bool, bool, int] = by_triton(
    needs="16 bits or float32; no score_mod; forward by cuda where that runs",
    supports=_runs_kernels,
    module=f"{__package__}.gpu.attention",
)
#: The case: dtype of the operands, True with a score_mod, True without dropout and lengths, and the number of
#: query-key pairs in stored blocks. The CUDA kernel checks the rest when it makes its lists.
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
    # Never by "auto": on Hopper its gradients repeat only to rounding.
    Implementation("fa4", "flash-attn-4; Hopper; 16 bits; plain; whole blocks of 128", _runs_fa4, auto=()),
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
    """Return ``softmax(scale * q @ k.T) @ v`` over the keys that ``pattern`` allows.

    Only the blocks of the pattern are computed. A query without keys returns zeros and has no gradient.
    Results are bitwise reproducible, except gradients of ``impl="fa4"``.

    Args:
        q: (batch, heads, query_length, dim) floating; dim from 1 to 256. A dim that is not a multiple of 8,
            or is below 16, costs a zero-padded copy of the operands.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        v: like k.
        pattern: for these lengths. It has one head for all, as many heads as q, or one for each head of
            each sequence of the batch (:func:`per_sequence`).
        scale: of the scores; 1 / sqrt(dim) by default.
        dropout_p: probability of dropping a weight, in [0, 1). The others are scaled by 1 / (1 - dropout_p).
        seed: of the dropout, from 0 to 2^63 - 1; by default drawn from torch's generator. The dropout mask
            depends only on seed, batch entry, head, query and key (:mod:`sparse_core.attention.dropout`).
        query_lengths, key_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end.
            For packed sequences without padding use the pattern :func:`documents`.
        score_mod: changes the scaled scores before the softmax: :func:`alibi`, :func:`relative_positions`,
            :func:`soft_cap` or your own function (:mod:`sparse_core.attention.scores`). On a GPU ``"auto"``
            then runs FlexAttention; with dropout or lengths it runs plain torch.
        impl: ``"auto"`` chooses by device and operands; any other name runs that implementation or raises.

            - ``"cuda"``: CUDA forward kernel for Hopper; 16 bits, blocks of 64 or 128, dim 64 or 128,
              neither dropout nor lengths. On a GPU ``"auto"`` takes it where it supports the operands.
            - ``"triton"``: GPU kernels for float16, bfloat16 and float32.
            - ``"cpu"``: gathers the keys of tiles of queries; no score_mod, dropout or lengths.
            - ``"vendor"``: torch's FlexAttention.
            - ``"fa4"``: FlashAttention-4 (extra ``fa4``); Hopper, 16 bits, dim up to 128, blocks of 128
              without token masks, whole lengths, neither dropout nor lengths. Its gradients repeat only to
              rounding, so ``"auto"`` never takes it.
            - ``"reference"``: plain torch on any device.
        return_lse: also return the log-sum-exp of the scores.

    Returns:
        (batch, heads, query_length, dim) like q; with ``return_lse`` an :class:`AttentionResult`.

    Raises:
        TypeError: dtypes do not match, or ``pattern`` is not a BlockPattern.
        ValueError: shapes, lengths, devices or options do not match.
        ImplementationError: the named ``impl`` cannot run these operands.
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
    has_options = (
        seed is not None or query_lengths is not None or key_lengths is not None or score_mod is not None
    )
    defaults = not (has_options or dropout_p or return_lse) and impl == "auto"
    if defaults and q.is_cuda and not torch.compiler.is_compiling():
        return attend_by_plan(q, k, v, pattern, scale, lambda: _attend(q, k, v, pattern, **options).out)
    result = _attend(q, k, v, pattern, **options)
    return result if return_lse else result.out


def _attend(
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
    """Check the operands and options, choose an implementation and run it."""
    separate = q.ndim == 4 and isinstance(pattern, BlockPattern) and q.shape[0] > 1
    separate = separate and pattern.heads == q.shape[0] * q.shape[1]
    batch, heads, dim = q.shape[0], q.shape[1:2], q.shape[-1]
    if separate:
        # Treat the sequences as heads of one batch entry, so that each has its own pattern.
        if any(given[name] is not None for name in ("score_mod", "query_lengths", "key_lengths")):
            raise ValueError(
                "patterns per sequence support neither score_mod nor lengths: build each pattern for the"
                " length of its sequence"
            )
        q, k, v = (tensor.flatten(0, 1)[None] for tensor in (q, k, v))
    q, k, v = padded_dims(q, k, v)
    shape = check_operands(q, k, v)
    options = AttentionOptions(default_scale(scale, dim), impl=impl, wants_lse=return_lse, **given)
    options = check_options(options, pattern, shape, q.device)
    scored, pairs = options.score_mod is not None, pattern.blocks * pattern.block_size**2
    name = _choose(impl, q.device, q.dtype, scored, options.plain, pairs)
    if torch.compiler.is_compiling() and name in ("triton", "cuda"):
        # torch.compile keeps an operator as one node.
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
def _choose(
    impl: AttentionImpl, device: torch.device, dtype: torch.dtype, scored: bool, plain: bool, pairs: int
) -> str:
    """Return the name of the implementation; load it now, because torch.compile cannot trace imports."""
    name = SPARSE_ATTENTION.choose(impl, device, dtype, scored, plain, pairs)
    SPARSE_ATTENTION.load(name)
    return name
