"""Gradients through a mask of activations: through kept entries only, or straight through."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

Gradient = Literal["kept", "straight-through"]


def check_gradient(gradient: str) -> None:
    """Raise ``ValueError`` unless ``gradient`` is one of :data:`Gradient`."""
    if gradient not in get_args(Gradient):
        raise ValueError(f"gradient must be one of {get_args(Gradient)}, got {gradient!r}")


def masked(x: Tensor, mask: Tensor, gradient: Gradient = "kept") -> Tensor:
    """Return ``x`` where ``mask`` is true, 0 elsewhere.

    Args:
        x: any shape.
        mask: bool, broadcasts to the shape of ``x``.
        gradient: ``"kept"``: only kept entries receive a gradient, the exact derivative for a fixed mask.
            ``"straight-through"``: all entries receive it, as if nothing were dropped (Bengio et al. 2013).
    """
    if gradient == "kept":
        return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))
    result: Tensor = _MaskedStraightThrough.apply(x, mask)
    return result


class _MaskedStraightThrough(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep nothing."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
