"""Adam for stored connections, with state in 32 or 8 bits.

A sparse layer stores only its connections in ``values``, so the optimiser's state has no entries for zeros.
With 8 bits, each number of the state takes one byte and a share of a scale, after Dettmers et al.,
"8-bit Optimizers via Block-wise Quantization" (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor, nn

from sparse_core.dynamic.quantised_state import QuantisedState


class SparseAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter 2019).

    Args:
        params: as in ``torch.optim``; dense parameters work too.
        lr, betas, eps, weight_decay: as in ``torch.optim.AdamW``.
        state_bits: 32, or 8 for a quarter of the state.

    Raises:
        ValueError: an option out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        state_bits: int = 32,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be at least 0 and below 1, got {betas}")
        if state_bits not in (8, 32):
            raise ValueError(f"state_bits must be 8 or 32, got {state_bits}")
        if not lr >= 0 or not weight_decay >= 0:
            raise ValueError(f"lr and weight_decay must not be negative, got {lr}, {weight_decay}")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "state_bits": state_bits
        }  # fmt: skip
        super().__init__(params, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient.

        Args:
            closure: evaluates the model again and returns the loss, as in ``torch.optim``.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step_one(parameter, group)
        return loss

    def _step_one(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        exact = torch.promote_types(parameter.dtype, torch.float32)
        moments = {}
        for name in ("mean", "square"):
            kept = state.get(name)
            if kept is None:
                moments[name] = torch.zeros_like(parameter, dtype=exact)
            else:
                moments[name] = kept.read() if isinstance(kept, QuantisedState) else kept
        first, second = group["betas"]
        gradient = parameter.grad.to(exact)  # type: ignore[union-attr]
        mean = moments["mean"].lerp_(gradient, 1 - first)
        square = moments["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (square / (1 - second ** state["step"])).sqrt_().add_(group["eps"])
        change = mean / root * (group["lr"] / (1 - first ** state["step"]))
        # The product and the difference are rounded once, to the parameter's type.
        kept_weight = parameter.to(exact) * (1 - group["lr"] * group["weight_decay"])
        parameter.copy_(kept_weight - change)
        for name, moment in moments.items():
            if group["state_bits"] == 8:
                state[name] = QuantisedState.of(moment, signed=name == "mean", turn=state["step"])
            else:
                state[name] = moment

    def state_dict(self) -> dict[str, Any]:
        """Return the state as in ``torch.optim``; 8-bit moments are dictionaries of tensors."""
        packed = super().state_dict()
        packed["state"] = {
            key: {
                name: part.pack() if isinstance(part, QuantisedState) else part for name, part in kept.items()
            }
            for key, kept in packed["state"].items()
        }
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as in ``torch.optim``."""
        # torch would cast the bytes to the parameters' type.
        bare: dict[int, dict[str, Any]] = {key: {} for key in state_dict["state"]}
        super().load_state_dict({**state_dict, "state": bare})
        order = [parameter for group in self.param_groups for parameter in group["params"]]
        for key, kept in state_dict["state"].items():
            parameter = order[key]
            for name, part in kept.items():
                if isinstance(part, dict):
                    part = QuantisedState.unpack(part, parameter.device)
                elif isinstance(part, Tensor):
                    part = part.to(parameter.device).clone()
                if not isinstance(part, int) and part.shape != parameter.shape:
                    raise ValueError(
                        f"state {name!r} of parameter {key} has shape {tuple(part.shape)},"
                        f" the parameter {tuple(parameter.shape)}"
                    )
                self.state[parameter][name] = part
