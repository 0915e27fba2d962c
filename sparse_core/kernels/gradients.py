"""Helpers for autograd: a test if it records an operation, and the refusal of second derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Backward = Callable[..., Any]


def needs_autograd(*tensors: Tensor | None) -> bool:
    """Return True if autograd records an operation on these tensors, in backward or forward mode."""
    present = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in present):
        return True
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in present)


def once_differentiable(backward: Backward) -> Backward:
    """Mark the ``backward`` of an ``autograd.Function`` whose result cannot be differentiated again.

    ``torch.autograd.function.once_differentiable`` raises only if the incoming gradient requires a gradient.
    For ``y.sum()`` it does not: the gradient becomes a constant, and second derivatives are silently wrong.
    Here, with ``create_graph=True``, every gradient depends on the saved inputs, and differentiating it
    raises. Save inputs as they came, because the link to what ``forward`` computes from them is lost.
    """

    @functools.wraps(backward)
    def wrapper(ctx: Any, *gradients: Any) -> Any:
        if not torch.is_grad_enabled():
            # Without create_graph=True, entering torch.no_grad() would only take time.
            return backward(ctx, *gradients)
        with torch.no_grad():
            found = backward(ctx, *gradients)
        name = backward.__qualname__.removesuffix(".backward")
        sources = [one for one in (*gradients, *ctx.saved_tensors) if one is not None and one.requires_grad]
        if not sources:
            return found
        several = isinstance(found, tuple)
        refused = tuple(
            None if one is None else _Refusal.apply(name, one, *sources)
            for one in (found if several else (found,))
        )
        return refused if several else refused[0]

    return wrapper


class _Refusal(torch.autograd.Function):
    """Identity whose derivative raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, gradient: Tensor, *sources: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            f"cannot differentiate twice: the gradient of {ctx.name} is computed by kernels that have no"
            " derivative themselves (it is marked once_differentiable)"
        )
