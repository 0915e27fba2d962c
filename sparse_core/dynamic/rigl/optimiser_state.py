"""Keep the optimiser's moments beside the connections that they belong to."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.dynamic.quantised_state import QuantisedState
from sparse_core.dynamic.rigl.exchange import Exchange


def carry_state(optimizer: torch.optim.Optimizer, parameter: Tensor, change: Exchange) -> None:
    """Bring the optimiser's state of a parameter into the order of a new topology; zero where it is new.

    Args:
        optimizer: state tensors of the parameter's shape, and :class:`QuantisedState` of it, are changed.
        parameter: (cells, ...) values before or after the exchange.
        change: the topology.
    """
    for name, kept in optimizer.state.get(parameter, {}).items():
        if isinstance(kept, QuantisedState):
            optimizer.state[parameter][name] = kept.map(change.carry)
        elif isinstance(kept, Tensor) and kept.shape == parameter.shape:
            kept.copy_(change.carry(kept))
