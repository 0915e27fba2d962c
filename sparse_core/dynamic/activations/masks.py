"""Gradients through a mask of activations: through kept entries only, or straight through."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from sparse_core.nm.training.estimators import masked_weight

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
    return masked_weight(x, mask, "fixed" if gradient == "kept" else "ste")
