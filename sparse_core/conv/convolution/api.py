"""Sparse convolution over a table of neighbours: with gradients, or all that follows in one launch."""

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
    return f"takes features and weight of one type, float16, bfloat16 or float32; got {features} and {weight}"


#: By the types of the features and the weight.
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
        neighbours: pairs for N inputs and M outputs, with as many taps as the kernel has.
        bias: (C_out,) or None.
        groups: parts of the channels that are convolved on their own, one after the other.
        impl: ``"triton"`` (float16, bfloat16 or float32, sums in float32), ``"reference"`` or ``"auto"``:
            Triton for CUDA tensors of its types. spconv runs whole layers (it owns its maps): ask the modules
            of ``sparse_core.conv.modules`` for ``impl="vendor"``.

    Returns:
        (M, C_out).

    Raises:
        ValueError: shapes that do not fit together.
        ImplementationError: an ``impl`` that does not exist for this op.
    """
    SPARSE_CONVOLUTION.check(impl)
    if groups != 1:
        return _grouped(features, weight, neighbours, bias, groups, impl)
    kernel_taps, inputs = neighbours.inverse.shape
    if weight.ndim < 3 or weight.shape[-1] != features.shape[-1] or weight[0, ..., 0].numel() != kernel_taps:
        raise ValueError(
            f"weight must be (C_out, *kernel, {features.shape[-1]}) with {kernel_taps} taps,"
            f" got {tuple(weight.shape)}"
        )
    if inputs != features.shape[0]:
        raise ValueError(f"the table is for {inputs} input rows, features have {features.shape[0]}")
    if torch.is_autocast_enabled(features.device.type):
        dtype = torch.get_autocast_dtype(features.device.type)
        features, weight = features.to(dtype), weight.to(dtype)
    if bias is not None:
        bias = bias.to(weight.dtype)
    implementation = SPARSE_CONVOLUTION.pick(impl, features.device, features.dtype, weight.dtype)
    convolved: Tensor = implementation.sparse_convolution(features, weight, neighbours, bias)
    return convolved


def _grouped(
    features: Tensor, weight: Tensor, neighbours: NeighbourTable, bias: Tensor | None, groups: int, impl: Impl
) -> Tensor:
    if groups < 1 or len(weight) % groups or features.shape[-1] % groups:
        raise ValueError(f"groups must divide {features.shape[-1]} and {len(weight)} channels, got {groups}")
    parts = zip(features.chunk(groups, 1), weight.chunk(groups), strict=True)
    found = [sparse_convolution(some, matrix, neighbours, impl=impl) for some, matrix in parts]
    result = torch.cat(found, 1)
    return result if bias is None else result + bias.to(result.dtype)


def pack_weight(weight: Tensor) -> Tensor:
    """(C_out, *kernel, C_in), the layout of the modules, as contiguous (taps, C_in, C_out)."""
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
    """``relu(sum over taps of features[neighbours[tap]] @ weight[tap] + bias + residual)``, no gradients.

    Sums are float32 for features of any type below float64. Shapes alone decide what is launched: one kernel,
    which a CUDA graph can capture. The same inputs give the same bits.

    Args:
        features: (N, C_in) float16, bfloat16 or float32 (reference also float64). Rows that no entry of the
            table names may hold anything.
        weight: (taps, C_in, C_out) of the features' type, see :func:`pack_weight`.
        neighbours: (taps, rows) int32 or int64 input row of each tap of each output row, laid out as
            ``NeighbourTable.rows``; -1 where there is none, and what lies outside of [0, N) is read so too.
        count: (1,) int32 on the same device: output rows in use. Those behind it are undefined, and
            so may their entries of the table be.
        bias: (C_out,) of any floating type.
        residual: (rows, C_out) of the features' type, added before the ReLU.
        residual_rows: (rows,) int32 row of the residual, then (M, C_out), that is added to each output row;
            nothing where it is negative.
        relu: apply it.
        zero_empty: rows without any input are zeros instead of what bias, residual and ReLU make of them.
        out: (rows, C_out) contiguous, of the features' type: written to and returned; rows behind ``count``
            stay as they are. It must not share memory with the features.
        out_rows: (rows,) int32 row of ``out``, then (M, C_out), that each output row is written to; all
            different, and negative where it is not written. Other rows stay as they are.
        ready: neighbours, count and rows are not the work of the launch just before on this stream: they
            are read while it ends.
        impl: ``"triton"``, ``"reference"``, or ``"auto"``: Triton for CUDA tensors of its types.
        config: tiles of the kernel; by default those measured for these sizes on this GPU, or a guess (see
            ``sparse_core.conv.convolution.convolution_tuning``).

    Returns:
        (rows, C_out), or ``out``.

    Raises:
        ValueError: shapes, types or devices that do not fit together.
        ImplementationError: ``impl="triton"`` cannot run here, or gradients are asked of it.
    """
    FIXED_CONVOLUTION.check(impl)
    _check(features, weight, neighbours, count)
    after = Epilogue(bias, residual, residual_rows, relu, zero_empty, out, out_rows)
    _check_after(after, neighbours.shape[1], weight.shape[2], features)
    if FIXED_CONVOLUTION.choose(impl, features.device, features.dtype, weight.dtype) == "reference":
        return reference.fixed_convolution(features, weight, neighbours, count, after)
    if torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (features, weight, bias, residual)
    ):
        raise ImplementationError(
            "fixed_convolution has no gradients with impl='triton': call it under torch.no_grad(), or train"
            " with sparse_convolution"
        )
    from sparse_core.conv.convolution import triton

    return triton.convolve(
        features, weight.contiguous(), neighbours, after, count=count, config=config, ready=ready
    )


def _check(features: Tensor, weight: Tensor, neighbours: Tensor, count: Tensor | None) -> None:
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(f"features must be (N, C) floating point, got {tuple(features.shape)}")
    if weight.ndim != 3 or weight.shape[1] != features.shape[1]:
        raise ValueError(
            f"weight must be (taps, {features.shape[1]}, C_out), got {tuple(weight.shape)}; see pack_weight"
        )
    if weight.dtype != features.dtype:
        raise ValueError(f"weight must be {features.dtype} as the features are, got {weight.dtype}")
    if neighbours.ndim != 2 or len(neighbours) != len(weight):
        raise ValueError(f"neighbours must be ({len(weight)}, rows), got {tuple(neighbours.shape)}")
    if neighbours.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"neighbours must be int32 or int64, got {neighbours.dtype}")
    if count is not None and (count.shape != (1,) or count.dtype != torch.int32):
        raise ValueError(f"count must be (1,) int32, got {tuple(count.shape)} {count.dtype}")
    for name, tensor in (("weight", weight), ("neighbours", neighbours), ("count", count)):
        if tensor is not None and tensor.device != features.device:
            raise ValueError(f"{name} is on {tensor.device}, features are on {features.device}")


def _check_after(after: Epilogue, rows: int, channels_out: int, features: Tensor) -> None:
    bias = after.bias
    if bias is not None and (bias.shape != (channels_out,) or bias.device != features.device):
        raise ValueError(f"bias must be ({channels_out},) on {features.device}, got {tuple(bias.shape)}")
    _check_map("residual", after.residual, after.residual_rows, rows, channels_out, features)
    _check_map("out", after.out, after.out_rows, rows, channels_out, features)
    if after.out is not None and not after.out.is_contiguous():
        raise ValueError("out must be contiguous")


def _check_map(
    name: str, tensor: Tensor | None, chosen: Tensor | None, rows: int, channels_out: int, features: Tensor
) -> None:
    """A map that is read or written row by row, or at the rows that ``chosen`` names."""
    if tensor is None:
        if chosen is not None:
            raise ValueError(f"{name}_rows needs {name}")
        return
    expected = (rows if chosen is None else tensor.shape[0], channels_out)
    if tensor.shape != expected or tensor.dtype != features.dtype:
        raise ValueError(
            f"{name} must be {expected} {features.dtype}, got {tuple(tensor.shape)} {tensor.dtype}"
        )
    for part, given in ((name, tensor), (f"{name}_rows", chosen)):
        if given is not None and given.device != features.device:
            raise ValueError(f"{part} is on {given.device}, features are on {features.device}")
    if chosen is not None and (chosen.shape != (rows,) or chosen.dtype != torch.int32):
        raise ValueError(f"{name}_rows must be ({rows},) int32, got {tuple(chosen.shape)} {chosen.dtype}")
