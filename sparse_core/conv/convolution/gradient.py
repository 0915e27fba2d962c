"""Sparse convolution in Triton with gradients, over the maps of sparse tensors.

Both directions of a map are at hand, so the gradient of the features is the forward kernel over the inverse
table with transposed matrices. Nothing is packed: the kernels read weights and maps as they lie.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.conv.convolution.choice import chosen_config
from sparse_core.conv.convolution.plan import Shape
from sparse_core.conv.convolution.triton import WeightStrides, convolve, weight_gradient
from sparse_core.conv.kernel_map import KernelMap
from sparse_core.gradients import once_differentiable

__all__ = ["sparse_convolution"]


def sparse_convolution(
    features: Tensor, weight: Tensor, kernel_map: KernelMap, bias: Tensor | None = None
) -> Tensor:
    """See ``sparse_core.conv.convolution.api.sparse_convolution``."""
    if not torch.is_grad_enabled():
        return _forward(features, weight, kernel_map.neighbors, bias)
    result = _Convolution.apply(features, weight, bias, kernel_map.neighbors, kernel_map.inverse)
    assert isinstance(result, Tensor)
    return result


def _sizes(weight: Tensor) -> tuple[int, int, int]:
    channels_out, channels_in = weight.shape[0], weight.shape[-1]
    return weight[0, ..., 0].numel(), channels_in, channels_out


def _forward(features: Tensor, weight: Tensor, neighbors: Tensor, bias: Tensor | None) -> Tensor:
    taps, channels_in, channels_out = _sizes(weight)
    shape = Shape(len(neighbors), channels_in, channels_out, taps, features.dtype)
    return convolve(
        features.contiguous(),
        weight.contiguous(),
        neighbors,
        rows=len(neighbors),
        table_strides=(neighbors.stride(0), neighbors.stride(1)),
        sizes=(taps, channels_in, channels_out),
        strides=WeightStrides(channels_in, 1, taps * channels_in),
        config=chosen_config(shape, features.device),
        bias=bias,
    )


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, neighbors: Tensor, inverse: Tensor
    ) -> Tensor:
        ctx.save_for_backward(features, weight, neighbors, inverse)
        return _forward(features, weight, neighbors, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, neighbors, inverse = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        taps, channels_in, channels_out = _sizes(weight)
        grad_features = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            shape = Shape(len(features), channels_out, channels_in, taps, features.dtype)
            grad_features = convolve(
                grad_output,
                weight.contiguous(),
                inverse,
                rows=len(features),
                table_strides=(inverse.stride(0), inverse.stride(1)),
                sizes=(taps, channels_out, channels_in),
                strides=WeightStrides(channels_in, taps * channels_in, 1),
                config=chosen_config(shape, features.device),
            )
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(
                features.contiguous(),
                grad_output,
                neighbors,
                table_strides=(neighbors.stride(0), neighbors.stride(1)),
                sizes=(taps, channels_in, channels_out),
                strides=WeightStrides(channels_in, 1, taps * channels_in),
            )
            grad_weight = grad_weight.view(weight.shape).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0, dtype=torch.float32).to(grad_output.dtype)
        return grad_features, grad_weight, grad_bias, None, None
