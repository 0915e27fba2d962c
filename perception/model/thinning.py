"""Thinned networks that share all weights with the full network."""

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

#: Tolerance of quotients of metres, as a share of a cell.
_ROUNDING = 1e-4


def thinned(network: Network, level: Level, config: DetectorConfig | None = None) -> Network:
    """Return the network of a level, without the blocks and steps that the level leaves out.

    The network runs without a residual block, because the block only adds to its input. The thinned network
    shares its modules and weights with ``network``.

    Args:
        network: full network; not changed.
        level: level of sparsity; its share of pillars is ignored.
        config: configuration with other thresholds; None: the network's.

    Raises:
        ValueError: block counts for another number of stages, or a reach outside of the range.
    """
    config = config or network.config
    thin = twin(network)
    blocks = config.backbone.blocks
    if level.backbone_blocks is not None:
        if len(level.backbone_blocks) != len(blocks):
            raise ValueError(
                f"level {level.name!r}: backbone_blocks must have {len(blocks)} counts, one per stage,"
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
    if steps != len(network.refinements):
        # The embedding head reads the features of the last step only.
        thin.embedding = None
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
        embedding=replace(config.embedding, enabled=thin.embedding is not None),
    )
    return thin


def _within_reach(config: DetectorConfig, level: Level, reach_m: tuple[float, float]) -> PillarConfig:
    """Return the range without the coarsest cells beyond the level's reach."""
    pillars = config.pillars
    cell_m = pillars.pillar_size_m * config.backbone.stride
    low, high = list(pillars.grid.origin_m), [math.inf, math.inf]
    if pillars.range_m is not None:
        high = list(pillars.range_m[3:5])
    for axis, reach in enumerate(reach_m):
        # An unbounded range has cells on all sides.
        cells = math.inf if pillars.open else round((high[axis] - low[axis]) / cell_m)
        first = math.floor((-reach - low[axis]) / cell_m + _ROUNDING)
        first = first if pillars.open else max(0, first)
        last = min(cells, math.ceil((reach - low[axis]) / cell_m - _ROUNDING))
        if first >= last:
            raise ValueError(f"level {level.name!r}: reach_m {reach_m} does not overlap the range")
        high[axis] = high[axis] if last == cells else low[axis] + last * cell_m
        low[axis] += first * cell_m
    (bottom, top), (x0, y0), (x1, y1) = pillars.heights_m, low, high
    return pillars.with_range([edge * pillars.shrink for edge in (x0, y0, bottom, x1, y1, top)])


def _first_blocks(parts: Iterable[nn.Module], count: int) -> list[nn.Module]:
    """Return the parts with only the first ``count`` residual blocks."""
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
