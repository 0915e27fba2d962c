"""Candidates for the levels of a budgeted detector: one thing left out at a time, and some together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from perception.budget import Level, default_levels
from perception.model.layers import SparseUnit
from perception.model.network import Network


def candidates() -> tuple[Level, ...]:
    """Levels by what is likely to matter: the first are measured where time is short."""
    near = (51.2, 25.6)
    singles = (
        Level("refine once", refinements=1),
        Level("pillars 50 %", 0.5),
        Level("pillars 25 %, refine once", 0.25, refinements=1),
        Level("reach 51 m", reach_m=near),
        Level("refine once, a block less", refinements=1, backbone_blocks=(1, 2, 2)),
        Level("refine once, reach 51 m", refinements=1, reach_m=near),
        Level(
            "refine once, a block less, reach 51 m", reach_m=near, backbone_blocks=(1, 2, 2), refinements=1
        ),
        Level("no refinement", refinements=0),
        Level("24 proposals", proposals=24),
        Level("pillars 75 %", 0.75),
        Level("pillars 35 %", 0.35),
        Level("pillars 25 %", 0.25),
        Level("pillars 15 %", 0.15),
        Level("a block less", backbone_blocks=(1, 2, 2)),
        Level("two blocks less", backbone_blocks=(1, 1, 2)),
        Level("neck of one block", neck_blocks=1),
        Level("reach 45 m", reach_m=(44.8, 25.6)),
        Level("reach 38 m", reach_m=(38.4, 20.48)),
    )
    together = (*default_levels(fast=False), *default_levels(fast=True))
    return tuple(dict.fromkeys((*together, *singles)))


def level_facts(level: Level) -> dict[str, Any]:
    """Settings of a level as plain values, without those it does not change."""
    whole = asdict(Level(level.name))
    return {name: value for name, value in asdict(level).items() if value != whole[name]}


def without_taps(network: Network, taps: int) -> Network:
    """The network with the weakest taps of each 3 x 3 layer of its backbone zero, by their norm."""
    with torch.no_grad():
        for part in network.backbone.modules():
            if isinstance(part, SparseUnit) and part.conv.weight[0, ..., 0].numel() == 9:
                weight = part.conv.weight
                weakest = weight.square().sum(dim=(0, 3)).flatten().argsort()[:taps]
                weight.view(len(weight), 9, -1)[:, weakest] = 0
    return network
