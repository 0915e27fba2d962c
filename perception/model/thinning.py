"""A network with less in it, that shares all weights with the whole one."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from torch import nn

from perception.config import DetectorConfig, PillarConfig
from perception.model.layers import DenseBlock, SparseBlock
from perception.model.level import Level
from perception.model.network import Network
from perception.model.refine import RefineStage

__all__ = ["thinned"]

Range = tuple[float, float, float, float, float, float]
#: Share of a cell that a quotient of metres may be off.
_ROUNDING = 1e-4

ModuleT = TypeVar("ModuleT", bound=nn.Module)


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
    thin = _twin(network)
    blocks = config.backbone.blocks
    if level.backbone_blocks is not None:
        if len(level.backbone_blocks) != len(blocks):
            raise ValueError(
                f"level {level.name!r}: backbone_blocks must count the blocks of {len(blocks)} stages,"
                f" got {level.backbone_blocks}"
            )
        blocks = tuple(map(min, blocks, level.backbone_blocks))
        thin.backbone = _twin(network.backbone)
        thin.backbone.stages = nn.ModuleList(
            nn.Sequential(*_first_blocks(stage.children(), count))
            for stage, count in zip(network.backbone.stages, blocks, strict=True)
        )
    neck = _least(config.neck.blocks, level.neck_blocks)
    if neck != config.neck.blocks:
        thin.neck = _twin(network.neck)
        thin.neck.blocks = nn.Sequential(*_first_blocks(network.neck.blocks.children(), neck))
    steps = _least(len(network.refinements), level.refinements)
    thin.refinements = nn.ModuleList(list(network.refinements)[:steps])
    if steps != len(network.refinements):
        # It knows the features of the last step only.
        thin.embedding = None
    pillars = replace(config.pillars, range_m=_within_reach(config, level))
    if pillars != config.pillars:
        _move_origin(thin, pillars)
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
        embedding=replace(config.embedding, enabled=thin.embedding is not None),
    )
    return thin


def _within_reach(config: DetectorConfig, level: Level) -> Range:
    """The range without the cells of the coarsest map that lie beyond the level's reach."""
    low, high = list(config.pillars.range_m[:3]), list(config.pillars.range_m[3:])
    if level.reach_m is not None:
        cell_m = config.pillars.pillar_size_m * config.backbone.stride
        for axis, reach_m in enumerate(level.reach_m):
            cells = round((high[axis] - low[axis]) / cell_m)
            first = max(0, math.floor((-reach_m - low[axis]) / cell_m + _ROUNDING))
            last = min(cells, math.ceil((reach_m - low[axis]) / cell_m - _ROUNDING))
            if first >= last:
                raise ValueError(
                    f"level {level.name!r}: nothing of the range lies within reach_m {level.reach_m}"
                )
            high[axis] = high[axis] if last == cells else low[axis] + last * cell_m
            low[axis] += first * cell_m
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def _move_origin(thin: Network, pillars: PillarConfig) -> None:
    """Give every part that knows where the grid lies a twin for another one."""
    grid = replace(thin.head.grid, range_m=pillars.range_m)
    thin.encoder, thin.head = _twin(thin.encoder), _twin(thin.head)
    thin.encoder.config = pillars
    thin.head.grid = grid
    stages = [_twin(stage) for stage in thin.refinements]
    for stage in stages:
        assert isinstance(stage, RefineStage)
        stage.grid = grid
    thin.refinements = nn.ModuleList(stages)


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


def _twin(module: ModuleT) -> ModuleT:
    """Another module with the same parts, whose parts can be exchanged."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin


def _least(present: int, wanted: int | None) -> int:
    return present if wanted is None else min(present, wanted)
