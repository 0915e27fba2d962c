"""Sparse convolution as gather and matrix product in plain torch.

Forward gathers the K taps of every output row side by side and multiplies once. Gradients use the other
direction of the table in the same way, so nothing is scattered and no atomics change the order of sums.
:func:`fixed_convolution` does the same for a table of fixed capacity, with the epilogue.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv.convolution.types import Epilogue
from sparse_core.conv.table import NeighbourTable, gather_rows

#: Elements gathered at a time, 256 MB in float32, to bound the memory.
GATHER_ELEMENTS = 1 << 26


def gather_product(features: Tensor, rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``out[m] = concat_k(features[rows[m, k]]) @ matrix + bias``; missing rows are zero.

    Args:
        features: (N, C).
        rows: (M, K) integers in [0, N], see ``gather_rows``.
        matrix: (K * C, C_out).
        bias: (C_out,) or None.

    Returns:
        (M, C_out).
    """
    padded = torch.cat([features, features.new_zeros(1, features.shape[1])])
    if torch.compiler.is_exporting():
        # Sizes are symbolic. AOTInductor (torch 2.13) fails in products after a flat index_select.
        return F.linear(F.embedding(rows, padded).reshape(-1, matrix.shape[0]), matrix.T, bias)
    chunk = max(1, GATHER_ELEMENTS // max(1, matrix.shape[0]))
    parts = []
    for part in rows.split(chunk):
        gathered = padded.index_select(0, part.reshape(-1)).view(len(part), matrix.shape[0])
        parts.append(_product(gathered, matrix, bias))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _product(rows: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``rows @ matrix + bias``, on a CPU as a 1x1 convolution, where oneDNN is faster."""
    if rows.is_cuda or rows.dtype != torch.float32 or len(rows) == 0 or torch.is_grad_enabled():
        return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)
    as_map = rows[None, None].permute(0, 3, 1, 2)
    return F.conv2d(as_map, matrix.T[:, :, None, None], bias)[0, :, 0].T


def weight_gradient(features: Tensor, rows: Tensor, grad_output: Tensor) -> Tensor:
    """Return the gradient of the matrix of :func:`gather_product`: (K * C, C_out)."""
    padded = torch.cat([features, features.new_zeros(1, features.shape[1])])
    width = rows.shape[1] * features.shape[1]
    chunk = max(1, GATHER_ELEMENTS // max(1, width))
    total = grad_output.new_zeros(width, grad_output.shape[1])
    for part, grad in zip(rows.split(chunk), grad_output.split(chunk), strict=True):
        total += padded.index_select(0, part.reshape(-1)).view(len(part), width).T @ grad
    return total


class _GatherConvolution(torch.autograd.Function):
    @staticmethod
    def forward(features: Tensor, weight: Tensor, table: NeighbourTable) -> Tensor:
        return gather_product(features, table.gathered, weight.reshape(len(weight), -1).T)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        features, weight, ctx.table = inputs
        ctx.save_for_backward(features, weight)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        features, weight = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        channels_out, channels_in = weight.shape[0], weight.shape[-1]
        grad_features = grad_weight = None
        if ctx.needs_input_grad[0]:
            by_tap = weight.reshape(channels_out, -1, channels_in).transpose(0, 1)
            grad_features = gather_product(
                grad_output, ctx.table.reversed.gathered, by_tap.reshape(-1, channels_in)
            )
        if ctx.needs_input_grad[1]:
            grad_weight = weight_gradient(features, ctx.table.gathered, grad_output)
            grad_weight = grad_weight.T.reshape(weight.shape)
        return grad_features, grad_weight, None


def sparse_convolution(
    features: Tensor, weight: Tensor, table: NeighbourTable, bias: Tensor | None = None
) -> Tensor:
    """Convolve with gradients."""
    if not torch.is_grad_enabled():
        return gather_product(features, table.gathered, weight.reshape(len(weight), -1).T, bias)
    result = _GatherConvolution.apply(features, weight, table)
    assert isinstance(result, Tensor)
    return result if bias is None else result + bias


def fixed_convolution(
    features: Tensor, weight: Tensor, neighbours: Tensor, count: Tensor | None, epilogue: Epilogue
) -> Tensor:
    """Convolve over a table of fixed capacity; rows beyond ``count`` are computed too."""
    bias, residual, residual_rows, relu, zero_empty, out, out_rows = epilogue
    rows = gather_rows(neighbours, len(features))
    wide = torch.promote_types(features.dtype, torch.float32)
    result = gather_product(features.to(wide), rows, weight.flatten(0, 1).to(wide))
    if bias is not None:
        result = result + bias.to(wide)
    if residual is not None:
        result = result + _addend(residual, residual_rows).to(wide)
    if relu:
        result = torch.relu(result)
    if zero_empty:
        result = torch.where((rows < len(features)).any(1, keepdim=True), result, 0)
    result = result.to(features.dtype)
    if out is None:
        return result
    if out_rows is not None:
        used = out_rows >= 0
        if count is not None:
            used &= torch.arange(len(result), device=result.device) < count
        out[out_rows[used].long()] = result[used]
        return out
    if count is not None:
        used = torch.arange(len(result), device=result.device)[:, None] < count
        result = torch.where(used, result, out)
    return out.copy_(result)


def _addend(residual: Tensor, rows: Tensor | None) -> Tensor:
    """Return the residual row of each output row; zeros for none."""
    if rows is None:
        return residual
    # Rows beyond the count may name any row.
    present = (rows >= 0) & (rows < len(residual))
    return torch.where(present[:, None], residual[torch.where(present, rows, 0).long()], 0)
