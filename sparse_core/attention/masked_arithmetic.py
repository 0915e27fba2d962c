"""Products and softmax in which masked pairs contribute nothing, even NaN and infinities.

A weight of 0 removes a finite number, but 0 * NaN and 0 * inf are NaN, and would spoil rows that may not
attend to that key. These products leave masked pairs out, forward and backward. On a CPU they compute an
ordinary product if all numbers are finite. On other devices and in compiled code that check would wait for
the device, so both cases are always computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sparse_core.kernels import torch_internals

Result = TypeVar("Result")

#: Most scores of a chunk, which bounds the memory: on a CPU they fit in its cache, on a GPU they keep it
#: busy.
CHUNK_SCORES = {"cpu": 1 << 20, "cuda": 1 << 24}

#: Most scores that are kept for the backward pass; with more, it recomputes each chunk.
KEPT_SCORES = 1 << 24


class MaskedSoftmax(NamedTuple):
    """Softmax before the division, which is cheaper after the product with the values.

    Attributes:
        weights: (..., keys), zero where a key is not allowed.
        total: (..., 1), their sum, or 1 where no key is allowed.
        lse: (...), minus infinity where no key is allowed.
    """

    weights: Tensor
    total: Tensor
    lse: Tensor


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> MaskedSoftmax:
    """Compute the softmax of scores (..., keys) over the allowed keys.

    ``allowed`` is bool and broadcasts to the scores; None allows all. Rows without keys give zeros and no
    gradient.
    """
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    if scores.shape[-1]:
        # The largest score cancels, so it needs no gradient. A NaN would spread to weights of masked keys.
        largest = scores.detach().amax(dim=-1, keepdim=True)
        largest = torch.where(largest > float("-inf"), largest, 0.0)
    else:
        largest = scores.new_zeros((*scores.shape[:-1], 1))
    weights = torch.exp(scores - largest)
    total = weights.sum(dim=-1, keepdim=True)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    lse = (largest + total.log()).masked_fill(empty, float("-inf"))
    return MaskedSoftmax(weights, total, lse.squeeze(-1))


def run_chunk(function: Callable[..., Result], *arguments: Any, recompute: bool) -> Result:
    """Return ``function(*arguments)``; with ``recompute``, the backward pass computes it again."""
    if recompute and torch.is_grad_enabled():
        # No chunk draws random numbers.
        found: Result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
        return found
    return function(*arguments)


def zero_padding(rows: Tensor, lengths: Tensor | None) -> Tensor:
    """Zero rows (batch, ..., length, width) beyond ``lengths`` (batch,) int64; None changes nothing."""
    if lengths is None:
        return rows
    exists = torch.arange(rows.shape[-2], device=rows.device) < lengths[:, None]
    shape = (rows.shape[0], *(1 for _ in rows.shape[1:-2]), rows.shape[-2], 1)
    return rows.masked_fill(~exists.view(shape), 0.0)


def take(table: Tensor, index: Tensor) -> Tensor:
    """Return ``table[:, index]`` for a flat ``index``; its gradient is bitwise reproducible."""
    # On a CPU several threads sum the gradient of indexing; on a GPU, that of index_select.
    return table[:, index] if table.is_cuda else table.index_select(1, index)


def masked_scores(q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
    """Return ``q @ k.mT`` (..., rows, keys), without gradients of masked pairs, whose scores are arbitrary.

    Args:
        q: (..., rows, dim) floating.
        k: (..., keys, dim).
        allowed: bool that broadcasts to the scores, or None for all.
    """
    if allowed is None:
        return q @ k.mT
    scores: Tensor = _Scores.apply(q, k, allowed)
    return scores


def weighted_sum(weights: Tensor, table: Tensor, allowed: Tensor | None) -> Tensor:
    """Return ``weights @ table`` (..., rows, dim) over the allowed pairs only.

    Args:
        weights: (..., rows, keys) floating, 0 at masked pairs.
        table: (..., keys, dim).
        allowed: bool that broadcasts to ``weights``, or None for all.
    """
    if allowed is None:
        return weights @ table
    found: Tensor = _WeightedSum.apply(weights, table, allowed)
    return found


def all_finite(*tensors: Tensor) -> bool:
    """True if all numbers are known to be finite; False if the check would wait for a device.

    Numbers whose sum overflows count as not finite.
    """
    # Under transforms of torch.func a tensor may be a batch of tensors.
    if torch.compiler.is_compiling() or torch_internals.transforms_active():
        return False
    return all(tensor.device.type == "cpu" and bool(tensor.sum().isfinite()) for tensor in tensors)


class _OperandContext:
    """Save the operands and the mask for both derivative modes."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


class _Scores(_OperandContext, torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
        return q @ k.mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        q, k, allowed = ctx.saved_tensors
        gradient = gradient.masked_fill(~allowed, 0.0)
        of_q = weighted_sum(gradient, k, allowed) if ctx.needs_input_grad[0] else None
        of_k = weighted_sum(gradient.mT, q, allowed.mT) if ctx.needs_input_grad[1] else None
        return of_q, of_k, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return _tangent(masked_scores, ctx, tangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return masked_scores(*_move_batch_first(in_dims, *tensors)), 0


class _WeightedSum(_OperandContext, torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, table: Tensor, allowed: Tensor) -> Tensor:
        return weights @ table if all_finite(table) else _sum_non_finite(weights, table, allowed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        weights, table, allowed = ctx.saved_tensors
        of_weights = of_table = None
        if ctx.needs_input_grad[0]:
            of_weights = masked_scores(gradient, table, allowed).masked_fill(~allowed, 0.0)
        if ctx.needs_input_grad[1]:
            of_table = weighted_sum(weights.mT, gradient, allowed.mT)
        return of_weights, of_table, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return _tangent(weighted_sum, ctx, tangents)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        return weighted_sum(*_move_batch_first(in_dims, *tensors)), 0


def _tangent(product: Callable[..., Tensor], ctx: Any, tangents: tuple[Tensor, ...]) -> Tensor:
    """Apply the product rule to two operands under one mask."""
    first, second, allowed = ctx.saved_tensors
    return product(tangents[0], second, allowed) + product(first, tangents[1], allowed)


def _sum_non_finite(weights: Tensor, table: Tensor, allowed: Tensor) -> Tensor:
    """Sum the allowed pairs as IEEE 754 demands: infinities by their signs, 0 * inf as NaN."""
    dtype = weights.dtype
    bad = ~table.isfinite()
    infinite = torch.where(table.isinf(), table.sign(), 0.0)
    sign = weights.sign().nan_to_num(0.0)
    found = weights @ table.masked_fill(bad, 0.0)
    # Counts: infinite products, positive minus negative ones, and products with a non-finite number.
    crossed, net = sign.abs() @ infinite.abs(), sign @ infinite
    reached = allowed.expand(weights.shape).to(dtype) @ bad.to(dtype)
    found = torch.where(crossed + net > 0.5, found + torch.inf, found)
    found = torch.where(crossed - net > 0.5, found - torch.inf, found)
    return torch.where(reached - crossed > 0.5, torch.nan, found)


def _move_batch_first(in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """Move the mapped dimension first, and insert dimensions of 1 so that the others still broadcast."""
    inner = max(one.ndim - (dim is not None) for one, dim in zip(tensors, in_dims, strict=True))
    found = []
    for one, dim in zip(tensors, in_dims, strict=True):
        moved = one[None] if dim is None else one.movedim(dim, 0)
        found.append(moved.reshape(len(moved), *[1] * (inner + 1 - moved.ndim), *moved.shape[1:]))
    return found
