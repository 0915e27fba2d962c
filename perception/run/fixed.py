"""Steps on buffers whose size is known beforehand and on counts that stay on the device.

A whole frame of them is one CUDA graph. The plain-torch implementations run the same composition anywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.backbone import SparseBackbone
from perception.model.network import Network
from perception.model.refine import RefineStage
from perception.run.batch import FixedScans, FrameBoxes, GraphSteps
from perception.stages.backbone.fixed import FixedLevels, LevelTables
from perception.stages.head import fixed_boxes, fixed_peaks, pack_boxes, pack_heat
from perception.stages.neck import NearNeck, NeckWeights, WholeNeck
from perception.stages.neck.gpu_bounded import NearPlan
from perception.stages.nms import Suppressed
from perception.stages.pillars import (
    EncoderWeights,
    FixedPillars,
    LocatedPoints,
    PillarWorkspace,
    fixed_encode,
    locate_points,
    sort_points,
)
from perception.stages.refine import PackedRefine, RefineWorkspace, fixed_refine, pack_refine
from sparse_core.conv.grid import FixedGrid
from sparse_core.kernels.op import Impl


class Located(NamedTuple):
    """Points by cell.

    Attributes:
        points: as located.
        grids: active cells of each level.
        neck: active cells of the neck's map; None where it is computed everywhere.
    """

    points: LocatedPoints
    grids: list[FixedGrid]
    neck: FixedGrid | None


@dataclass(frozen=True)
class Levels:
    """The backbone so far.

    Attributes:
        located: where it is computed.
        tables: which rows its layers read; None where nothing is looked up.
        rows: (capacity, C) features of the pillars, then of each level.
        plan: where the neck is computed; None: not known yet, or everywhere.
    """

    located: Located
    tables: LevelTables | None
    rows: tuple[Tensor, ...]
    plan: NearPlan | None = None


class Map(NamedTuple):
    """The map that head and refinement read.

    Attributes:
        levels: what it was made of.
        features: (B * H * W, C).
        heat: makes the heat map, (B, classes, H, W) float32, or has it.
    """

    levels: Levels
    features: Tensor
    heat: Callable[[], Tensor]


class Peaks(NamedTuple):
    """Boxes at the peaks of the heat map.

    Attributes:
        features: of the map.
        pillars: points in order, for the refinement.
        boxes: (B, K, 7) float32; scores: (B, K) float32; labels: (B, K) int32, -1 behind the last.
        numbers: see :class:`FrameBoxes`.
    """

    features: Tensor
    pillars: FixedPillars
    boxes: Tensor
    scores: Tensor
    labels: Tensor
    numbers: Tensor


class Boxes(NamedTuple):
    """Distinct boxes, refined so far.

    Attributes:
        peaks: what they come from.
        kept: boxes, scores and labels.
        fit_logits: (B, K) float32 how well they fit; None before the refinement.
        features: (B, K, 256) of the refinement; None before it.
    """

    peaks: Peaks
    kept: Suppressed
    fit_logits: Tensor | None = None
    features: Tensor | None = None


class FixedSteps(GraphSteps[Located, Levels, Map, Peaks, Boxes]):
    """What sparse and dense networks have in common: pillars, head, refinement, suppression.

    Args:
        network: folded, on the device to run on.
        batch_size: frames of a call.
        dtype: of the features: float16, bfloat16 or float32.
        impl: of every step: ``"reference"``, ``"triton"`` or ``"auto"``.
        config: the network's own with other thresholds; None: the network's own.
    """

    #: Whether there is to be room for active cells of each level of the backbone, or for pillars only.
    sparse = True

    def __init__(
        self,
        network: Network,
        *,
        batch_size: int,
        dtype: torch.dtype = torch.float16,
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        super().__init__(network, batch_size=batch_size, dtype=dtype, impl=impl, config=config)
        config = self.config
        rows, columns = config.pillars.grid_shape
        stride = config.backbone.stride
        self.fine_shape = (2 * rows // stride, 2 * columns // stride)
        self.coarse_shape = (rows // stride, columns // stride)
        self.encoder = EncoderWeights.from_encoder(network.encoder, device=self.device)
        self.heat = pack_heat(network.head, dtype)
        self.boxes = pack_boxes(network.head, dtype)
        stages = [stage for stage in network.refinements if isinstance(stage, RefineStage)]
        packed = [pack_refine(stage, dtype=dtype) for stage in stages]
        self._refinements = [partial(self._refine, weights, turn=weights is packed[-1]) for weights in packed]
        self.pillar_workspace = PillarWorkspace.make(config.pillars, batch_size, device=self.device)
        self._peak_counters = torch.zeros((batch_size, 2), dtype=torch.int32, device=self.device)
        self._refine_workspace = (
            RefineWorkspace.make(batch_size * config.limits.proposals, packed[0], device=self.device)
            if packed
            else None
        )

    @abstractmethod
    def _grids(self, bits: Tensor) -> tuple[list[FixedGrid], FixedGrid | None]:
        """Active cells of each level, and of the neck where it is computed at some only."""

    @abstractmethod
    def _tables(self, located: Located) -> LevelTables | None:
        """What the layers look up."""

    def locate(self, scans: FixedScans) -> Located:
        """Points by cell, and the cells of every level."""
        points = locate_points(*scans, self.config.pillars, workspace=self.pillar_workspace, impl=self.impl)
        return Located(points, *self._grids(points.bits))

    def encode(self, located: Located) -> Levels:
        """Features of the pillars, and tables beside them."""
        with self._beside():
            tables = self._tables(located)
        rows = fixed_encode(located.points, located.grids[0], self.encoder, dtype=self.dtype, impl=self.impl)
        self._join()
        return Levels(located, tables, (rows,))

    def head(self, features: Map) -> Peaks:
        """Boxes at the peaks, and points in order beside them."""
        with self._beside():
            # Only the refinement needs points in order, and peaks leave most processors free.
            pillars, numbers = self._sort(features.levels)
        peaks = fixed_peaks(
            features.heat(),
            self.config.limits.peaks,
            minimum=self.least_scores,
            counters=self._peak_counters,
            impl=self.impl,
        )
        boxes = fixed_boxes(
            features.features,
            peaks.cells,
            peaks.labels,
            self.boxes,
            spatial_shape=self.fine_shape,
            impl=self.impl,
        )
        self._join()
        return Peaks(features.features, pillars, boxes, peaks.scores, peaks.labels, numbers)

    def _sort(self, levels: Levels) -> tuple[FixedPillars, Tensor]:
        grids = levels.located.grids
        pillars = sort_points(levels.located.points, grids[0], impl=self.impl)
        before = grids[0].words.view(self.batch_size, -1, 2)[:, 0, 1]
        near = levels.plan.lists if levels.plan is not None else []
        active = [grid.active for grid in (*grids, *near)]
        return pillars, torch.cat([pillars.invalid, before, *active])

    def propose(self, peaks: Peaks) -> Boxes:
        """Proposals that are no duplicates."""
        kept = self._distinct(peaks.boxes, peaks.scores, peaks.labels)
        return Boxes(peaks, kept)

    @property
    def refinements(self) -> Sequence[Callable[[Boxes], Boxes]]:
        """One step for each stage of the network; the last turns boxes to their headings."""
        return self._refinements

    def _refine(self, weights: PackedRefine, boxes: Boxes, *, turn: bool) -> Boxes:
        refined = fixed_refine(
            boxes.peaks.pillars,
            boxes.peaks.features,
            boxes.kept.boxes,
            boxes.kept.labels,
            weights,
            map_shape=self.fine_shape,
            pillar_size_m=self.config.pillars.pillar_size_m,
            turn=turn,
            workspace=self._refine_workspace,
            impl=self.impl,
        )
        kept = boxes.kept._replace(boxes=refined.boxes)
        return Boxes(boxes.peaks, kept, refined.fit_logits, refined.features)

    def suppress(self, boxes: Boxes) -> FrameBoxes:
        """What is left of refined boxes that overlap."""
        peaks = boxes.peaks
        return self._final(boxes.kept, boxes.fit_logits, boxes.features, peaks.labels, peaks.numbers)


class SparseSteps(FixedSteps):
    """Steps of a network with a sparse backbone, for batches of one size and fixed capacities.

    Args:
        network, batch_size, dtype, impl, config: see :class:`FixedSteps`.
        capacities: active cells of each level of the backbone that there is room for, all frames together.
        nearby: cells of each list of cells near active ones that there is room for (see
            :class:`~perception.stages.neck.NearNeck`): neck and heat map are computed there only; none: they
            are computed everywhere.

    Raises:
        ValueError: a backbone that is dense or does not dilate, or capacities for another number of levels
            or lists.
    """

    def __init__(
        self,
        network: Network,
        *,
        batch_size: int,
        capacities: tuple[int, ...],
        nearby: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float16,
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        settings = network.config.backbone
        if not isinstance(network.backbone, SparseBackbone) or not settings.dilating:
            raise ValueError("fixed capacities are for sparse backbones whose strided layers dilate")
        if len(capacities) != len(settings.channels):
            raise ValueError(
                f"{len(settings.channels)} levels need as many capacities, got {len(capacities)}"
            )
        super().__init__(network, batch_size=batch_size, dtype=dtype, impl=impl, config=config)
        self.nearby = nearby
        self._backbone = FixedLevels(
            network.backbone,
            self.config.pillars,
            batch_size=batch_size,
            capacities=capacities,
            dtype=dtype,
            impl=impl,
        )
        weights = NeckWeights.of(network, dtype)
        place: dict[str, Any] = {"shape": self.coarse_shape, "batch_size": batch_size, "impl": impl}
        self._near = NearNeck(weights, capacities=nearby, **place) if nearby else None
        self._whole = None if nearby else WholeNeck(weights, device=self.device, **place)

    def choose_tiles(self, active: Sequence[int]) -> None:
        """See :meth:`FixedSteps.choose_tiles`."""
        levels = len(self._backbone.capacities)
        self._backbone.choose_tiles(active[:levels])
        if self._near is not None:
            self._near.choose_tiles(active[levels:])

    def _grids(self, bits: Tensor) -> tuple[list[FixedGrid], FixedGrid | None]:
        # The neck's cells are one more level where it is computed at lists of them.
        grids = self._backbone.grids(bits, self.nearby[:1])
        return (grids, None) if self._near is None else (grids[:-1], grids[-1])

    def _tables(self, located: Located) -> LevelTables:
        return self._backbone.tables(located.grids, located.neck)

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[Levels], Levels]]]:
        """Stages of the backbone; the neck's lists are made during the first."""
        count = len(self._backbone.capacities)
        return [(f"backbone 1/{2**level}", partial(self._level, level)) for level in range(count)]

    def _level(self, level: int, levels: Levels) -> Levels:
        near, neck = (self._near, levels.located.neck) if level == 0 else (None, None)
        if near is not None and neck is not None:
            with self._beside():
                levels = replace(levels, plan=near.plan(neck))
        assert levels.tables is not None
        rows = self._backbone(level, levels.rows[-1], levels.located.grids, levels.tables)
        if near is not None:
            self._join()
        return replace(levels, rows=(*levels.rows, rows))

    def neck(self, levels: Levels) -> Map:
        """The map, near active cells or everywhere."""
        assert levels.tables is not None
        given = levels.rows[-1], levels.tables.strided[-1], levels.located.grids[-1]
        if self._whole is not None:
            features, heat = self._whole(*given)
            return Map(levels, features, lambda: heat)
        assert self._near is not None
        assert levels.plan is not None
        return Map(levels, self._near.map(*given, levels.plan), self._near.heat)
