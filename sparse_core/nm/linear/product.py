"""The product of checked operands: choice of the implementation, and gradient."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels import torch_internals
from sparse_core.kernels.gradients import once_differentiable
from sparse_core.kernels.launch_plan import ALIGNMENT
from sparse_core.kernels.op import Implementation, Op, by_torch
from sparse_core.nm.linear import cpu, reference
from sparse_core.nm.linear.common import LinearEpilogue, as_aligned, default_result, has_sparse_cores
from sparse_core.nm.linear.gradient import gradients
from sparse_core.nm.linear.launch_plans import Call, PlannedCall
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern


def _has_sparse_cores(kind: str, pattern: NMPattern, dtype: torch.dtype, index: int | None) -> str | None:
    if (
        kind == "cuda"
        and (pattern.n, pattern.m) == (2, 4)
        and dtype in (torch.float16, torch.bfloat16, torch.int8)
        and has_sparse_cores(index or 0)
    ):
        return None
    return (
        "needs a 16-bit or int8 2:4 weight on an NVIDIA GPU of compute capability 8.0 or more;"
        f" this one is {pattern}, {dtype}, on {kind}"
    )


def _has_vectors(kind: str, pattern: NMPattern, dtype: torch.dtype, index: int | None) -> str | None:
    if kind == "cpu" and (pattern.n, pattern.m) == (2, 4) and dtype == torch.float32:
        return cpu.why_not()
    return f"needs a float32 2:4 weight on a CPU; this one is {pattern}, {dtype}, on {kind}"


_NEEDS = "16-bit or int8 2:4 weight; CUDA 8.0"
#: Case: pattern and type of the weight, and the number of its GPU. With the library, ``"auto"`` uses what was
#: measured to be fastest: the library, the kernel for few rows or the dense product. On a CPU it uses AVX-512
#: for few rows. The reference sums int8 in float64, which is slow on most GPUs.
NM_LINEAR: Op[NMPattern, torch.dtype, int | None] = Op(
    "nm_linear",
    __package__,
    Implementation("vendor", f"{_NEEDS}; the fastest of vendor, cuda, dense", _has_sparse_cores, ("cuda",)),
    Implementation("cuda", _NEEDS, _has_sparse_cores, (), module=f"{__package__}.decode_cuda"),
    Implementation(
        "dense",
        auto=("cuda",),
        prefers=lambda kind, pattern, dtype, index: dtype == torch.int8,
        module=f"{__package__}.reference",
    ),
    Implementation("cpu", "float32 2:4 weight; AVX-512, a C++ compiler", _has_vectors, ("cpu",)),
    by_torch(),
    gradient=True,
)


def product(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
    impl: str,
) -> Tensor:
    """Run the public function without gradients and checks, by a plan if there is one."""
    if impl == "auto":
        call = find_plan(x, weight, bias, activation, dense, scale, out_dtype)
        if call is not None:
            return run(call, x, weight, bias, dense, scale)
    return multiply(x, weight, bias, activation, dense, scale, out_dtype, impl)


def run(
    call: Call, x: Tensor, weight: PackedNM, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None
) -> Tensor:
    """Run a call of :func:`find_plan` for an input of any shape."""
    if x.ndim == 2:
        return call(x, bias, dense, scale)
    flat = x.view(-1, x.shape[-1])
    return call(flat, bias, dense, scale).view(*x.shape[:-1], weight.shape[0])


def multiply(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
    impl: str,
) -> Tensor:
    """Run the public function without gradients and checks."""
    if torch.is_autocast_enabled(x.device.type):
        # The operands already have the type of the result.
        with torch.autocast(x.device.type, enabled=False):
            return multiply(x, weight, bias, activation, dense, scale, out_dtype, impl)
    device = weight.device
    chosen = NM_LINEAR.choose(impl, device, weight.pattern, weight.dtype, device.index)
    rows = x.numel() // x.shape[-1] if x.shape[-1] else 0
    if impl == "auto" and chosen == "cpu" and rows > cpu.most_rows(dense):
        chosen = "reference"
    if impl != "auto" or chosen != "vendor":
        if impl == "auto" and chosen != "cpu":
            _warn_once(device.type)
        impl = chosen
    if impl == "cpu" and x.numel():
        return cpu.nm_linear(x, weight, bias, activation=activation)
    if impl in ("reference", "cpu") or (impl == "dense" and not weight.values.is_cuda) or x.numel() == 0:
        return reference.nm_linear(
            x, weight, bias, activation=activation, dense=dense, scale=scale, out_dtype=out_dtype
        )
    flat = as_aligned(x.reshape(rows, x.shape[-1]))
    bias = None if bias is None else as_aligned(bias)
    scale = None if scale is None else as_aligned(scale)
    with torch.cuda.device(weight.device.index):  # kernels and events go to the current device
        y = _call(rows, weight, bias, activation, dense, scale, out_dtype, impl)(flat, bias, dense, scale)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], weight.shape[0])


def multiply_with_gradient(
    x: Tensor, weight: PackedNM, bias: Tensor | None, activation: str | None, dense: Tensor | None, impl: str
) -> Tensor:
    """Run :func:`multiply` with gradients of ``x``, the kept values and the bias."""
    y: Tensor = _Product.apply(x, weight.values, bias, weight, activation, dense, impl)
    return y


def find_plan(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype | None,
) -> PlannedCall | None:
    """Return the earlier product of these sizes if nothing about it needs checking."""
    plans = weight.plans.get("cuda")
    columns = weight.shape[1]
    if plans is None or not x.is_cuda or x.ndim == 0 or x.shape[-1] != columns:
        return None
    values, dtype = weight.values, x.dtype
    if dtype is not values.dtype or (
        torch.is_grad_enabled()
        and (x.requires_grad or values.requires_grad or (bias is not None and bias.requires_grad))
    ):
        return None
    if out_dtype is None:
        out_dtype = default_result(dtype, scale)
    call = plans.calls.get(  # type: ignore[attr-defined]
        (x.numel() // columns, activation, _kind(bias), _kind(scale), x.device, dense is None, out_dtype)
    )
    if not isinstance(call, PlannedCall) or not x.is_contiguous() or x.data_ptr() % ALIGNMENT:
        return None
    for operand in (bias, scale):
        if operand is not None and (not operand.is_contiguous() or operand.data_ptr() % ALIGNMENT):
            return None
    return call if torch_internals.current_device() == x.get_device() else None


def _kind(tensor: Tensor | None) -> tuple[object, ...] | None:
    return None if tensor is None else (tensor.shape, tensor.dtype, tensor.device)


@cache
def _warn_once(device_type: str) -> None:
    warnings.warn(
        f"packed n:m weights are unpacked for every such product on this {device_type} device, which saves"
        " memory but no time. Fast are 16-bit or int8 2:4 weights on NVIDIA GPUs of compute capability 8.0 or"
        " more, and float32 2:4 weights with few rows on processors with AVX-512",
        UnpackedWarning,
        stacklevel=4,
    )


class UnpackedWarning(UserWarning):
    """A packed weight runs through the reference path, which is not faster than dense."""


def _call(
    rows: int,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
    impl: str,
) -> Call:
    from sparse_core.nm.linear import execution, measure
    from sparse_core.nm.linear.choice import LinearChoice

    plans = execution.plans_of(weight)
    key: tuple[object, ...] = (
        rows,
        activation,
        _kind(bias),
        _kind(scale),
        weight.device,
        dense is None,
        out_dtype,
    )
    if impl != "auto":
        key = (*key, impl)
    known = plans.calls.get(key)
    if known is not None:
        return known
    epilogue = LinearEpilogue(activation, bias is not None, scale is not None, out_dtype)
    if impl == "dense":
        choice = LinearChoice("dense")
    else:
        choice = measure.choose(weight, rows, bias, dense, scale, epilogue)
        if impl not in ("auto", choice.method):
            choice = LinearChoice(impl)  # type: ignore[arg-type]
    call = execution.make_call(choice, weight, rows, epilogue)
    if not torch.cuda.is_current_stream_capturing():
        # A choice during a capture may be a guess.
        call = execution.with_launch_plan(call, choice, weight)
        plans.keep(key, call)
    return call


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor,
        values: Tensor,
        bias: Tensor | None,
        weight: PackedNM,
        activation: str | None,
        dense: Tensor | None,
        impl: str,
    ) -> Tensor:
        return multiply(x, weight, bias, activation, dense, None, x.dtype, impl)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, values, bias, ctx.weight, ctx.activation, ctx.dense, _ = inputs
        ctx.save_for_backward(x, values, bias, output if ctx.activation == "relu" else None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, values, bias, output = ctx.saved_tensors
        weight = ctx.weight.with_values(values)
        found = gradients(
            gradient,
            x,
            weight,
            bias,
            ctx.dense,
            ctx.activation,
            output,
            ctx.needs_input_grad[:2],
            ctx.needs_input_grad[2],
        )
        return *found, None, None, None, None
