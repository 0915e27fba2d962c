"""Autograd for the kernels of gathered attention, in eager code and as an operator for ``torch.compile``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.attention.gathered import triton as kernels
from sparse_core.attention.operands import AttentionResult
from sparse_core.kernels.gradients import needs_autograd, once_differentiable
from sparse_core.kernels.operators import operator


def gathered_attention(q: Tensor, k: Tensor, v: Tensor, index: Tensor, *, scale: float) -> AttentionResult:
    """See the public function."""
    if torch.compiler.is_compiling():
        return AttentionResult(*gathered_attention_op(q, k, v, index, scale))
    if needs_autograd(q, k, v):
        return AttentionResult(*_GatheredAttention.apply(q, k, v, index, scale))
    return kernels.forward(q, k, v, index, scale)


class _GatheredAttention(torch.autograd.Function):
    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = kernels.forward(q, k, v, index, scale)
        return out, lse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _keep(ctx, inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, index, out, lse = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        return *kernels.backward(grad, grad_lse, q, k, v, index, out, lse, ctx.scale, needs), None, None


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, index, scale = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, index, *output)
    ctx.scale = scale


@operator("gathered_attention")
def gathered_attention_op(
    q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """:func:`sparse_core.attention.gathered.triton.forward` as an operator."""
    out, lse = kernels.forward(q, k, v, index, scale)
    return out, lse


@torch.library.register_fake(gathered_attention_op)
def _(q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)


@operator("gathered_attention_backward", gradient=False)
def _backward_op(
    grad: Tensor | None,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    needs_q: bool,
    needs_k: bool,
    needs_v: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three tensors as an operator must, empty ones for gradients that are not needed."""
    found = kernels.backward(grad, grad_lse, q, k, v, index, out, lse, scale, (needs_q, needs_k, needs_v))
    q_grad, k_grad, v_grad = (q.new_empty(0) if one is None else one for one in found)
    return q_grad, k_grad, v_grad


@torch.library.register_fake(_backward_op)
def _(
    grad: Tensor | None,
    grad_lse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    needs_q: bool,
    needs_k: bool,
    needs_v: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    def made(like: Tensor, needed: bool) -> Tensor:
        return like.new_empty(like.shape if needed else (0,))

    return made(q, needs_q), made(k, needs_k), made(v, needs_v)


def _traced_backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:3]
    found = _backward_op(grad, grad_lse, *ctx.saved_tensors, ctx.scale, *needs)
    return *(one if needed else None for one, needed in zip(found, needs, strict=True)), None, None


torch.library.register_autograd(gathered_attention_op, _traced_backward, setup_context=_keep)
