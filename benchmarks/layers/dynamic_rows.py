"""Rows of the sparse training study: sparse layers, update of their connections, and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sparse_core.dynamic.rigl.conversion import sparse_training
from sparse_core.dynamic.rigl.grid import Structure
from sparse_core.dynamic.rigl.schedule import RigLScheduler
from sparse_core.dynamic.rigl.sparse_layer import SparseTrainedLayer

Method = Literal["dense", "small dense", "static", "set", "rigl"]
LABELS = {
    ("dense", "unstructured"): "dense",
    ("small dense", "unstructured"): "small dense",
    ("static", "unstructured"): "static random",
    ("set", "unstructured"): "SET",
    ("rigl", "unstructured"): "RigL",
    ("rigl", "fan-in"): "RigL, fan-in",
    ("rigl", "block"): "RigL, blocks",
}
SPARSITIES = (0.8, 0.9)
#: Trainings last this many times the steps of a plain one.
LENGTHS = (1, 5)
DROP_FRACTION = 0.3
#: Connections are fixed after this share of the steps (Evci et al. 2020).
STOP = 0.75


class Row(NamedTuple):
    """One way to train.

    Attributes:
        method: how connections move; ``"small dense"`` has as many parameters as the unstructured network.
        structure: where connections may lie.
        sparsity: of the layers that become sparse; 0 for the dense network.
        length: times the steps of a plain training.
    """

    method: Method
    structure: Structure
    sparsity: float
    length: int

    @property
    def label(self) -> str:
        """Name in tables."""
        return LABELS[self.method, self.structure]

    @property
    def is_sparse(self) -> bool:
        """True if layers become sparse."""
        return self.method in ("static", "set", "rigl")


def all_rows(sparsities: tuple[float, ...] = SPARSITIES, lengths: tuple[int, ...] = LENGTHS) -> list[Row]:
    """Every row, dense first, short trainings first."""
    kinds = [key for key in LABELS if key[0] != "dense"]
    rows = []
    for length in lengths:
        rows.append(Row("dense", "unstructured", 0.0, length))
        rows += [
            Row(method, structure, sparsity, length)  # type: ignore[arg-type]
            for sparsity in sorted(sparsities, reverse=True)
            for method, structure in kinds
        ]
    return rows


def make_sparse(model: nn.Module, row: Row, *, select: str, block_size: int, seed: int) -> None:
    """Replace the selected layers by sparse ones with random connections.

    They are unpacked for each product: on small networks that is the faster way, and the result is the same.
    """
    sparse_training(
        model,
        row.sparsity,
        structure=row.structure,
        block_size=block_size,
        execution="dense",
        select=select,
        seed=seed,
    )


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, row: Row, *, steps: int, update_every: int, seed: int
) -> tuple[Callable[[], Any], RigLScheduler | None]:
    """Return the call after ``backward()``: the optimizer's step, or a scheduler's."""
    if row.method not in ("set", "rigl"):
        return optimizer.step, None
    scheduler = RigLScheduler(
        model,
        optimizer,
        method="set" if row.method == "set" else "rigl",
        update_every=update_every,
        drop_fraction=DROP_FRACTION,
        stop_step=int(STOP * steps),
        seed=seed,
    )
    return scheduler.step, scheduler


class LayerCost(NamedTuple):
    """Multiply-adds of the forward pass of one example in a layer that may be sparse.

    Attributes:
        dense: with every weight.
        density: share of the weights that is stored.
    """

    dense: float
    density: float


def training_cost(
    layers: Mapping[str, LayerCost],
    rest: float,
    *,
    steps: int,
    dense_steps: int,
    updates: int,
    by_gradient: bool,
) -> float:
    """Multiply-adds of a training over those of the dense one, as counted by Evci et al. (2020), appendix H.

    A step costs the forward pass three times: itself, the gradient of the input and that of the weight.
    Growth by gradient computes the gradient of the whole weight at an exchange.

    Args:
        layers: those that may be sparse.
        rest: multiply-adds of everything else, forward.
        steps, dense_steps: of the training and of the dense one.
        updates: exchanges.
        by_gradient: they are RigL's.
    """
    whole = rest + sum(cost.dense for cost in layers.values())
    sparse = rest + sum(cost.dense * cost.density for cost in layers.values())
    extra = sum(cost.dense * (1 - cost.density) for cost in layers.values()) if by_gradient else 0.0
    return (3 * sparse * steps + extra * updates) / (3 * whole * dense_steps)


def count_forward(model: nn.Module, example: Tensor, names: set[str]) -> tuple[dict[str, float], float]:
    """Multiply-adds of the named layers of a dense model for one example, and of the rest."""
    found: dict[str, float] = {}
    handles = [
        module.register_forward_hook(
            lambda module, _, output, name=name: found.__setitem__(
                name, output.numel() / module.weight.shape[0] * module.weight.numel()
            )
        )
        for name, module in model.named_modules()
        if name in names
    ]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(example)
    finally:
        for handle in handles:
            handle.remove()
        model.train(was_training)
    return found, counter.get_total_flops() / 2 - sum(found.values())


def sparse_layers(model: nn.Module) -> dict[str, SparseTrainedLayer]:
    """The layers that store their connections, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, SparseTrainedLayer)}


def parameter_count(model: nn.Module) -> int:
    """Numbers that are trained."""
    return sum(parameter.numel() for parameter in model.parameters())
