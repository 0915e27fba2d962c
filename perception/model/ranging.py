"""Use a network for another range: convolutions do not depend on position."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TypeVar

from torch import nn

from perception.config import PillarConfig
from perception.model.network import Network
from perception.model.refine import RefineStage

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def in_range(network: Network, pillars: PillarConfig) -> Network:
    """Return a network with the same modules and weights for another range.

    Args:
        pillars: configuration that differs in range, heights and origin only.
    """
    if pillars == network.config.pillars:
        return network
    moved = twin(network)
    moved.config = replace(network.config, pillars=pillars)
    grid = pillars.grid.coarser(network.config.backbone.stride / 2)
    moved.encoder, moved.head = twin(network.encoder), twin(network.head)
    moved.encoder.config = pillars
    moved.head.grid = grid
    stages = [twin(stage) for stage in network.refinements]
    for stage in stages:
        assert isinstance(stage, RefineStage)
        stage.grid = grid
    moved.refinements = nn.ModuleList(stages)
    return moved


def twin(module: ModuleT) -> ModuleT:
    """Return a shallow copy of a module, whose parts can be replaced."""
    made = copy.copy(module)
    made._modules = dict(module._modules)
    return made
