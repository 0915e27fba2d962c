"""Scores of weights: magnitude, magnitude times input norm, magnitude times gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import Select, choose_layers, weight_parameter
from sparse_core.nm.pruning.selection import MASKABLE


def score_dtype(weight: Tensor) -> torch.dtype:
    """Return the type of a weight's scores: float64 for float64, else float32."""
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def magnitude(weight: Tensor) -> Tensor:
    """Return |w| of a real weight, float32 or better."""
    return weight.detach().to(score_dtype(weight)).abs()


def wanda(weight: Tensor, input_norm: Tensor, *, name: str = "weight") -> Tensor:
    """Return |w| · ‖x‖₂ with the norm of the input feature that each weight multiplies.

    Sun, Liu, Bair, Kolter, "A Simple and Effective Pruning Approach for Large Language Models", 2023, eq. 1.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width).
        input_norm: (columns,), one per column of the im2col matrix in unfold order (in, kernel height, kernel
            width); (groups, columns) for a grouped convolution. See ``InputStatistics.norm``.
        name: name of the layer in errors.

    Returns:
        Score of the weight's shape, float32 or better; independent of ``conv_layout``.

    Raises:
        ValueError: the sizes do not fit, or a norm is negative or not finite.
    """
    norm = input_norm.detach().reshape(-1, input_norm.shape[-1])
    columns = weight[0].numel() if len(weight) else norm.shape[1]
    if norm.shape[1] != columns or len(weight) % len(norm):
        raise ValueError(
            f"input_norm of {name} must have shape ({columns},), or (groups, {columns}) with groups dividing"
            f" {len(weight)}, for a weight of shape {tuple(weight.shape)}; got {tuple(input_norm.shape)}"
        )
    if not bool((norm.isfinite() & (norm >= 0)).all()):
        raise ValueError(f"input_norm of {name} must be finite and at least 0")
    rows = norm.to(weight.device, score_dtype(weight)).repeat_interleave(len(weight) // len(norm), dim=0)
    return magnitude(weight) * rows.reshape(weight.shape)


class GradientScore:
    """Moving average of |w| · |∂loss/∂w|, the first-order effect of removing a weight.

    >>> score = GradientScore(model)
    >>> for batch in batches:
    ...     model.zero_grad()
    ...     loss(model(batch)).backward()
    ...     score.update()
    >>> prune(model, NMPattern(2, 4), score="gradient", gradient=score)

    Molchanov et al., "Importance Estimation for Neural Network Pruning", CVPR 2019, eq. 8 without the square.
    The
    bias towards zero at the start is corrected as in Adam.

    Args:
        model: its layers are watched; for a parametrised weight, the trained tensor.
        select: layers to watch, see :data:`sparse_core.common.surgery.Select`.
        momentum: share of the old average to keep, 0 to below 1; 0 keeps only the last update.

    Raises:
        ValueError: ``momentum`` out of range, or no layer.
    """

    def __init__(self, model: nn.Module, select: Select = None, momentum: float = 0.9) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
        self.momentum = momentum
        self._layers = choose_layers(model, MASKABLE, select).layers
        self._averages: dict[str, Tensor] = {}
        self._updates: dict[str, int] = {}

    def update(self) -> None:
        """Add the current gradients to the average; a layer without one keeps its average.

        Raises:
            ValueError: no layer has a gradient.
        """
        found = False
        for name, module in self._layers.items():
            weight = weight_parameter(module)
            if weight.grad is None:
                continue
            found = True
            change = magnitude(weight) * magnitude(weight.grad)
            average = self._averages.get(name)
            if average is None:
                average = self._averages[name] = torch.zeros_like(change)
            average.mul_(self.momentum).add_(change, alpha=1 - self.momentum)
            self._updates[name] = self._updates.get(name, 0) + 1
        if not found:
            raise ValueError("no layer has a gradient: call update() after backward() and before zero_grad()")

    def score(self, name: str) -> Tensor:
        """Return the bias-corrected average of a layer, in its weight's shape.

        Raises:
            ValueError: the layer is not watched or never had a gradient.
        """
        if name not in self._averages:
            reason = "never had a gradient" if name in self._layers else "is not watched"
            raise ValueError(f"layer {name!r} {reason}; scores exist for {sorted(self._averages)}")
        return self._averages[name] / (1 - self.momentum ** self._updates[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which :meth:`load_state_dict` resumes."""
        return {
            "momentum": self.momentum,
            "updates": dict(self._updates),
            "averages": {name: average.clone() for name, average in self._averages.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state_dict`.

        Raises:
            ValueError: a layer is unknown or has another shape.
        """
        averages: dict[str, Tensor] = {}
        for name, average in state["averages"].items():
            if name not in self._layers:
                raise ValueError(f"the state has layer {name!r}, which is not watched here")
            weight = weight_parameter(self._layers[name])
            if weight.shape != average.shape:
                raise ValueError(
                    f"the state of layer {name!r} has shape {tuple(average.shape)},"
                    f" its weight {tuple(weight.shape)}"
                )
            averages[name] = average.to(weight.device, score_dtype(weight)).clone()
        self.momentum = float(state["momentum"])
        self._updates = {name: int(count) for name, count in state["updates"].items()}
        self._averages = averages
