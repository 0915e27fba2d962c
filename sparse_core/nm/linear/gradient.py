"""Gradients of the packed product: dense products, of which the kept positions are read off."""

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
    """Gradients of ``activation(x @ weight.T + bias)``.

    Args:
        gradient: (..., out), of the result.
        x: (..., in).
        weight: (out, in).
        bias: (out,).
        dense: (out, in), the unpacked weight, if it is at hand.
        activation: ``"relu"``, ``"gelu"`` or nothing.
        output: (..., out), the result, needed for ReLU.
        needed: whether the gradients of x and of the values are wanted.
        bias_needed: whether that of the bias is.

    Returns:
        For x (..., in), for the values (out, groups * n), for the bias (out,); ``None`` where not wanted.
    """
    if torch.is_autocast_enabled(x.device.type):
        # A compiled backward pass is traced where the forward pass was.
        with torch.autocast(x.device.type, enabled=False):
            return gradients(gradient, x, weight, bias, dense, activation, output, needed, bias_needed)
    matrix = weight.to_dense() if dense is None else dense
    if activation == "relu":
        assert output is not None
        gradient = torch.ops.aten.threshold_backward(gradient, output, 0)
    elif activation == "gelu":
        before = torch.nn.functional.linear(x, matrix, bias)
        gradient = torch.ops.aten.gelu_backward(gradient, before)
    of_x = of_values = of_bias = None
    # Sizes are spelled out: -1 is ambiguous where a dimension is empty.
    out, columns = weight.shape
    rows = math.prod(x.shape[:-1])
    flat = gradient.reshape(rows, out)
    if needed[0]:
        of_x = gradient @ matrix
    if needed[1]:
        of_dense = flat.T @ x.reshape(rows, columns)
        groups = of_dense.reshape(out, columns // weight.pattern.m, weight.pattern.m)
        of_values = groups.gather(2, weight.index().long()).reshape(weight.values.shape)
    if bias_needed:
        of_bias = flat.sum(dim=0)
    return of_x, of_values, of_bias
