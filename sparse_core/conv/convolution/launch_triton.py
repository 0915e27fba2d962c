"""Launch of the forward kernel of a convolution."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from sparse_core.conv.convolution.kernels_triton import convolve_kernel
from sparse_core.conv.convolution.plan import ConvolutionConfig
from sparse_core.conv.convolution.types import Epilogue
from sparse_core.kernels.launches import dependent

_MOST_OFFSET = 2**31 - 1


def launch(
    features: Tensor,
    weight: Tensor,
    table: Tensor,
    epilogue: Epilogue,
    config: ConvolutionConfig,
    *,
    count: Tensor | None = None,
    ready: bool = False,
) -> Tensor:
    """Launch the forward kernel once.

    Args:
        features: (N, C_in).
        weight: (taps, C_in, C_out) with any strides, of the features' type.
        table: (taps, rows) int32 or int64 input rows; outside of [0, N) for none.
        epilogue, count, ready: see ``fixed_convolution``.

    Returns:
        (rows, C_out), ``out`` if it was given.
    """
    (taps, channels_in, channels_out), rows = weight.shape, table.shape[1]
    features, out = features.contiguous(), epilogue.out
    bias, residual = _contiguous(epilogue.bias), _contiguous(epilogue.residual)
    residual_rows, out_rows = _contiguous(epilogue.residual_rows), _contiguous(epilogue.out_rows)
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
        table.stride(1),
        table.stride(0),
        CHANNELS_IN=channels_in,
        CHANNELS_OUT=channels_out,
        TAPS=taps,
        WEIGHT_TAP=weight.stride(0),
        WEIGHT_IN=weight.stride(1),
        WEIGHT_OUT=weight.stride(2),
        HAS_COUNT=count is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        HAS_RESIDUAL_ROWS=residual_rows is not None,
        HAS_OUT_ROWS=out_rows is not None,
        RELU=epilogue.relu,
        ZERO_EMPTY=epilogue.zero_empty,
        WIDE=is_wide(features, out, table, *([] if residual is None else [residual])),
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


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def is_wide(*tensors: Tensor) -> bool:
    """True if offsets in these tensors need 64 bits."""
    # Unmasked offsets of a block may extend beyond the end.
    return max(tensor.numel() for tensor in tensors) > _MOST_OFFSET - (1 << 20)
