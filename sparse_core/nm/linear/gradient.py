"""Gradients of the packed product: dense products, gathered at the kept positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparse_core.nm.packing.packed_weight import PackedNM


def gradients(
    gradient: Tensor,
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    dense: Tensor | None,
    activation: str | None,
    output: Tensor | None,
    needed: tuple[bool, ...],
    bias_needed: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of ``activation(x @ weight.T + bias)`` for x, the values and the bias.

    Each is ``None`` unless ``needed`` (x, values) or ``bias_needed``.

    Args:
        gradient: (..., out), of the result.
        x: (..., in).
        weight: (out, in).
        bias: (out,).
        dense: (out, in), the unpacked weight, if it exists.
        activation: ``"relu"``, ``"gelu"`` or ``None``.
        output: (..., out), the result, needed for ReLU.
        needed: which of the gradients of x and of the values are needed.
        bias_needed: True if the gradient of the bias is needed.
    """
    if torch.is_autocast_enabled(x.device.type):
        # A compiled backward pass is traced together with the forward pass.
        with torch.autocast(x.device.type, enabled=False):
            return gradients(gradient, x, weight, bias, dense, activation, output, needed, bias_needed)
    matrix = weight.to_dense() if dense is None else dense
    if activation == "relu":
        assert output is not None
        gradient = torch.ops.aten.threshold_backward(gradient, output, 0)
    elif activation == "gelu":
        before = torch.nn.functional.linear(x, matrix, bias)
        gradient = torch.ops.aten.gelu_backward(gradient, before)
    x_grad = values_grad = bias_grad = None
    # Explicit sizes, because -1 is ambiguous for empty dimensions.
    out, columns = weight.shape
    rows = math.prod(x.shape[:-1])
    flat = gradient.reshape(rows, out)
    if needed[0]:
        x_grad = gradient @ matrix
    if needed[1]:
        dense_grad = flat.T @ x.reshape(rows, columns)
        groups = dense_grad.reshape(out, columns // weight.pattern.m, weight.pattern.m)
        values_grad = groups.gather(2, weight.index().long()).reshape(weight.values.shape)
    if bias_needed:
        bias_grad = flat.sum(dim=0)
    return x_grad, values_grad, bias_grad
