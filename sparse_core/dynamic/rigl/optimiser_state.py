"""Move the optimiser's moments along with their connections."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.dynamic.quantised_state import QuantisedState
from sparse_core.dynamic.rigl.exchange import Exchange


def carry_state(optimizer: torch.optim.Optimizer, parameter: Tensor, change: Exchange) -> None:
    """Reorder the optimiser's state of a parameter for a new topology; zero for new connections.

    Changes state tensors of the shape of ``parameter`` (cells, ...), and :class:`QuantisedState` of it.
    """
    for name, kept in optimizer.state.get(parameter, {}).items():
        if isinstance(kept, QuantisedState):
            optimizer.state[parameter][name] = kept.map(change.carry)
        elif isinstance(kept, Tensor) and kept.shape == parameter.shape:
            kept.copy_(change.carry(kept))
