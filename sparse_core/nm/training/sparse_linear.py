"""A linear layer pruned to 2:4 in every step, forward and backward on sparse tensor cores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.kernels.gradients import once_differentiable
from sparse_core.nm.linear.choice import TUNER, LinearChoice
from sparse_core.nm.linear.common import LinearEpilogue, as_aligned, has_sparse_cores
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four import Compressed24, PackedBoth, prune_and_pack_both
from sparse_core.nm.packing.two_four.reference import transposable_mask

_choices: dict[tuple[Any, ...], LinearChoice] = {}


class SparseTrainingLinear(nn.Linear):
    """``x @ pruned(weight).T + bias`` with a dense weight that is pruned in every forward pass.

    Each 4x4 tile keeps two weights in each row and column, so the same pruned weight is 2:4 for the forward
    product and for the gradient of the input. The gradient passes straight through to all weights (Bengio et
    al., 2013). With ``decay``, pruned weights are pulled towards zero (Zhou et al., "Learning N:M
    Fine-grained Structured Sparse Neural Networks From Scratch", 2021, equation 9).

    With 16-bit operands on a GPU with sparse tensor cores, one kernel prunes and packs both directions, and
    each product is sparse if that was measured to be faster. Otherwise the pruned weight is multiplied
    densely. ``torch.compile`` breaks its graph at this layer.

    Args:
        in_features, out_features: divisible by 4; by 64 for the sparse products.
        bias: add a bias.
        decay: decay of pruned weights, added to their gradient.
        device, dtype: of the parameters.

    Raises:
        ValueError: a size is not divisible by 4, or ``decay`` is negative.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        decay: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if in_features % 4 or out_features % 4:
            raise ValueError(
                f"both sizes must be divisible by 4, got in={in_features} and out={out_features}"
            )
        if decay < 0:
            raise ValueError(f"decay must not be negative, got {decay}")
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.decay = decay

    @classmethod
    def from_dense(cls, linear: nn.Linear, *, decay: float = 0.0) -> SparseTrainingLinear:
        """Return a layer that shares the parameters of ``linear``."""
        layer = cls(
            linear.in_features, linear.out_features, linear.bias is not None, decay=decay, device="meta"
        )
        layer.weight = linear.weight
        layer.bias = linear.bias
        return layer.train(linear.training)

    def mask(self) -> Tensor:
        """(out, in) bool mask of the next forward pass; :class:`SparseLinear` accepts it as its mask.

        Under autocast the weight is rounded first, as in the forward pass, which may break ties differently.
        """
        weight = self.weight.detach()
        if torch.is_autocast_enabled(weight.device.type):
            weight = weight.to(torch.get_autocast_dtype(weight.device.type))
        return transposable_mask(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ pruned(weight).T + bias``, (..., out) for (..., in)."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        device_type = weight.device.type
        if torch.is_autocast_enabled(device_type):
            dtype = torch.get_autocast_dtype(device_type)
            x, weight = x.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        product = _untraced_product if torch.compiler.is_compiling() else _PrunedProduct.apply
        y: Tensor = product(x, weight, bias, self.decay)
        return y

    def extra_repr(self) -> str:
        """Return sizes and decay for ``print(model)``."""
        return f"{super().extra_repr()}, decay={self.decay}"


class _PrunedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, decay: float) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        ctx.decay = decay
        if not _runs_sparsely(flat, weight, bias):
            pruned = weight.masked_fill(~transposable_mask(weight), 0)
            ctx.packed = None
            ctx.save_for_backward(x, weight, pruned)
            return torch.nn.functional.linear(x, pruned, bias)
        with torch.cuda.device(weight.device):  # kernels go to the current device
            packed, forward, backward = _pack(flat, weight, bias, decay)
            y = _product(forward, flat, packed.weight, packed.dense, bias)
        ctx.packed, ctx.backward_choice = packed.transposed, backward
        needs_dense = decay or backward.method == "dense"
        ctx.save_for_backward(x, weight, packed.dense if needs_dense else None)
        return y.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, pruned = ctx.saved_tensors
        rows = x.reshape(-1, x.shape[-1])
        flat = gradient.reshape(-1, gradient.shape[-1])
        x_grad = weight_grad = bias_grad = None
        if ctx.needs_input_grad[0]:
            if ctx.packed is None:
                x_grad = flat @ pruned
            else:
                transposed = None if pruned is None else pruned.T
                x_grad = _product(ctx.backward_choice, flat, ctx.packed, transposed, None)
            x_grad = x_grad.reshape(x.shape)
        if ctx.needs_input_grad[1]:
            weight_grad = flat.T @ rows
            if ctx.decay:
                weight_grad = weight_grad + ctx.decay * (weight - pruned)
        if ctx.needs_input_grad[2]:
            bias_grad = flat.sum(dim=0)
        return x_grad, weight_grad, bias_grad, None


# Measurements and launches cannot be traced, so torch.compile breaks its graph around the product.
_untraced_product = torch.compiler.disable(_PrunedProduct.apply)


def _runs_sparsely(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if not weight.is_cuda or weight.dtype not in (torch.float16, torch.bfloat16) or x.dtype != weight.dtype:
        return False
    if bias is not None and bias.dtype != weight.dtype:
        return False  # the dense product raises the error
    rows, columns = weight.shape
    if rows % 64 or columns % 64 or x.shape[0] % 8 or x.shape[0] == 0:
        return False
    return has_sparse_cores(weight.device.index)


def _pack(
    x: Tensor, weight: Tensor, bias: Tensor | None, decay: float
) -> tuple[PackedBoth, LinearChoice, LinearChoice]:
    """Return the packed weight and the choices for forward and backward; measured once per shape."""
    common = (TUNER.settings, weight.device, weight.dtype, x.shape[0])
    ahead = (*common, tuple(weight.shape), bias is not None)
    back = (*common, tuple(weight.shape)[::-1], False)
    forward, backward = _choices.get(ahead), _choices.get(back)
    if forward is None or backward is None:
        packed = prune_and_pack_both(weight, dense=True)
        assert packed.dense is not None
        forward = _choices[ahead] = _measured(packed.dense, x.shape[0], bias)
        backward = _choices[back] = _measured(packed.dense.T.contiguous(), x.shape[0], None)
        return packed, forward, backward
    dense = bool(decay) or "dense" in (forward.method, backward.method)
    return prune_and_pack_both(weight, dense=dense), forward, backward


def _measured(pruned: Tensor, rows: int, bias: Tensor | None) -> LinearChoice:
    from sparse_core.nm.linear import measure

    packed = PackedNM.from_dense(pruned)
    choice = measure.choose(
        packed, rows, bias, pruned, None, LinearEpilogue(None, bias is not None, False, pruned.dtype)
    )
    # The kernel for few rows needs its own metadata, too costly for a single product.
    return choice if choice.method == "vendor" else LinearChoice("dense")


def _product(
    choice: LinearChoice, x: Tensor, packed: Compressed24, dense: Tensor | None, bias: Tensor | None
) -> Tensor:
    if choice.method == "dense":
        assert dense is not None
        return torch.nn.functional.linear(x, dense, bias)
    from sparse_core.nm.linear.cusparselt.plan import Product, plan

    out, columns = packed.shape
    product = Product(x.shape[0], out, columns, x.dtype, x.dtype, False, False)
    y = torch.empty((x.shape[0], out), dtype=x.dtype, device=x.device)
    x, bias = as_aligned(x), None if bias is None else as_aligned(bias)
    plan(x.device.index, product, choice.variant, bias is not None)(packed.buffer, x, bias, None, y)
    return y
