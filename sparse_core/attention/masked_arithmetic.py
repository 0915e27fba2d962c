"""Products in which masked pairs contribute nothing, whatever the operands hold there.

A weight of 0 removes a finite number, but 0 * NaN and 0 * inf are NaN: in a tile that a mask cuts, a key
would spoil rows that may not attend to it. The functions here leave such pairs out, forward and backward. On
a CPU they look for numbers that are not finite first, and compute an ordinary product if there are none. On
other devices and in compiled code, looking would wait, so they always compute what both cases need.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels import torch_internals


def masked_scores(q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
    """``q @ k.mT``; gradients of masked pairs are left out.

    Args:
        q: (..., rows, dim) floating.
        k: (..., keys, dim).
        allowed: bool that broadcasts to the scores, or None for all.

    Returns:
        (..., rows, keys), with any number at masked pairs.
    """
    if allowed is None:
        return q @ k.mT
    scores: Tensor = _Scores.apply(q, k, allowed)
    return scores


def weighted_sum(weights: Tensor, table: Tensor, allowed: Tensor | None) -> Tensor:
    """``weights @ table`` over the allowed pairs alone.

    Args:
        weights: (..., rows, keys) floating, 0 at masked pairs.
        table: (..., keys, dim).
        allowed: bool that broadcasts to ``weights``, or None for all.

    Returns:
        (..., rows, dim).
    """
    if allowed is None:
        return weights @ table
    found: Tensor = _WeightedSum.apply(weights, table, allowed)
    return found


def all_finite(*tensors: Tensor) -> bool:
    """True if all numbers are known to be finite; never waits for a device, so that False is not sure.

    Args:
        tensors: floating. Numbers whose sum overflows count as not finite.
    """
    # Under transforms of torch.func a tensor may stand for many.
    if torch.compiler.is_compiling() or torch_internals.transforms_active():
        return False
    return all(tensor.device.type == "cpu" and bool(tensor.sum().isfinite()) for tensor in tensors)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
        return q @ k.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        q, k, allowed = ctx.saved_tensors
        gradient = gradient.masked_fill(~allowed, 0.0)
        of_q = weighted_sum(gradient, k, allowed) if ctx.needs_input_grad[0] else None
        of_k = weighted_sum(gradient.mT, q, allowed.mT) if ctx.needs_input_grad[1] else None
        return of_q, of_k, None

    @staticmethod
    def jvp(ctx: Any, of_q: Tensor, of_k: Tensor, _: None) -> Tensor:
        q, k, allowed = ctx.saved_tensors
        return masked_scores(of_q, k, allowed) + masked_scores(q, of_k, allowed)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], q: Tensor, k: Tensor, allowed: Tensor
    ) -> tuple[Tensor, int]:
        return masked_scores(*_batched(in_dims, q, k, allowed)), 0


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, table: Tensor, allowed: Tensor) -> Tensor:
        return weights @ table if all_finite(table) else _guarded(weights, table, allowed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

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
    def jvp(ctx: Any, of_weights: Tensor, of_table: Tensor, _: None) -> Tensor:
        weights, table, allowed = ctx.saved_tensors
        return weighted_sum(of_weights, table, allowed) + weighted_sum(weights, of_table, allowed)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], weights: Tensor, table: Tensor, allowed: Tensor
    ) -> tuple[Tensor, int]:
        return weighted_sum(*_batched(in_dims, weights, table, allowed)), 0


def _guarded(weights: Tensor, table: Tensor, allowed: Tensor) -> Tensor:
    """The sum as IEEE 754 has it over the allowed pairs: infinities by their signs, 0 * inf as NaN."""
    dtype = weights.dtype
    bad = ~table.isfinite()
    infinite = torch.where(table.isinf(), table.sign(), 0.0)
    sign = weights.sign().nan_to_num(0.0)
    found = weights @ table.masked_fill(bad, 0.0)
    # Counts: pairs that give an infinity, positive less negative ones, and pairs with a number not finite.
    crossed, net = sign.abs() @ infinite.abs(), sign @ infinite
    reached = allowed.expand(weights.shape).to(dtype) @ bad.to(dtype)
    found = torch.where(crossed + net > 0.5, found + torch.inf, found)
    found = torch.where(crossed - net > 0.5, found - torch.inf, found)
    return torch.where(reached - crossed > 0.5, torch.nan, found)


def _batched(in_dims: tuple[int | None, ...], *tensors: Tensor) -> list[Tensor]:
    """Tensors with the mapped dimension first, and dimensions of 1 so that the others still broadcast."""
    inner = max(one.ndim - (dim is not None) for one, dim in zip(tensors, in_dims, strict=True))
    found = []
    for one, dim in zip(tensors, in_dims, strict=True):
        moved = one[None] if dim is None else one.movedim(dim, 0)
        found.append(moved.reshape(len(moved), *[1] * (inner + 1 - moved.ndim), *moved.shape[1:]))
    return found
