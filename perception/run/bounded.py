"""Batches on a bounded grid: one bit per cell, and whole maps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.network import Network
from perception.run.batch import BatchBoxes, BatchCells, BatchMap, FixedScans, FrameGrid, GpuNeck, PeakBoxes
from perception.stages.head import fixed_boxes, fixed_peaks
from perception.stages.neck import GpuBoundedNeck, GpuDenseNeck, NeckWeights
from perception.stages.pillars import (
    FixedPillars,
    PillarWorkspace,
    fixed_encode,
    locate_points,
    sort_points,
)
from perception.stages.refine import PackedRefine, RefinedBoxes, RefineWorkspace, fixed_refine
from sparse_core.conv.grid import GridLevel, pyramid


class BoundedGrid(FrameGrid):
    """Grid-dependent steps for a bounded range; see :class:`~perception.run.batch.FrameGrid`."""

    plans_early = False

    def __init__(
        self, network: Network, config: DetectorConfig, capacities: tuple[int, ...], **options: Any
    ) -> None:
        super().__init__(network, config, capacities, **options)
        rows, columns = config.pillars.grid_shape
        stride = config.backbone.stride
        self.coarse_shape = (rows // stride, columns // stride)
        self.fine_shape = (2 * rows // stride, 2 * columns // stride)
        self.pillar_workspace = PillarWorkspace.make(config.pillars, self.batch_size, device=self.device)
        self._peak_counters = torch.zeros((self.batch_size, 2), dtype=torch.int32, device=self.device)

    def locate(self, scans: FixedScans) -> BatchCells:
        """See :meth:`~perception.run.batch.FrameGrid.locate`."""
        pillars, capacities = self.config.pillars, self.capacities
        points = locate_points(*scans, pillars, workspace=self.pillar_workspace, impl=self.impl)
        levels = [GridLevel()] * (len(capacities) - 1)
        grids = pyramid(points.bits, pillars.grid_shape, self.batch_size, capacities, levels, impl=self.impl)
        return self.located(points, [*grids])

    def encode(self, located: BatchCells) -> Tensor:
        """Compute the features of the pillars."""
        return fixed_encode(located.points, located.grids[0], self.encoder, dtype=self.dtype, impl=self.impl)

    def neck(self, weights: NeckWeights, nearby: tuple[int, ...]) -> GpuNeck:
        """Make a neck near active cells, or a dense one."""
        place: dict[str, Any] = {"shape": self.coarse_shape, "batch_size": self.batch_size}
        if nearby:
            return GpuBoundedNeck(weights, capacities=nearby, impl=self.impl, **place)
        return GpuDenseNeck(weights, device=self.device, impl=self.impl, **place)

    def sort(self, located: BatchCells) -> FixedPillars:
        """Sort points by pillar."""
        return sort_points(located.points, located.grids[0], impl=self.impl)

    def pillars_before(self, located: BatchCells) -> Tensor:
        """Return the rank of each frame's first cell."""
        words: Tensor = located.grids[0].words
        return words.view(self.batch_size, -1, 2)[:, 0, 1]

    def far(self, located: BatchCells) -> list[Tensor]:
        """Return nothing: a bounded range has no reach."""
        return []

    def peaks(self, features: BatchMap, minimum: Tensor) -> PeakBoxes:
        """Read boxes at the peaks of whole maps."""
        peaks = fixed_peaks(
            features.heat(),
            self.config.limits.peaks,
            minimum=minimum,
            counters=self._peak_counters,
            impl=self.impl,
        )
        boxes = fixed_boxes(
            features.features,
            peaks.cells,
            peaks.labels,
            self.box_weights,
            spatial_shape=self.fine_shape,
            impl=self.impl,
        )
        return PeakBoxes(boxes, peaks.scores, peaks.labels)

    def refine(
        self, boxes: BatchBoxes, weights: PackedRefine, *, turn: bool, workspace: RefineWorkspace | None
    ) -> RefinedBoxes:
        """Refine boxes by their points and whole maps."""
        return fixed_refine(
            boxes.peaks.pillars,
            boxes.peaks.map.features,
            boxes.kept.boxes,
            boxes.kept.labels,
            weights,
            map_shape=self.fine_shape,
            pillar_size_m=self.config.pillars.pillar_size_m,
            turn=turn,
            workspace=workspace,
            impl=self.impl,
        )
