"""Products of a weight with the same number of blocks in every block row, with gradients.

Triton on CUDA, where each block is a product of two tiles; plain torch elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.dynamic.rigl.block_product import reference
from sparse_core.dynamic.rigl.block_product.plan import BlockPlan, Taps
from sparse_core.kernels.gradients import once_differentiable
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

BLOCK_PRODUCT: Op[()] = Op("block_product", __package__, by_triton(), by_torch(), gradient=True)


def block_linear(
    x: Tensor, values: Tensor, plan: BlockPlan, bias: Tensor | None = None, *, impl: Impl = "auto"
) -> Tensor:
    """Return ``x @ weight.T + bias`` (N, rows) with gradients for all three; results repeat bit for bit.

    Args:
        x: (N, columns).
        values: (count, cell_rows, cell_columns), same type.
        plan: from :func:`sparse_core.dynamic.rigl.block_product.plan.plan_blocks`.
        bias: (rows,), same type.
        impl: ``"reference"`` or ``"triton"``; ``"auto"`` uses Triton on CUDA if it is installed.
    """
    chosen = BLOCK_PRODUCT.choose(impl, x.device)
    x = x.contiguous() if chosen == "triton" else x
    product: Tensor = _BlockLinear.apply(x, values, bias, plan, chosen)
    return product


def block_convolution(
    x: Tensor, values: Tensor, plan: BlockPlan, taps: Taps, bias: Tensor | None = None, *, impl: Impl = "auto"
) -> Tensor:
    """Convolve with zero padding and one group, with gradients for all; results repeat bit for bit.

    Args:
        x: (B, C, H, W).
        values: (count, cell_rows, cell_columns), same type.
        plan: from :func:`sparse_core.dynamic.rigl.block_product.plan.plan_blocks` with ``taps.places``.
        taps: kernel, stride, padding and dilation.
        bias: (rows,), same type.
        impl: see :func:`block_linear`.

    Returns:
        (B, rows, H', W'); in Triton, channels are last in memory.
    """
    chosen = BLOCK_PRODUCT.choose(impl, x.device)
    x = x.contiguous(memory_format=torch.channels_last) if chosen == "triton" else x
    product: Tensor = _BlockConvolution.apply(x, values, bias, plan, taps, chosen)
    return product


class _BlockLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, values: Tensor, bias: Tensor | None, plan: BlockPlan, chosen: str) -> Tensor:
        if chosen == "triton":
            from sparse_core.dynamic.rigl.block_product import triton

            return triton.product(x, values, plan, bias)
        product = reference.product(values, reference.gather_rows(x.T.contiguous(), plan), plan)
        return (product if bias is None else product + bias[:, None]).T

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, values, _, ctx.plan, ctx.chosen = inputs
        ctx.save_for_backward(x, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        plan, wanted = ctx.plan, ctx.needs_input_grad
        x_grad = values_grad = None
        if ctx.chosen == "triton":
            from sparse_core.dynamic.rigl.block_product import triton

            gradient = gradient.contiguous()
            x_grad = triton.transposed_product(gradient, values, plan) if wanted[0] else None
            values_grad = triton.value_gradient(x, gradient, plan) if wanted[1] else None
        else:
            lines = gradient.T
            x_grad = reference.dense_gradient(values, lines, plan).T if wanted[0] else None
            if wanted[1]:
                met = reference.gather_rows(x.T.contiguous(), plan)
                values_grad = reference.value_gradient(met, lines, plan)
        return x_grad, values_grad, gradient.sum(dim=0) if wanted[2] else None, None, None


class _BlockConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, values: Tensor, bias: Tensor | None, plan: BlockPlan, taps: Taps, chosen: str
    ) -> Tensor:
        if chosen == "triton":
            from sparse_core.dynamic.rigl.block_product import triton

            return triton.convolution(x, values, plan, taps, bias)
        product = reference.product(values, reference.gather_pixels(x, plan, taps), plan)
        product = product if bias is None else product + bias[:, None]
        return product.reshape(plan.grid.rows, len(x), *taps.extent(_size(x))).transpose(0, 1).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, values, _, ctx.plan, ctx.taps, ctx.chosen = inputs
        ctx.save_for_backward(x, values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, values = ctx.saved_tensors
        plan, taps, wanted = ctx.plan, ctx.taps, ctx.needs_input_grad
        x_grad = values_grad = None
        if ctx.chosen == "triton":
            from sparse_core.dynamic.rigl.block_product import triton

            gradient = gradient.contiguous(memory_format=torch.channels_last)
            x_grad = triton.transposed_convolution(gradient, values, plan, taps, x) if wanted[0] else None
            values_grad = triton.convolution_value_gradient(x, gradient, plan, taps) if wanted[1] else None
        else:
            lines = gradient.transpose(0, 1).reshape(plan.grid.rows, -1)
            if wanted[0]:
                x_grad = reference.spread_pixels(reference.dense_gradient(values, lines, plan), x, taps)
            if wanted[1]:
                met = reference.gather_pixels(x, plan, taps)
                values_grad = reference.value_gradient(met, lines, plan)
        return x_grad, values_grad, gradient.sum(dim=(0, 2, 3)) if wanted[2] else None, None, None, None


def _size(x: Tensor) -> tuple[int, int]:
    return x.shape[2], x.shape[3]
