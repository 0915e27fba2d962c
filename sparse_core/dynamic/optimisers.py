"""Adam, AdaGrad and momentum for stored connections, with state in 32 or 8 bits.

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

_Moments = dict[str, Tensor]
_Options = dict[str, Any]


class _SparseOptimiser(torch.optim.Optimizer):
    """Base of the optimisers: named state of 32 or 8 bits, and the loop over parameters."""

    _names: tuple[str, ...] = ()
    #: State that is never negative.
    _unsigned: frozenset[str] = frozenset()

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], state_bits: int) -> None:
        if state_bits not in (8, 32):
            raise ValueError(f"state_bits must be 8 or 32, got {state_bits}")
        if not defaults["lr"] >= 0 or not defaults["weight_decay"] >= 0:
            raise ValueError(
                f"lr and weight_decay must not be negative, got {defaults['lr']}, {defaults['weight_decay']}"
            )
        super().__init__(params, {**defaults, "state_bits": state_bits})

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

    def _step_one(self, parameter: nn.Parameter, group: _Options) -> None:
        state = self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        moments = {}
        for name in self._names:
            kept = state.get(name)
            if kept is None:
                moments[name] = torch.zeros_like(parameter, dtype=_exact(parameter.dtype))
            else:
                moments[name] = kept.read() if isinstance(kept, QuantisedState) else kept
        gradient = parameter.grad.to(_exact(parameter.dtype))  # type: ignore[union-attr]
        self._change(parameter, gradient, moments, group, state["step"])
        for name, moment in moments.items():
            signed = name not in self._unsigned
            eight = group["state_bits"] == 8
            state[name] = QuantisedState.of(moment, signed=signed, turn=state["step"]) if eight else moment

    def _change(
        self, parameter: nn.Parameter, gradient: Tensor, moments: _Moments, group: _Options, step: int
    ) -> None:
        raise NotImplementedError

    def state_bytes(self) -> int:
        """Return the bytes of all moments."""
        kept = [part for state in self.state.values() for part in state.values()]
        return sum(part.nbytes for part in kept if isinstance(part, Tensor | QuantisedState))

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


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _apply_change(parameter: nn.Parameter, change: Tensor, group: _Options) -> None:
    """Set the parameter to ``parameter * (1 - lr * weight_decay) - change``, rounded once."""
    kept = parameter.to(change.dtype) * (1 - group["lr"] * group["weight_decay"])
    parameter.copy_(kept - change)


class SparseAdam(_SparseOptimiser):
    """Adam with decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter 2019).

    Args:
        params: as in ``torch.optim``; dense parameters work too.
        lr, betas, eps, weight_decay: as in ``torch.optim.AdamW``.
        state_bits: 32, or 8 for a quarter of the state.

    Raises:
        ValueError: an option out of range.
    """

    _names = ("mean", "square")
    _unsigned = frozenset({"square"})

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
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}, state_bits
        )

    def _change(
        self, parameter: nn.Parameter, gradient: Tensor, moments: _Moments, group: _Options, step: int
    ) -> None:
        first, second = group["betas"]
        mean = moments["mean"].lerp_(gradient, 1 - first)
        square = moments["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        root = (square / (1 - second**step)).sqrt_().add_(group["eps"])
        _apply_change(parameter, mean / root * (group["lr"] / (1 - first**step)), group)


class SparseAdagrad(_SparseOptimiser):
    """AdaGrad (Duchi et al. 2011) with decoupled weight decay.

    Args:
        params: as in ``torch.optim``.
        lr, eps, weight_decay: as in ``torch.optim.Adagrad``, but the decay is decoupled.
        state_bits: 32, or 8 for a quarter of the state.

    Raises:
        ValueError: an option out of range.
    """

    _names = ("sum",)
    _unsigned = frozenset({"sum"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        *,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        state_bits: int = 32,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps, "weight_decay": weight_decay}, state_bits)

    def _change(
        self, parameter: nn.Parameter, gradient: Tensor, moments: _Moments, group: _Options, step: int
    ) -> None:
        total = moments["sum"].addcmul_(gradient, gradient)
        _apply_change(parameter, gradient / (total.sqrt() + group["eps"]) * group["lr"], group)


class SparseMomentum(_SparseOptimiser):
    """Gradient descent with momentum, optionally Nesterov's, and decoupled weight decay.

    Args:
        params: as in ``torch.optim``.
        lr, momentum, nesterov: as in ``torch.optim.SGD``.
        weight_decay: decoupled.
        state_bits: 32, or 8 for a quarter of the state.

    Raises:
        ValueError: an option out of range.
    """

    _names = ("momentum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        state_bits: int = 32,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(params, defaults, state_bits)

    def _change(
        self, parameter: nn.Parameter, gradient: Tensor, moments: _Moments, group: _Options, step: int
    ) -> None:
        moment = moments["momentum"].mul_(group["momentum"]).add_(gradient)
        change = gradient + moment * group["momentum"] if group["nesterov"] else moment
        _apply_change(parameter, change * group["lr"], group)
