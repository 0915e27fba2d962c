"""A network with less in it, that shares all weights with the whole one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from torch import nn

from perception.config import DetectorConfig, PillarConfig
from perception.model.layers import DenseBlock, SparseBlock
from perception.model.level import Level
from perception.model.network import Network
from perception.model.ranging import in_range, twin

__all__ = ["thinned"]

#: Share of a cell that a quotient of metres may be off.
_ROUNDING = 1e-4


def thinned(network: Network, level: Level, config: DetectorConfig | None = None) -> Network:
    """The network that computes a level: without the blocks and steps that the level leaves out.

    A residual block adds to what passes it by, so the network runs without it; how well, is measured. All
    modules and weights that are left are those of ``network``.

    Args:
        network: stays as it is.
        level: what to leave out; its share of pillars is not looked at.
        config: the network's own with other thresholds; None: the network's own.

    Raises:
        ValueError: the level counts blocks for another number of stages, or reaches nothing of the range.
    """
    config = config or network.config
    thin = twin(network)
    blocks = config.backbone.blocks
    if level.backbone_blocks is not None:
        if len(level.backbone_blocks) != len(blocks):
            raise ValueError(
                f"level {level.name!r}: backbone_blocks must count the blocks of {len(blocks)} stages,"
                f" got {level.backbone_blocks}"
            )
        blocks = tuple(map(min, blocks, level.backbone_blocks))
        thin.backbone = twin(network.backbone)
        thin.backbone.stages = nn.ModuleList(
            nn.Sequential(*_first_blocks(stage.children(), count))
            for stage, count in zip(network.backbone.stages, blocks, strict=True)
        )
    neck = _least(config.neck.blocks, level.neck_blocks)
    if neck != config.neck.blocks:
        thin.neck = twin(network.neck)
        thin.neck.blocks = nn.Sequential(*_first_blocks(network.neck.blocks.children(), neck))
    steps = _least(len(network.refinements), level.refinements)
    thin.refinements = nn.ModuleList(list(network.refinements)[:steps])
    pillars = config.pillars if level.reach_m is None else _within_reach(config, level, level.reach_m)
    thin = in_range(thin, pillars)
    refine = replace(
        config.refine,
        enabled=steps > 0,
        iterations=max(steps, 1),
        proposals=_least(config.refine.proposals, level.proposals),
    )
    thin.config = replace(
        config,
        pillars=pillars,
        backbone=replace(config.backbone, blocks=blocks),
        neck=replace(config.neck, blocks=neck),
        refine=refine,
    )
    return thin


def _within_reach(config: DetectorConfig, level: Level, reach_m: tuple[float, float]) -> PillarConfig:
    """The range without the cells of the coarsest map that lie beyond the level's reach."""
    pillars = config.pillars
    cell_m = pillars.pillar_size_m * config.backbone.stride
    low, high = list(pillars.grid.origin_m), [math.inf, math.inf]
    if pillars.range_m is not None:
        high = list(pillars.range_m[3:5])
    for axis, reach in enumerate(reach_m):
        # Without a range there are cells on all sides.
        cells = math.inf if pillars.open else round((high[axis] - low[axis]) / cell_m)
        first = math.floor((-reach - low[axis]) / cell_m + _ROUNDING)
        first = first if pillars.open else max(0, first)
        last = min(cells, math.ceil((reach - low[axis]) / cell_m - _ROUNDING))
        if first >= last:
            raise ValueError(f"level {level.name!r}: nothing of the range lies within reach_m {reach_m}")
        high[axis] = high[axis] if last == cells else low[axis] + last * cell_m
        low[axis] += first * cell_m
    (bottom, top), (x0, y0), (x1, y1) = pillars.heights_m, low, high
    return pillars.with_range((x0, y0, bottom, x1, y1, top))


def _first_blocks(parts: Iterable[nn.Module], count: int) -> list[nn.Module]:
    """The parts, but of the residual blocks only the first ``count``."""
    kept: list[nn.Module] = []
    for part in parts:
        if isinstance(part, SparseBlock | DenseBlock):
            count -= 1
            if count < 0:
                continue
        kept.append(part)
    return kept


def _least(present: int, wanted: int | None) -> int:
    return present if wanted is None else min(present, wanted)
