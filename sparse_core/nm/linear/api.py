"""Multiply an input by a packed n:m weight."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from sparse_core.errors import ImplementationError
from sparse_core.nm.linear import reference
from sparse_core.nm.linear.common import (
    Activation,
    LinearImpl,
    apply_activation,
    check_dense,
    check_operands,
    needs_plain_torch,
)
from sparse_core.nm.linear.product import NM_LINEAR, find_plan, multiply, multiply_with_gradient, run
from sparse_core.nm.packing.packed_weight import PackedNM


def nm_linear(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None = None,
    *,
    activation: Activation | None = None,
    dense: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    impl: LinearImpl = "auto",
) -> Tensor:
    """Return ``activation(x @ weight.T + bias)`` for a packed n:m weight.

    - On a CUDA device with sparse tensor cores, a 16-bit or int8 2:4 weight is multiplied by a kernel for few
      rows, by cuSPARSELt, or densely, whichever was measured to be fastest for the shape and row count. The
      first call with a new one measures (see :func:`sparse_core.nm.linear.tuning`).
    - On a CPU with AVX-512, up to 128 rows of float32 (16 with a dense copy) are multiplied by a 2:4 weight
      in C++ that is compiled at the first call.
    - Otherwise the weight is unpacked and multiplied densely; so it is under transforms of ``torch.func``,
      forward-mode derivatives, ``torch.jit.trace`` and exports to ONNX.

    Args:
        x: (..., in), any strides, the dtype of the weight.
        weight: (out, in) packed.
        bias: (out,), the dtype of x; floating point for int8.
        activation: ``"relu"``, ``"gelu"`` or ``None``.
        dense: (out, in), the unpacked weight, used if the dense product is faster.
        out_dtype: for int8: int32 (the default without a scale), float16 (with one), bfloat16 or float32.
        scale: (out,) float32 factors of int8 sums, applied before the bias.
        impl: ``"reference"`` unpacks and multiplies densely; see :data:`LinearImpl` for the others.

    Returns:
        (..., out), of the type of x unless that is int8; autocast has no effect. Gradients reach x, the
        values of the weight and the bias; the result of an int8 product has none.

    Raises:
        ValueError: shapes, devices or options do not fit.
        TypeError: dtypes do not fit.
        ImplementationError: the named ``impl`` cannot run here.
    """
    plain = needs_plain_torch()
    compiling = torch.compiler.is_compiling() and not plain
    if impl == "auto" and not compiling and not plain:
        call = find_plan(x, weight, bias, activation, dense, scale, out_dtype)
        if call is not None:
            return run(call, x, weight, bias, dense, scale)
    NM_LINEAR.check(impl)
    result = check_operands(x, weight, bias, activation, scale, out_dtype)
    check_dense(dense, weight)
    if plain:
        if impl not in ("auto", "reference", "dense"):
            raise ImplementationError(
                f"torch.func, forward-mode derivatives, torch.jit.trace and exports to ONNX cannot follow"
                f" impl={impl!r}: use impl='auto', which runs plain torch"
            )
        return reference.nm_linear(
            x, weight, bias, activation=activation, dense=dense, scale=scale, out_dtype=result
        )
    if x.dtype == torch.int8:
        bias = None if bias is None else bias.detach()
        scale = None if scale is None else scale.detach()
    if compiling:
        return _traced(x, weight, bias, activation, dense, scale, result, impl)
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.values.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return multiply_with_gradient(x, weight, bias, activation, dense, impl)
    return multiply(x, weight, bias, activation, dense, scale, result, impl)


def _traced(
    x: Tensor,
    weight: PackedNM,
    bias: Tensor | None,
    activation: str | None,
    dense: Tensor | None,
    scale: Tensor | None,
    out_dtype: torch.dtype,
    impl: str,
) -> Tensor:
    from sparse_core.nm.linear.compiled import nm_linear_op
    from sparse_core.nm.linear.execution import PreparedWeight

    plans = weight.plans.get("cuda")
    buffer = plans.buffer if isinstance(plans, PreparedWeight) else None
    metadata = plans.metadata if isinstance(plans, PreparedWeight) else None
    if (
        impl == "auto"
        and (dense is not None and buffer is None and metadata is None)
        and x.is_cuda
        and x.dtype != torch.int8
        and not (torch.is_grad_enabled() and weight.values.requires_grad)
        and not torch.is_autocast_enabled("cuda")
    ):
        # The operator would do the same for an unprepared weight; here the compiler can trace it.
        return apply_activation(linear(x, dense, bias), activation)
    pattern = weight.pattern
    y: Tensor = nm_linear_op(
        x,
        weight.values,
        weight.metadata,
        bias,
        dense,
        scale,
        buffer,
        metadata,
        pattern.n,
        pattern.m,
        activation or "",
        out_dtype,
        impl,
    )
    return y
