"""The product as an operator that ``torch.compile`` does not trace into."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparse_core.kernels.operators import operator
from sparse_core.nm.linear.execution import PreparedWeight, owner_of
from sparse_core.nm.linear.gradient import gradients
from sparse_core.nm.linear.product import product
from sparse_core.nm.packing.packed_weight import DENSE_VERSION, PackedNM
from sparse_core.nm.pattern import NMPattern


@operator("nm_linear")
def nm_linear_op(
    x: Tensor,
    values: Tensor,
    metadata: Tensor,
    bias: Tensor | None,
    dense: Tensor | None,
    scale: Tensor | None,
    buffer: Tensor | None,
    kernel_metadata: Tensor | None,
    n: int,
    m: int,
    activation: str,
    out_dtype: torch.dtype,
    impl: str,
) -> Tensor:
    """Run the public function on the parts of a :class:`PackedNM` and of its plans."""
    weight = owner_of(values, buffer, kernel_metadata)
    if weight is None:
        weight = PackedNM(values, metadata, (values.shape[0], values.shape[1] // n * m), NMPattern(n, m))
        if buffer is not None or kernel_metadata is not None:
            weight.plans["cuda"] = PreparedWeight(buffer, kernel_metadata, may_pad=False)
        elif impl == "auto" and values.is_cuda:
            # A weight that was not prepared before tracing would be prepared at every call.
            impl = "dense"
    with torch.no_grad():
        made = weight.plans.get(DENSE_VERSION)
        if dense is not None and made is not None and made != weight.values._version:
            # Compiled code does not detect in-place changes of the values.
            dense.copy_(weight.to_dense())
            weight.plans[DENSE_VERSION] = weight.values._version
        return product(x.detach(), weight, bias, activation or None, dense, scale, out_dtype, impl)


@torch.library.register_fake(nm_linear_op)
def _(x: Tensor, values: Tensor, *rest: Any) -> Tensor:
    return x.new_empty((*x.shape[:-1], values.shape[0]), dtype=rest[9])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, values, metadata, bias, dense, _scale, _buffer, _kernel, n, m, activation, _dtype, _impl = inputs
    ctx.save_for_backward(x, values, metadata, dense, output if activation == "relu" else None, bias)
    ctx.pattern = (n, m)
    ctx.activation = activation


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, values, metadata, dense, output, bias = ctx.saved_tensors
    n, m = ctx.pattern
    weight = PackedNM(values, metadata, (values.shape[0], values.shape[1] // n * m), NMPattern(n, m))
    x_grad, values_grad, bias_grad = gradients(
        gradient,
        x,
        weight,
        bias,
        dense,
        ctx.activation or None,
        output,
        ctx.needs_input_grad[:2],
        bias is not None,
    )
    return x_grad, values_grad, None, bias_grad, *[None] * 9


torch.library.register_autograd(nm_linear_op, _backward, setup_context=_setup)
