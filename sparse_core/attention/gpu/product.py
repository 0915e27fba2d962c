"""Block-sparse attention on a GPU as one differentiable operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.attention.gpu.plan import Lists, lists_of
from sparse_core.attention.operands import AttentionOptions, AttentionResult, AttentionShape
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.kernels.gradients import followed, once_differentiable


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: BlockPattern,
    shape: AttentionShape,
    options: AttentionOptions,
    *,
    cuda: bool | None,
) -> AttentionResult:
    """The public function for operands that were checked.

    Args:
        q, k, v, pattern: of the public function.
        shape: of the operands.
        options: checked, with a seed.
        cuda: take the CUDA kernel forward, not Triton's; ``None``: where it takes the operands.
    """
    if torch.compiler.is_compiling():
        from sparse_core.attention.gpu.operators import block_attention

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
            options.seed,
            "auto" if cuda is None else "cuda" if cuda else "triton",
        )
        return AttentionResult(out, lse)
    needs_gradient = followed(q, k, v)
    lists = lists_of(pattern)
    transposed = None
    if needs_gradient and (k.requires_grad or v.requires_grad):
        transposed = lists_of(pattern.transposed())
    q, k, v = (part if part.stride(-1) == 1 else part.contiguous() for part in (q, k, v))
    if needs_gradient:
        out, lse = _Attention.apply(q, k, v, lists, transposed, shape, options, cuda)
    else:
        out, lse = _forward(q, k, v, lists, shape, options, cuda)
    return AttentionResult(out, lse)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, lists: Lists, shape: AttentionShape, options: Any, cuda: bool | None
) -> tuple[Tensor, Tensor]:
    from sparse_core.attention.gpu import attention as execution_triton

    with torch.cuda.device_of(q):
        return execution_triton.forward(q, k, v, lists, shape, options, cuda=cuda)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        lists: Lists,
        transposed: Lists | None,
        shape: AttentionShape,
        options: Any,
        cuda: bool | None,
    ) -> tuple[Tensor, Tensor]:
        return _forward(q, k, v, lists, shape, options, cuda)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, ctx.lists, ctx.transposed, ctx.shape, ctx.options, _ = inputs
        ctx.save_for_backward(q, k, v, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor | None, lse_gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        from sparse_core.attention.gpu import attention as execution_triton

        q, k, v, out, lse = ctx.saved_tensors
        if gradient is None:
            if lse_gradient is None:
                return (None,) * 8
            gradient = torch.zeros_like(out)
        with torch.cuda.device_of(q):
            found = execution_triton.backward(
                gradient, lse_gradient, q, k, v, out, lse, ctx.lists, ctx.transposed, ctx.shape, ctx.options
            )
        return *found, None, None, None, None, None
