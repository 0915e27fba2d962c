"""Sparse convolution over a table of neighbours: with gradients, or with a fused epilogue in one launch."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.conv.convolution import reference
from sparse_core.conv.convolution.plan import TRITON_DTYPES, ConvolutionConfig
from sparse_core.conv.convolution.types import Epilogue
from sparse_core.conv.table import NeighbourTable
from sparse_core.errors import ImplementationError
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton


def _has_kernels(kind: str, features: torch.dtype, weight: torch.dtype) -> str | None:
    if features in TRITON_DTYPES and features == weight:
        return None
    return (
        "needs features and weight of one type, float16, bfloat16 or float32;"
        f" got {features} and {weight}: use impl='reference'"
    )


#: The case: dtypes of the features and the weight.
SPARSE_CONVOLUTION: Op[torch.dtype, torch.dtype] = Op(
    "sparse_convolution",
    __package__,
    by_triton(needs="float16, bfloat16 or float32", supports=_has_kernels),
    by_torch(),
    gradient=True,
)
FIXED_CONVOLUTION: Op[torch.dtype, torch.dtype] = Op(
    "fixed_convolution",
    __package__,
    by_triton(needs="float16, bfloat16 or float32", supports=_has_kernels),
    by_torch(),
    gradient=False,
)


def sparse_convolution(
    features: Tensor,
    weight: Tensor,
    neighbours: NeighbourTable,
    *,
    bias: Tensor | None = None,
    groups: int = 1,
    impl: Impl = "auto",
) -> Tensor:
    """Convolve features over a table of neighbours, with gradients for features, weight and bias.

    Under ``torch.autocast`` the product runs in the autocast dtype.

    Args:
        features: (N, C_in) floating point.
        weight: (C_out, *kernel, C_in / groups), the layout of spconv 2.
        neighbours: pairs for N inputs and M outputs, with as many taps as the kernel.
        bias: (C_out,) or None.
        groups: number of channel groups, convolved separately.
        impl: ``"triton"`` (float16, bfloat16 or float32, sums in float32), ``"reference"`` or ``"auto"``:
            Triton for CUDA tensors of its types. spconv needs its own maps: use a module of
            ``sparse_core.conv.modules`` with ``impl="vendor"``.

    Returns:
        (M, C_out).

    Raises:
        ValueError: shapes or types that do not match.
        ImplementationError: an unknown ``impl``.
    """
    SPARSE_CONVOLUTION.check(impl)
    if groups != 1:
        return _convolve_groups(features, weight, neighbours, bias, groups, impl)
    kernel_taps, inputs = neighbours.inverse.shape
    if features.ndim == 2 and weight.ndim >= 3 and weight.shape[-1] != features.shape[-1]:
        raise ValueError(
            f"features have {features.shape[-1]} channels, but the weight takes {weight.shape[-1]}"
            f" (weight {tuple(weight.shape)}, channels last)"
        )
    if weight.ndim < 3 or weight.shape[-1] != features.shape[-1] or weight[0, ..., 0].numel() != kernel_taps:
        raise ValueError(
            f"weight must be (C_out, *kernel, {features.shape[-1]}) with {kernel_taps} taps,"
            f" got {tuple(weight.shape)}"
        )
    if inputs != features.shape[0]:
        raise ValueError(f"features must have {inputs} rows like the table, got {features.shape[0]}")
    if torch.is_autocast_enabled(features.device.type):
        dtype = torch.get_autocast_dtype(features.device.type)
        features, weight = features.to(dtype), weight.to(dtype)
    if bias is not None:
        bias = bias.to(weight.dtype)
    if weight.dtype != features.dtype:
        raise ValueError(
            f"features are {features.dtype} but the weight is {weight.dtype}: convert one of them with .to"
        )
    implementation = SPARSE_CONVOLUTION.pick(impl, features.device, features.dtype, weight.dtype)
    convolved: Tensor = implementation.sparse_convolution(features, weight, neighbours, bias)
    return convolved


def _convolve_groups(
    features: Tensor, weight: Tensor, neighbours: NeighbourTable, bias: Tensor | None, groups: int, impl: Impl
) -> Tensor:
    if groups < 1 or len(weight) % groups or features.shape[-1] % groups:
        raise ValueError(f"groups must divide {features.shape[-1]} and {len(weight)} channels, got {groups}")
    parts = zip(features.chunk(groups, 1), weight.chunk(groups), strict=True)
    found = [sparse_convolution(some, matrix, neighbours, impl=impl) for some, matrix in parts]
    result = torch.cat(found, 1)
    return result if bias is None else result + bias.to(result.dtype)


def pack_weight(weight: Tensor) -> Tensor:
    """Convert (C_out, *kernel, C_in), the layout of the modules, to contiguous (taps, C_in, C_out)."""
    if weight.ndim < 3:
        raise ValueError(f"weight must be (C_out, *kernel, C_in), got {tuple(weight.shape)}")
    return weight.flatten(1, -2).permute(1, 2, 0).contiguous()


def fixed_convolution(
    features: Tensor,
    weight: Tensor,
    neighbours: Tensor,
    count: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    residual_rows: Tensor | None = None,
    relu: bool = False,
    zero_empty: bool = False,
    out: Tensor | None = None,
    out_rows: Tensor | None = None,
    ready: bool = False,
    impl: Impl = "auto",
    config: ConvolutionConfig | None = None,
) -> Tensor:
    """Return ``relu(sum over taps of features[neighbours[tap]] @ weight[tap] + bias + residual)``.

    There are no gradients. Sums are float32 for features below float64. One kernel is launched, whose size
    depends only on shapes, so a CUDA graph can capture it. Results are bitwise reproducible.

    Args:
        features: (N, C_in) float16, bfloat16 or float32 (reference also float64). Rows that the table does
            not name may hold any value.
        weight: (taps, C_in, C_out) of the features' type, see :func:`pack_weight`.
        neighbours: (taps, rows) int32 or int64 input row of each tap of each output row, like
            ``NeighbourTable.rows``; numbers outside of [0, N), such as -1, are missing inputs.
        count: (1,) int32 on the same device: output rows in use. Later rows are undefined, and their table
            entries may be too.
        bias: (C_out,) of any floating type.
        residual: (rows, C_out) of the features' type, added before the ReLU.
        residual_rows: (rows,) int32 row of the residual, then (M, C_out), to add to each output row; negative
            for none.
        relu: apply it.
        zero_empty: write zeros to rows without any input, ignoring bias, residual and ReLU.
        out: (rows, C_out) contiguous, of the features' type: written to and returned; rows beyond ``count``
            stay. It must not share memory with the features.
        out_rows: (rows,) int32 row of ``out``, then (M, C_out), to write each output row to; all different,
            negative for rows that are not written. Other rows stay.
        ready: the previous launch on this stream does not write neighbours, count and rows, so they are read
            before it ends.
        impl: ``"triton"``, ``"reference"``, or ``"auto"``: Triton for CUDA tensors of its types.
        config: tiles of the kernel; by default measured for these sizes on this GPU, or a guess (see
            ``sparse_core.conv.convolution.convolution_tuning``).

    Returns:
        (rows, C_out), or ``out``.

    Raises:
        ValueError: shapes, types or devices that do not match.
        ImplementationError: ``impl="triton"`` cannot run here, or an operand requires gradients.
    """
    FIXED_CONVOLUTION.check(impl)
    _check(features, weight, neighbours, count)
    epilogue = Epilogue(bias, residual, residual_rows, relu, zero_empty, out, out_rows)
    _check_epilogue(epilogue, neighbours.shape[1], weight.shape[2], features)
    if FIXED_CONVOLUTION.choose(impl, features.device, features.dtype, weight.dtype) == "reference":
        return reference.fixed_convolution(features, weight, neighbours, count, epilogue)
    if torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (features, weight, bias, residual)
    ):
        raise ImplementationError(
            "fixed_convolution with impl='triton' has no gradients: call it under torch.no_grad(), or train"
            " with sparse_convolution"
        )
    from sparse_core.conv.convolution import triton

    return triton.convolve(
        features, weight.contiguous(), neighbours, epilogue, count=count, config=config, ready=ready
    )


def _check(features: Tensor, weight: Tensor, neighbours: Tensor, count: Tensor | None) -> None:
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(f"features must be (N, C) floating point, got {tuple(features.shape)}")
    if weight.ndim != 3 or weight.shape[1] != features.shape[1]:
        raise ValueError(
            f"weight must be (taps, {features.shape[1]}, C_out), got {tuple(weight.shape)}; see pack_weight"
        )
    if weight.dtype != features.dtype:
        raise ValueError(f"weight must be {features.dtype} like the features, got {weight.dtype}")
    if neighbours.ndim != 2 or len(neighbours) != len(weight):
        raise ValueError(f"neighbours must be ({len(weight)}, rows), got {tuple(neighbours.shape)}")
    if neighbours.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"neighbours must be int32 or int64, got {neighbours.dtype}")
    if count is not None and (count.shape != (1,) or count.dtype != torch.int32):
        raise ValueError(f"count must be (1,) int32, got {tuple(count.shape)} {count.dtype}")
    for name, tensor in (("weight", weight), ("neighbours", neighbours), ("count", count)):
        if tensor is not None and tensor.device != features.device:
            raise ValueError(f"{name} is on {tensor.device}, features are on {features.device}")


def _check_epilogue(epilogue: Epilogue, rows: int, channels_out: int, features: Tensor) -> None:
    bias = epilogue.bias
    if bias is not None and (bias.shape != (channels_out,) or bias.device != features.device):
        raise ValueError(f"bias must be ({channels_out},) on {features.device}, got {tuple(bias.shape)}")
    _check_map("residual", epilogue.residual, epilogue.residual_rows, rows, channels_out, features)
    _check_map("out", epilogue.out, epilogue.out_rows, rows, channels_out, features)
    if epilogue.out is not None and not epilogue.out.is_contiguous():
        raise ValueError("out must be contiguous")


def _check_map(
    name: str, tensor: Tensor | None, chosen: Tensor | None, rows: int, channels_out: int, features: Tensor
) -> None:
    """Check a map that is read or written row by row, or at the rows in ``chosen``."""
    if tensor is None:
        if chosen is not None:
            raise ValueError(f"{name}_rows needs {name}")
        return
    expected = (rows if chosen is None else tensor.shape[0], channels_out)
    if tensor.shape != expected or tensor.dtype != features.dtype:
        raise ValueError(
            f"{name} must be {expected} {features.dtype}, got {tuple(tensor.shape)} {tensor.dtype}"
        )
    for part, part_tensor in ((name, tensor), (f"{name}_rows", chosen)):
        if part_tensor is not None and part_tensor.device != features.device:
            raise ValueError(f"{part} is on {part_tensor.device}, features are on {features.device}")
    if chosen is not None and (chosen.shape != (rows,) or chosen.dtype != torch.int32):
        raise ValueError(f"{name}_rows must be ({rows},) int32, got {tuple(chosen.shape)} {chosen.dtype}")
