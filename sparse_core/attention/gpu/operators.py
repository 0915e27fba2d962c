"""Block-sparse attention as operators that ``torch.compile`` keeps whole."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from sparse_core.attention.dropout import drawn_seed
from sparse_core.attention.gpu import attention
from sparse_core.attention.gpu.plan import lists_of, owner_of
from sparse_core.attention.operands import AttentionOptions, AttentionResult, AttentionShape
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.kernels.operators import operator

#: Largest number of cached patterns that only compiled code uses.
_MOST_KEPT = 8
_kept: OrderedDict[int, BlockPattern] = OrderedDict()


def attend(
    q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, shape: AttentionShape, options: AttentionOptions
) -> AttentionResult:
    """Compute :func:`.attention.attend` as one node of a compiled graph."""
    out, lse, _ = block_attention(
        q,
        k,
        v,
        pattern.row_ptr,
        pattern.columns,
        pattern.partial,
        pattern.token_masks,
        options.query_lengths,
        options.key_lengths,
        pattern.block_size,
        options.scale,
        options.dropout_p,
        -1 if options.seed is None else options.seed,  # compiled code draws at every call
        options.impl,
    )
    return AttentionResult(out, lse)


@operator("block_attention")
def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    row_ptr: Tensor,
    columns: Tensor,
    partial: Tensor,
    token_masks: Tensor,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    block_size: int,
    scale: float,
    dropout_p: float,
    seed: int,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return out, lse and the seed () int64 that was used; -1 draws a seed."""
    if dropout_p and seed < 0:
        seed = drawn_seed()
    pattern = _pattern(row_ptr, columns, partial, token_masks, q.shape[2], k.shape[2], block_size)
    options = AttentionOptions(scale, dropout_p, max(seed, 0), query_lengths, key_lengths, impl=impl)
    with torch.cuda.device_of(q), torch.no_grad():
        q, k, v = attention.readable(q), attention.readable(k), attention.readable(v)
        out, lse = attention.forward(q, k, v, lists_of(pattern), _shape(q, k), options)
    return out, lse, torch.tensor(seed)


@torch.library.register_fake(block_attention)
def _(q: Tensor, *rest: object) -> tuple[Tensor, Tensor, Tensor]:
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return torch.empty_like(q), lse, torch.empty((), dtype=torch.int64)


@operator("block_attention_backward", gradient=False)
def block_attention_backward(
    gradient: Tensor,
    lse_gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    row_ptr: Tensor,
    columns: Tensor,
    partial: Tensor,
    token_masks: Tensor,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    block_size: int,
    scale: float,
    dropout_p: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v."""
    pattern = _pattern(row_ptr, columns, partial, token_masks, q.shape[2], k.shape[2], block_size)
    options = AttentionOptions(scale, dropout_p, max(int(seed), 0), query_lengths, key_lengths)
    with torch.cuda.device_of(q), torch.no_grad():
        q, k, v = attention.readable(q), attention.readable(k), attention.readable(v)
        of_q, of_k, of_v = attention.backward(
            gradient,
            lse_gradient,
            q,
            k,
            v,
            out,
            lse,
            lists_of(pattern),
            lists_of(pattern.transposed()),
            _shape(q, k),
            options,
        )
    assert of_k is not None
    assert of_v is not None
    return of_q, of_k, of_v


@torch.library.register_fake(block_attention_backward)
def _(
    gradient: Tensor, lse_gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: object
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _setup(ctx: object, inputs: tuple[object, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, row_ptr, columns, partial, token_masks, query_lengths, key_lengths, *numbers = inputs
    ctx.save_for_backward(  # type: ignore[attr-defined]
        q, k, v, *output[:2], row_ptr, columns, partial, token_masks, query_lengths, key_lengths, output[2]
    )
    ctx.numbers = numbers[:3]  # type: ignore[attr-defined]


def _backward(ctx: object, gradient: Tensor, lse_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed = ctx.saved_tensors  # type: ignore[attr-defined]
    numbers = ctx.numbers  # type: ignore[attr-defined]
    found = block_attention_backward(gradient, lse_gradient, *tensors, *numbers, seed)
    return *found, *[None] * 11


torch.library.register_autograd(block_attention, _backward, setup_context=_setup)


def _shape(q: Tensor, k: Tensor) -> AttentionShape:
    return AttentionShape(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])


def _pattern(
    row_ptr: Tensor,
    columns: Tensor,
    partial: Tensor,
    token_masks: Tensor,
    query_length: int,
    key_length: int,
    block_size: int,
) -> BlockPattern:
    """Return the pattern that owns these tensors, or a cached copy."""
    owner = owner_of(row_ptr, columns, partial)
    if owner is not None:
        return owner
    grid = BlockGrid(len(row_ptr), query_length, key_length, block_size)
    pattern = BlockPattern.on(grid, row_ptr, columns, partial, token_masks)
    # The pattern keeps the tensors alive, so no other tensor gets this address.
    _kept[columns.data_ptr()] = pattern
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return pattern
