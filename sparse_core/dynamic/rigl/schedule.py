"""Schedule of RigL and SET around an optimiser: when connections are exchanged, and how many.

RigL: Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020). SET: Mocanu et al. (2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sparse_core.common.table import Report, Table
from sparse_core.dynamic.rigl.exchange import Exchange, exchange_cells
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer


def carry_state(optimizer: torch.optim.Optimizer, parameter: Tensor, change: Exchange) -> None:
    """Reorder the optimiser's state of a parameter for a new topology; zero for new connections.

    Changes state tensors of the shape of ``parameter`` (cells, ...).
    """
    for kept in optimizer.state.get(parameter, {}).values():
        if isinstance(kept, Tensor) and kept.shape == parameter.shape:
            kept.copy_(change.carry(kept))


Method = Literal["rigl", "set"]
Drop = Literal["magnitude", "magnitude-gradient"]


def cosine_fraction(step: int, *, initial: float, stop_step: int) -> float:
    """Return the share exchanged at a step, ``initial / 2 * (1 + cos(pi * step / stop_step))``; then zero."""
    if step >= stop_step:
        return 0.0
    return initial / 2 * (1 + math.cos(math.pi * step / stop_step))


@dataclass(frozen=True)
class TopologyUpdate(Report):
    """Result of one exchange.

    Attributes:
        step: number of the training step, from 1.
        fraction: share to drop.
        dropped: number of dropped cells by layer.
        fresh: (layers,) int64 on the device, number of new cells. All other grown cells were dropped in the
            same update and keep their value.
    """

    step: int
    fraction: float
    dropped: dict[str, int]
    fresh: Tensor

    def tables(self) -> list[Table | str]:
        """Return one row per layer; waits for the device."""
        rows = list(zip(self.dropped, self.dropped.values(), self.fresh.tolist(), strict=True))
        title = f"step {self.step}: {self.fraction:.1%} of the connections exchanged"
        return [Table(("layer", "dropped", "new"), rows, title=title)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with new cells by layer; waits for the device."""
        return {**super().to_json(), "fresh": dict(zip(self.dropped, self.fresh.tolist(), strict=True))}


class RigLScheduler:
    """Runs the optimiser's steps and exchanges connections between them.

    Call :meth:`step` instead of ``optimizer.step()``, after ``backward()``. Steps count from 1. At every
    ``update_every``-th step before ``stop_step``, RigL exchanges connections instead of the optimiser's step
    (algorithm 1 of the paper); SET does so after it. Only the backward passes of these steps compute the
    gradient of the whole matrix, by which RigL grows. New connections and their moments start at zero; a
    connection that is dropped and grown in one update keeps both.

    Args:
        model: contains :class:`SparseTrainedLayer`; each exchanges within itself and keeps its number of
            connections.
        optimizer: trains these layers' parameters. Its state tensors must have the parameter's shape, as in
            ``torch.optim``.
        update_every: steps between two exchanges.
        drop_fraction: initial share to exchange; falls as a cosine to zero at ``stop_step``.
        stop_step: the topology is fixed from here on; the paper stops after three quarters of the training.
        method: ``"rigl"`` grows by the absolute gradient, ``"set"`` at random.
        drop: drop the lowest ``abs(weight)``, or the lowest ``abs(weight * gradient)``; 2-norm of blocks.
        seed: seed of SET's growth.

    Attributes:
        steps: steps taken.

    Raises:
        ValueError: an option out of range, no such layers, or a layer that the optimiser does not train.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        update_every: int = 100,
        drop_fraction: float = 0.3,
        stop_step: int,
        method: Method = "rigl",
        drop: Drop = "magnitude",
        seed: int = 0,
    ) -> None:
        if update_every < 1 or stop_step < 0:
            raise ValueError(
                f"update_every must be at least 1 and stop_step at least 0, got {update_every}, {stop_step}"
            )
        if not 0 < drop_fraction < 1:
            raise ValueError(f"drop_fraction must be above 0 and below 1, got {drop_fraction}")
        if method not in get_args(Method) or drop not in get_args(Drop):
            raise ValueError(
                f"method must be one of {get_args(Method)} and drop one of {get_args(Drop)},"
                f" got {method!r} and {drop!r}"
            )
        self.layers = {
            name or "model": module
            for name, module in model.named_modules()
            if isinstance(module, SparseTrainedLayer)
        }
        if not self.layers:
            raise ValueError("the model has no RigLLinear or RigLConv2d: sparse_training(model) makes them")
        trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if missing := [name for name, layer in self.layers.items() if id(layer.values) not in trained]:
            raise ValueError(f"the optimizer does not train {missing}: create it after the sparse layers")
        self.optimizer = optimizer
        self.update_every, self.drop_fraction, self.stop_step = update_every, drop_fraction, stop_step
        self.method, self.drop, self.steps = method, drop, 0
        device = next(iter(self.layers.values())).values.device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._prepare()

    @property
    def is_due(self) -> bool:
        """True if the next :meth:`step` exchanges connections."""
        step = self.steps + 1
        return step % self.update_every == 0 and step < self.stop_step

    def step(self) -> TopologyUpdate | None:
        """Run the optimiser's step, the exchange, or with SET both.

        Returns:
            The exchange, or ``None``.

        Raises:
            ValueError: weights or gradients are NaN or infinite at an exchange.
            RuntimeError: no backward pass before an exchange by gradient.
        """
        due = self.is_due
        if not due or self.method == "set":
            self.optimizer.step()
        update = self._update() if due else None
        self.steps += 1
        self._prepare()
        return update

    def _prepare(self) -> None:
        collects = self.method == "rigl" and self.is_due
        for layer in self.layers.values():
            if collects or layer.growth_gradient is not None or layer._collects:
                layer.collect_growth(collects)

    @torch.no_grad()
    def _update(self) -> TopologyUpdate:
        step = self.steps + 1
        fraction = cosine_fraction(step, initial=self.drop_fraction, stop_step=self.stop_step)
        scores = {name: self._scores(name, layer) for name, layer in self.layers.items()}
        self._check_finite(scores)
        dropped, fresh = {}, []
        for name, layer in self.layers.items():
            grid = layer.grid
            dropped[name] = min(int(grid.count * fraction), grid.size - 1)
            change = exchange_cells(layer.cells, *scores[name], grid, dropped[name])
            layer.exchange(change)
            carry_state(self.optimizer, layer.values, change)
            # The gradient belongs to the old topology.
            layer.values.grad = None
            fresh.append(change.fresh.sum())
        return TopologyUpdate(step, fraction, dropped, torch.stack(fresh))

    def _scores(self, name: str, layer: SparseTrainedLayer) -> tuple[Tensor, Tensor]:
        values, grid = layer.values.detach(), layer.grid
        if self.drop == "magnitude-gradient":
            if layer.values.grad is None:
                raise RuntimeError(f"{name} has no gradient: call backward() before step()")
            values = values * layer.values.grad
        if self.method == "set":
            growth = torch.rand(
                grid.shape, generator=self._generator, device=values.device, dtype=torch.float32
            )
        elif layer.growth_gradient is None:
            raise RuntimeError(f"{name} has no dense gradient: call backward() before step()")
        else:
            growth = grid.by_cell(layer.growth_gradient)
        return grid.of_cells(values), growth

    def _check_finite(self, scores: dict[str, tuple[Tensor, Tensor]]) -> None:
        # The only wait for the device. Scores are not negative, and max propagates NaN.
        largest = torch.stack([part.amax().double() for pair in scores.values() for part in pair]).tolist()
        finite = [math.isfinite(number) for number in largest]
        for at, name in enumerate(scores):
            for right, what in zip(finite[2 * at : 2 * at + 2], ("weights", "gradients"), strict=True):
                if not right:
                    raise ValueError(
                        f"{name}: {what} are NaN or infinite at step {self.steps + 1}, connections cannot be"
                        " ranked: lower the learning rate or clip gradients"
                    )

    def state_dict(self) -> dict[str, Any]:
        """Return step and random state; the model holds the topologies, the optimiser the moments."""
        return {"steps": self.steps, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of the same options.

        Raises:
            ValueError: keys are missing.
        """
        if missing := {"steps", "generator"} - set(state):
            raise ValueError(f"state of RigLScheduler lacks {sorted(missing)}")
        self.steps = int(state["steps"])
        self._generator.set_state(state["generator"].cpu())
        self._prepare()
