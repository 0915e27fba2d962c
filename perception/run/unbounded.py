"""Batches on an unbounded grid: cells are rows of hash tables with 64-bit keys.

The cost of a frame depends on the capacity for active cells, not on their positions. Convolutions and
refinement use the kernels of the bounded grid. Plain torch without read-backs finds cells, peaks and points.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.geometry import OpenGrid
from perception.model.network import Network
from perception.run.batch import BatchBoxes, BatchCells, BatchMap, FixedScans, FrameGrid, PeakBoxes
from perception.stages.head.unbounded import listed_boxes, listed_peaks
from perception.stages.neck import GpuUnboundedNeck, NeckWeights
from perception.stages.neck.gpu_unbounded import UnboundedPlan, finer_coordinates
from perception.stages.pillars.unbounded import HashedPillars, encode_hashed, hash_pillars
from perception.stages.refine import PackedRefine, RefinedBoxes, RefineWorkspace
from perception.stages.refine.unbounded import refine_hashed
from sparse_core.conv.coordinates.common import key_strides
from sparse_core.conv.grid import GridLevel, hash_pyramid


class UnboundedGrid(FrameGrid):
    """Grid-dependent steps for an unbounded range; see :class:`~perception.run.batch.FrameGrid`."""

    # Hashed lists take longer than the first level of the backbone.
    plans_early = True

    def __init__(
        self, network: Network, config: DetectorConfig, capacities: tuple[int, ...], **options: Any
    ) -> None:
        super().__init__(network, config, capacities, **options)
        grid = config.pillars.grid
        assert isinstance(grid, OpenGrid)
        self.grid = grid

    def locate(self, scans: FixedScans) -> BatchCells:
        """See :meth:`~perception.run.batch.FrameGrid.locate`."""
        pillars = hash_pillars(*scans, self.grid, self.capacities[0], impl=self.impl)
        further = self.capacities[1:]
        grids = hash_pyramid(pillars.grid, further, [GridLevel()] * len(further), impl=self.impl)
        return self.located(pillars, [*grids])

    def encode(self, located: BatchCells) -> Tensor:
        """Compute the features of the pillars."""
        return encode_hashed(located.points, self.encoder, dtype=self.dtype)

    def neck(self, weights: NeckWeights, nearby: tuple[int, ...]) -> GpuUnboundedNeck:
        """Make a neck near active cells."""
        return GpuUnboundedNeck(weights, capacities=nearby, impl=self.impl)

    def sort(self, located: BatchCells) -> HashedPillars:
        """Return the points, which are sorted already."""
        pillars: HashedPillars = located.points
        return pillars

    def pillars_before(self, located: BatchCells) -> Tensor:
        """Return the position of each frame's first key."""
        first = torch.arange(self.batch_size, device=self.device) * key_strides(self.grid.key_shape)[0]
        return torch.searchsorted(located.grids[0].rising_keys(), first).int()

    def far(self, located: BatchCells) -> list[Tensor]:
        """Return the number of points beyond the reach of the keys."""
        return [located.points.far]

    def peaks(self, features: BatchMap, minimum: Tensor) -> PeakBoxes:
        """Read boxes at the peaks among the listed cells."""
        plan: UnboundedPlan = features.levels.plan
        cells = finer_coordinates(plan.lists[-1])
        peaks = listed_peaks(
            features.heat(),
            plan.around,
            cells[:, 0],
            self.config.limits.peaks,
            self.batch_size,
            minimum=minimum,
        )
        boxes = listed_boxes(features.features, plan.around, cells, peaks, self.box_weights)
        return PeakBoxes(boxes, peaks.scores, peaks.labels)

    def refine(
        self, boxes: BatchBoxes, weights: PackedRefine, *, turn: bool, workspace: RefineWorkspace | None
    ) -> RefinedBoxes:
        """Refine boxes by their points and the listed cells."""
        assert workspace is not None
        peaks = boxes.peaks
        return refine_hashed(
            peaks.pillars,
            peaks.map.features,
            peaks.map.levels.plan.lists[-1],
            boxes.kept.boxes,
            boxes.kept.labels,
            weights,
            grid=self.grid,
            turn=turn,
            workspace=workspace,
            impl=self.impl,
        )
