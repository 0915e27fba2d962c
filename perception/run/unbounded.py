"""Frames of a detector without a range, with room for a fixed number of everything: pillars are hashed.

Cells of all levels are rows of hash tables of 64-bit keys, so that what a frame costs depends on the room for
active cells and not on where they are. Convolutions and refinements are the kernels of the other graphs; what
finds cells, peaks and runs of points is plain torch without a read-back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perception.geometry import OpenGrid
from perception.model.backbone import SparseBackbone
from perception.model.network import Network
from perception.model.refine import RefineStage
from perception.run.batch import FixedScans, FrameBoxes, GraphSteps
from perception.stages.backbone.fixed import FixedLevels, LevelTables
from perception.stages.head import pack_boxes
from perception.stages.head.unbounded import listed_boxes, listed_peaks
from perception.stages.neck import NeckWeights
from perception.stages.neck.gpu_unbounded import HashNeck, HashPlan, finer_coordinates
from perception.stages.nms import Suppressed
from perception.stages.pillars.unbounded import HashedPillars, encode_hashed, hash_pillars
from perception.stages.pillars.weights import EncoderWeights
from perception.stages.refine import PackedRefine, RefineWorkspace, pack_refine
from perception.stages.refine.unbounded import refine_hashed
from sparse_core.conv.coordinates.common import key_strides
from sparse_core.conv.grid import GridLevel, hash_pyramid
from sparse_core.conv.grid.layout import FixedHash


class Located(NamedTuple):
    """Points by pillar, and active cells of each level; those of the neck's map last."""

    pillars: HashedPillars
    grids: list[FixedHash]


@dataclass(frozen=True)
class Levels:
    """The backbone so far.

    Attributes:
        located: where it is computed.
        tables: which rows its layers read.
        plan: where the neck is computed.
        rows: (capacity, C) features of the last level so far.
    """

    located: Located
    tables: LevelTables
    plan: HashPlan
    rows: Tensor


class Map(NamedTuple):
    """Rows of the map (4 * capacity + 4, C), and what they were made of."""

    levels: Levels
    features: Tensor


class Peaks(NamedTuple):
    """Boxes at the peaks (B, K, 7), scores (B, K) float32 and labels (B, K) int32, -1 behind the last."""

    map: Map
    boxes: Tensor
    scores: Tensor
    labels: Tensor


class Boxes(NamedTuple):
    """Distinct boxes, refined so far; how well they fit and their features are None before the refinement."""

    peaks: Peaks
    kept: Suppressed
    fit_logits: Tensor | None = None
    features: Tensor | None = None


class HashSteps(GraphSteps[Located, Levels, Map, Peaks, Boxes]):
    """Steps of a network with a sparse backbone and no range, for batches of one size.

    Args:
        network: folded, on the device to run on.
        capacities: active cells of each level of the backbone that there is room for, all frames together.
        nearby: cells of each list of cells near active ones that there is room for.
        options: see :class:`~perception.run.batch.GraphSteps`.

    Raises:
        ValueError: capacities for another number of levels or lists.
    """

    #: There is room for active cells of each level.
    sparse = True

    def __init__(
        self, network: Network, *, capacities: tuple[int, ...], nearby: tuple[int, ...], **options: Any
    ) -> None:
        super().__init__(network, **options)
        pillars, backbone = self.config.pillars, network.backbone
        assert isinstance(pillars.grid, OpenGrid)
        assert isinstance(backbone, SparseBackbone)
        if len(capacities) != len(self.config.backbone.channels):
            raise ValueError(
                f"{len(self.config.backbone.channels)} levels need as many capacities, got {len(capacities)}"
            )
        self.grid, self.capacities = pillars.grid, capacities
        self.encoder = EncoderWeights.from_encoder(network.encoder, device=self.device)
        self._backbone = FixedLevels(
            backbone,
            pillars,
            batch_size=self.batch_size,
            capacities=capacities,
            dtype=self.dtype,
            impl=self.impl,
        )
        self._neck = HashNeck(NeckWeights.of(network, self.dtype), capacities=nearby, impl=self.impl)
        self.boxes = pack_boxes(network.head, self.dtype)
        stages = [stage for stage in network.refinements if isinstance(stage, RefineStage)]
        packed = [pack_refine(stage, dtype=self.dtype) for stage in stages]
        self._refinements = [partial(self._refine, weights, turn=weights is packed[-1]) for weights in packed]
        rows = self.batch_size * self.config.limits.proposals
        self._refine_workspaces = [RefineWorkspace.make(rows, weights) for weights in packed[:1]]

    def choose_tiles(self, active: Sequence[int]) -> None:
        """See :meth:`GraphSteps.choose_tiles`."""
        levels, lists = len(self.capacities), len(self._neck.capacities)
        self._backbone.choose_tiles(active[:levels])
        self._neck.choose_tiles(active[levels : levels + lists])

    def locate(self, scans: FixedScans) -> Located:
        """Points by pillar, and the cells of every level."""
        pillars = hash_pillars(*scans, self.grid, self.capacities[0], impl=self.impl)
        further = [*self.capacities[1:], self._neck.capacities[0]]
        return Located(
            pillars, hash_pyramid(pillars.grid, further, [GridLevel()] * len(further), impl=self.impl)
        )

    def encode(self, located: Located) -> Levels:
        """Features of the pillars, and tables beside them."""
        *grids, coarse = located.grids
        with self._beside():
            tables = self._backbone.tables(grids, coarse)
            plan = self._neck.hashed_plan(coarse, grids[-1])
        rows = encode_hashed(located.pillars, self.encoder, dtype=self.dtype)
        self._join()
        return Levels(located, tables, plan, rows)

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[Levels], Levels]]]:
        """Stages of the backbone."""
        count = len(self.capacities)
        return [(f"backbone 1/{2**level}", partial(self._level, level)) for level in range(count)]

    def _level(self, level: int, levels: Levels) -> Levels:
        rows = self._backbone(level, levels.rows, levels.located.grids[:-1], levels.tables)
        return replace(levels, rows=rows)

    def neck(self, levels: Levels) -> Map:
        """The map near active cells."""
        return Map(levels, self._neck.hashed_map(levels.rows, levels.tables.strided[-1], levels.plan))

    def head(self, features: Map) -> Peaks:
        """Boxes at the peaks."""
        plan = features.levels.plan
        cells = finer_coordinates(plan.lists[-1])
        peaks = listed_peaks(
            self._neck.hashed_heat(),
            plan.around,
            cells[:, 0],
            self.config.limits.peaks,
            self.batch_size,
            minimum=self.least_scores,
        )
        boxes = listed_boxes(features.features, plan.around, cells, peaks, self.boxes)
        return Peaks(features, boxes, peaks.scores, peaks.labels)

    def propose(self, peaks: Peaks) -> Boxes:
        """Proposals that are no duplicates."""
        return Boxes(peaks, self._distinct(peaks.boxes, peaks.scores, peaks.labels))

    @property
    def refinements(self) -> Sequence[Callable[[Boxes], Boxes]]:
        """One step for each stage of the network; the last turns boxes to their headings."""
        return self._refinements

    def _refine(self, weights: PackedRefine, boxes: Boxes, *, turn: bool) -> Boxes:
        levels = boxes.peaks.map.levels
        refined = refine_hashed(
            levels.located.pillars,
            boxes.peaks.map.features,
            levels.plan.lists[-1],
            boxes.kept.boxes,
            boxes.kept.labels,
            weights,
            grid=self.grid,
            turn=turn,
            workspace=self._refine_workspaces[0],
            impl=self.impl,
        )
        kept = boxes.kept._replace(boxes=refined.boxes)
        return Boxes(boxes.peaks, kept, refined.fit_logits, refined.features)

    def suppress(self, boxes: Boxes) -> FrameBoxes:
        """What is left of refined boxes that overlap."""
        levels = boxes.peaks.map.levels
        pillars = levels.located.pillars
        first = torch.arange(self.batch_size, device=self.device) * key_strides(self.grid.key_shape)[0]
        before = torch.searchsorted(pillars.grid.rising_keys(), first).int()
        active = [grid.active for grid in (*levels.located.grids[:-1], *levels.plan.lists)]
        numbers = torch.cat([pillars.invalid, before, *active, pillars.far])
        return self._final(boxes.kept, boxes.fit_logits, boxes.features, boxes.peaks.labels, numbers)
