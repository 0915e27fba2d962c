"""Sparse convolution as implicit matrix product in Triton.

A program computes a block of output rows and channels: it gathers the rows that the taps read straight into
the operand of the product, so nothing is stored between gather and product, and each output is written once,
by one program, in one order of sums: results repeat to the bit. Runs on CUDA, and on a CPU through
``TRITON_INTERPRET=1``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from sparse_core.conv.convolution.kernels_triton import convolve_kernel, weight_gradient_kernel
from sparse_core.conv.convolution.plan import ConvolutionConfig
from sparse_core.dispatch import check_triton_runs
from sparse_core.launches import dependent

__all__ = ["WeightStrides", "check_runnable", "convolve", "weight_gradient"]

_MOST_OFFSET = 2**31 - 1


class WeightStrides(NamedTuple):
    """Elements from one tap, input channel and output channel to the next."""

    tap: int
    channel_in: int
    channel_out: int


def check_runnable(tensor: Tensor) -> None:
    """Raise ``ImplementationError`` unless Triton can work on this tensor."""
    check_triton_runs(tensor, convolve_kernel)


def convolve(
    features: Tensor,
    weight: Tensor,
    table: Tensor,
    *,
    rows: int,
    table_strides: tuple[int, int],
    sizes: tuple[int, int, int],
    strides: WeightStrides,
    config: ConvolutionConfig,
    count: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    residual_rows: Tensor | None = None,
    relu: bool = False,
    zero_empty: bool = False,
    out: Tensor | None = None,
    out_rows: Tensor | None = None,
    ready: bool = False,
) -> Tensor:
    """One launch of the forward kernel.

    Args:
        features: (N, C_in) contiguous.
        weight: any layout that ``strides`` describes, of the features' type.
        table: int32 or int64 input rows; below 0, or N and above, where there is none.
        rows: output rows.
        table_strides: elements of the table from one output row to the next, and from one tap to the next.
        sizes: taps, C_in and C_out.
        strides: of the weight.
        config: tiles.
        count, bias, residual, residual_rows, relu, zero_empty, out, out_rows, ready: see
            ``fixed_convolution``; tensors are contiguous.

    Returns:
        (rows, C_out), ``out`` if it was given.
    """
    taps, channels_in, channels_out = sizes
    if out is None:
        out = torch.empty(rows, channels_out, dtype=features.dtype, device=features.device)
    if rows == 0 or channels_out == 0:
        return out
    programs = triton.cdiv(rows, config.block_rows) * triton.cdiv(channels_out, config.block_out)
    convolve_kernel[(programs,)](
        features,
        weight,
        table,
        count,
        bias,
        residual,
        residual_rows,
        out,
        out_rows,
        rows,
        len(features),
        *table_strides,
        CHANNELS_IN=channels_in,
        CHANNELS_OUT=channels_out,
        TAPS=taps,
        WEIGHT_TAP=strides.tap,
        WEIGHT_IN=strides.channel_in,
        WEIGHT_OUT=strides.channel_out,
        HAS_COUNT=count is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        HAS_RESIDUAL_ROWS=residual_rows is not None,
        HAS_OUT_ROWS=out_rows is not None,
        RELU=relu,
        ZERO_EMPTY=zero_empty,
        WIDE=_wide(features, out, table, *([] if residual is None else [residual])),
        VARIANT=config.variant,
        TAP_LANES=triton.next_power_of_2(taps),
        AHEAD=min(config.stages, taps),
        BLOCK_ROWS=config.block_rows,
        BLOCK_OUT=config.block_out,
        BLOCK_IN=config.block_in,
        READY=ready,
        num_warps=config.warps,
        num_stages=config.stages,
        **dependent(features),
    )
    return out


def _wide(*tensors: Tensor) -> bool:
    # A block may begin below the end and reach beyond it before it is masked.
    return max(tensor.numel() for tensor in tensors) > _MOST_OFFSET - (1 << 20)


def weight_gradient(
    features: Tensor,
    grad: Tensor,
    table: Tensor,
    *,
    table_strides: tuple[int, int],
    sizes: tuple[int, int, int],
    strides: WeightStrides,
) -> Tensor:
    """Gradient of the weight: float32, ``taps * C_in * C_out`` numbers in the weight's own layout.

    Rows are cut into parts whose number depends on the sizes alone; the parts are summed in a fixed order.

    Args:
        features: (N, C_in) contiguous.
        grad: (rows, C_out) contiguous, of the features' type.
        table, table_strides, sizes, strides: see :func:`convolve`; the weight fills its storage.
    """
    taps, channels_in, channels_out = sizes
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
        *table_strides,
        rows_each,
        size,
        CHANNELS_IN=channels_in,
        CHANNELS_OUT=channels_out,
        WEIGHT_TAP=strides.tap,
        WEIGHT_IN=strides.channel_in,
        WEIGHT_OUT=strides.channel_out,
        WIDE=_wide(features, grad, table),
        BLOCK_ROWS=block_rows,
        BLOCK_OUT=block_out,
        BLOCK_IN=block_in,
        num_warps=4,
        num_stages=3,
    )
    return partial[0] if parts == 1 else partial.sum(0)
