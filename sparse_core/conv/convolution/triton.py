"""Sparse convolution as implicit matrix product in Triton.

A program computes a block of output rows and channels: it gathers the input rows directly into the operand of
the product, so nothing is stored in between. One program writes each output once, with a fixed order of sums,
so results are bitwise reproducible. The gradient of the features uses the same kernel with the other
direction of the table and transposed matrices; weights are read in their layout. Runs on CUDA, and on a CPU
with ``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.conv.convolution.kernels_triton import weight_gradient_kernel
from sparse_core.conv.convolution.launch_triton import is_wide, launch
from sparse_core.conv.convolution.plan import ConvolutionConfig, Shape
from sparse_core.conv.convolution.tuned import chosen_config
from sparse_core.conv.convolution.types import Epilogue
from sparse_core.conv.table import NeighbourTable
from sparse_core.kernels.gradients import once_differentiable


def convolve(
    features: Tensor,
    weight: Tensor,
    table: Tensor,
    epilogue: Epilogue,
    *,
    count: Tensor | None = None,
    config: ConvolutionConfig | None = None,
    ready: bool = False,
) -> Tensor:
    """Launch the forward kernel, see :func:`launch`; by default with the tiles for these sizes."""
    if config is None:
        (taps, channels_in, channels_out), rows = weight.shape, table.shape[1]
        config = chosen_config(Shape(rows, channels_in, channels_out, taps, features.dtype), features.device)
    return launch(features, weight, table, epilogue, config, count=count, ready=ready)


def weight_gradient(features: Tensor, grad: Tensor, table: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the weight: float32, ``taps * C_in * C_out`` numbers in the weight's layout.

    Rows are cut into parts whose number depends only on the sizes; parts are summed in a fixed order.

    Args:
        features: (N, C_in) contiguous.
        grad: (rows, C_out) contiguous, of the features' type.
        table: see :func:`convolve`.
        weight: (taps, C_in, C_out), a view that fills its storage; only its sizes and strides matter.
    """
    taps, channels_in, channels_out = weight.shape
    rows, size = len(grad), taps * channels_in * channels_out
    if rows == 0 or size == 0 or len(features) == 0:
        return torch.zeros(size, dtype=torch.float32, device=features.device)
    block_in, block_out = (min(64, max(16, triton.next_power_of_2(n))) for n in (channels_in, channels_out))
    tiles = triton.cdiv(channels_in, block_in) * triton.cdiv(channels_out, block_out)
    block_rows = 64 if features.dtype.itemsize <= 2 else 32
    parts = max(1, min(triton.cdiv(1056, tiles * taps), triton.cdiv(rows, 4 * block_rows)))
    rows_each = triton.cdiv(triton.cdiv(rows, parts), block_rows) * block_rows
    parts = triton.cdiv(rows, rows_each)
    partial = torch.empty(parts, size, dtype=torch.float32, device=features.device)
    weight_gradient_kernel[(tiles, taps, parts)](
        features,
        grad,
        table,
        partial,
        rows,
        len(features),
        table.stride(1),
        table.stride(0),
        rows_each,
        size,
        CHANNELS_IN=channels_in,
        CHANNELS_OUT=channels_out,
        WEIGHT_TAP=weight.stride(0),
        WEIGHT_IN=weight.stride(1),
        WEIGHT_OUT=weight.stride(2),
        WIDE=is_wide(features, grad, table),
        BLOCK_ROWS=block_rows,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        num_warps=4,
        num_stages=3,
    )
    return partial[0] if parts == 1 else partial.sum(0)


def by_tap(weight: Tensor) -> Tensor:
    """View (C_out, *kernel, C_in), the layout of modules, as (taps, C_in, C_out)."""
    return weight.flatten(1, -2).permute(1, 2, 0)


def sparse_convolution(
    features: Tensor, weight: Tensor, table: NeighbourTable, bias: Tensor | None = None
) -> Tensor:
    """Convolve with gradients."""
    if not torch.is_grad_enabled():
        return convolve(features, by_tap(weight.contiguous()), table.rows, Epilogue(bias))
    result = _TritonConvolution.apply(features, weight, bias, table)
    assert isinstance(result, Tensor)
    return result


class _TritonConvolution(torch.autograd.Function):
    @staticmethod
    def forward(features: Tensor, weight: Tensor, bias: Tensor | None, table: NeighbourTable) -> Tensor:
        return convolve(features, by_tap(weight.contiguous()), table.rows, Epilogue(bias))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        features, weight, _, ctx.table = inputs
        ctx.save_for_backward(features, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        grad_output, matrices = grad_output.contiguous(), by_tap(weight.contiguous())
        grad_features = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_features = convolve(grad_output, matrices.transpose(1, 2), ctx.table.inverse, Epilogue())
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(features.contiguous(), grad_output, ctx.table.rows, matrices)
            grad_weight = grad_weight.view(weight.shape).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=torch.float32).to(grad_output.dtype)
        return grad_features, grad_weight, grad_bias, None
