"""Steps with buffers of fixed size and counts on the device, so that a frame can be one CUDA graph.

:class:`~perception.run.batch.FrameGrid` holds the steps that depend on the grid. Reference implementations
run the same steps without a GPU.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.backbone import DenseBackbone, SparseBackbone
from perception.model.network import Network
from perception.model.refine import RefineStage
from perception.run.batch import (
    BatchBoxes,
    BatchCells,
    BatchLevels,
    BatchMap,
    BatchPeaks,
    FixedScans,
    FrameBoxes,
    FrameGrid,
)
from perception.run.bounded import BoundedGrid
from perception.run.program import StageRunner, Steps, run_frame, run_step
from perception.run.unbounded import UnboundedGrid
from perception.stages.backbone.dense import canvas_maps
from perception.stages.backbone.fixed import FixedLevels, LevelTables
from perception.stages.head import fixed_heat, pack_heat
from perception.stages.neck import GpuDenseNeck, NeckWeights
from perception.stages.nms import fixed_suppress
from perception.stages.refine import PackedRefine, RefineWorkspace, pack_refine
from sparse_core.kernels.op import Impl


class FixedSteps(Steps[FixedScans, BatchCells, BatchLevels, BatchMap, BatchPeaks, BatchBoxes, FrameBoxes]):
    """Steps that a CUDA graph can hold, for one batch size and fixed capacities.

    Args:
        network: folded network, on the device to run on.
        capacities: capacity for active cells of each level, for the whole batch.
        coarse: capacity for active cells of the neck's map; None: a dense neck.
        dtype: dtype of the features: float16, bfloat16 or float32.
        impl: implementation of every step: ``"reference"``, ``"triton"`` or ``"auto"``.
        config: configuration with other thresholds; None: the network's.
    """

    #: True if there are capacities for each level of the backbone, False if only for pillars.
    sparse = True

    def __init__(
        self,
        network: Network,
        *,
        capacities: tuple[int, ...],
        batch_size: int,
        coarse: int | None = None,
        dtype: torch.dtype = torch.float16,
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        self.config = config or network.config
        self.batch_size, self.dtype, self.impl = batch_size, dtype, impl
        self.device = next(network.parameters()).device
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        grid = UnboundedGrid if self.config.pillars.open else BoundedGrid
        self.grid: FrameGrid = grid(
            network,
            self.config,
            capacities if coarse is None else (*capacities, coarse),
            coarse=coarse is not None,
            batch_size=batch_size,
            dtype=dtype,
            impl=impl,
        )
        stages = [stage for stage in network.refinements if isinstance(stage, RefineStage)]
        packed = [pack_refine(stage, dtype=dtype) for stage in stages]
        self._refinements = [partial(self._refine, weights, turn=weights is packed[-1]) for weights in packed]
        self._refine_workspace: RefineWorkspace | None = None
        if packed:
            rows = batch_size * self.config.limits.proposals
            self._refine_workspace = RefineWorkspace.make(rows, packed[0], device=self.device)
        self.embedding = None if network.embedding is None else copy.deepcopy(network.embedding).to(dtype)
        self.velocity = None if network.velocity is None else copy.deepcopy(network.velocity).to(dtype)
        #: By class. Kernels keep scores of at least this, so it is the next float above the threshold.
        least = torch.tensor(self.config.proposal_scores, dtype=torch.float32)
        self.least_scores = torch.nextafter(least, torch.full_like(least, math.inf)).to(self.device)

    def choose_tiles(self, active: Sequence[int]) -> None:
        """Choose kernel tiles for batches of this size; they change speed, not results.

        Args:
            active: cells of each level and list, as in ``FrameBoxes.numbers``.
        """

    def __call__(self, scans: FixedScans, on_stage: StageRunner = run_step) -> FrameBoxes:
        """Detect objects in a batch of frames."""
        return run_frame(self, scans, on_stage)

    @property
    def capturable(self) -> bool:
        """True if a CUDA graph can hold these steps; reference implementations read sizes back."""
        return self.device.type == "cuda" and self.impl != "reference"

    @abstractmethod
    def tables(self, located: BatchCells) -> LevelTables | None:
        """Make the neighbour tables of the backbone."""

    def plan(self, located: BatchCells) -> Any:
        """Plan the cells of the neck; None for a dense neck."""
        return None

    def locate(self, scans: FixedScans) -> BatchCells:
        """Assign points to cells, and find the active cells of every level."""
        return self.grid.locate(scans)

    def encode(self, located: BatchCells) -> BatchLevels:
        """Compute pillar features, and in parallel the tables."""
        with self._on_side_stream():
            tables = self.tables(located)
            plan = self.plan(located) if self.grid.plans_early else None
        rows = self.grid.encode(located)
        self._join_side_stream()
        return BatchLevels(located, tables, rows, plan)

    def head(self, features: BatchMap) -> BatchPeaks:
        """Read boxes at the peaks, and in parallel sort points by pillar."""
        located, plan = features.levels.located, features.levels.plan
        with self._on_side_stream():
            # Only the refinement needs sorted points, and the peak search leaves most processors free.
            pillars = self.grid.sort(located)
            active = [grid.active for grid in (*located.grids, *(plan.lists if plan is not None else ()))]
            before, far = self.grid.pillars_before(located), self.grid.far(located)
            numbers = torch.cat([pillars.invalid, before, *active, *far])
        found = self.grid.peaks(features, self.least_scores)
        self._join_side_stream()
        return BatchPeaks(features, pillars, found, numbers)

    def propose(self, peaks: BatchPeaks) -> BatchBoxes:
        """Remove duplicate proposals."""
        kept = fixed_suppress(
            *peaks.found,
            iou_threshold=self.config.nms.proposal_iou,
            score_threshold=0.0,
            max_output=self.config.limits.proposals,
            impl=self.impl,
        )
        return BatchBoxes(peaks, kept)

    @property
    def refinements(self) -> Sequence[Callable[[BatchBoxes], BatchBoxes]]:
        """One step per stage of the network; the last also resolves the heading."""
        return self._refinements

    def _refine(self, weights: PackedRefine, boxes: BatchBoxes, *, turn: bool) -> BatchBoxes:
        refined = self.grid.refine(boxes, weights, turn=turn, workspace=self._refine_workspace)
        kept = boxes.kept._replace(boxes=refined.boxes)
        return BatchBoxes(boxes.peaks, kept, refined.fit_logits, refined.features, boxes.kept.boxes)

    def suppress(self, boxes: BatchBoxes) -> FrameBoxes:
        """Suppress overlapping boxes, and in parallel compute embeddings and velocities."""
        kept, settings = boxes.kept, self.config.nms
        found: list[Tensor] = []
        with self._on_side_stream():
            peaks = boxes.peaks
            numbers = torch.cat([peaks.numbers, peaks.found.labels[:, -1], kept.labels[:, -1]])
            if self.embedding is not None and boxes.features is not None:
                found.append(self.embedding(boxes.features))
            if self.velocity is not None and boxes.features is not None:
                assert boxes.cropped is not None
                found.append(self.velocity(boxes.features, boxes.cropped))
        final = fixed_suppress(
            kept.boxes,
            kept.scores,
            kept.labels,
            iou_threshold=settings.iou,
            score_threshold=settings.score_threshold,
            max_output=self.config.limits.boxes,
            fit_logits=boxes.fit_logits,
            fit_weight=self.config.head.iou_weight,
            impl=self.impl,
        )
        chosen = final.scores.new_empty((*final.scores.shape, 0))
        self._join_side_stream()
        if found:
            vectors = found[0] if len(found) == 1 else torch.cat(found, dim=2)
            rows = final.indices.clamp_min(0).long()[..., None].expand(-1, -1, vectors.shape[2])
            chosen = vectors.gather(1, rows)
        return FrameBoxes(*final[:4], numbers, chosen)

    def _on_side_stream(self) -> AbstractContextManager[Any]:
        """Run on a second stream after the work queued so far, until :meth:`_join_side_stream`."""
        if self._side is None:
            return nullcontext()
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._side)

    def _join_side_stream(self) -> None:
        """Let the current stream wait for the second one."""
        if self._side is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._side)


class SparseSteps(FixedSteps):
    """Steps of a network with a sparse backbone.

    Args:
        network, options: see :class:`FixedSteps`.
        capacities: capacity for active cells of each level of the backbone, for the whole batch.
        nearby: capacity of each list of cells near active ones, to which neck and heat map are restricted
            (:class:`~perception.stages.neck.GpuBoundedNeck`); empty: dense neck, for bounded grids only.
    """

    def __init__(
        self, network: Network, *, capacities: tuple[int, ...], nearby: tuple[int, ...] = (), **options: Any
    ) -> None:
        settings = network.config.backbone
        if not isinstance(network.backbone, SparseBackbone) or not settings.dilating:
            raise ValueError("fixed capacities need a sparse backbone with dilating strided layers")
        if len(capacities) != len(settings.channels):
            raise ValueError(f"capacities must have {len(settings.channels)} entries, got {len(capacities)}")
        coarse = nearby[0] if nearby else None
        super().__init__(network, capacities=capacities, coarse=coarse, **options)
        self._backbone = FixedLevels(
            network.backbone, capacities=capacities, dtype=self.dtype, impl=self.impl
        )
        self._neck = self.grid.neck(NeckWeights.of(network, self.dtype), nearby)

    def choose_tiles(self, active: Sequence[int]) -> None:
        """See :meth:`FixedSteps.choose_tiles`."""
        levels = len(self._backbone.capacities)
        self._backbone.choose_tiles(active[:levels])
        if not isinstance(self._neck, GpuDenseNeck):
            self._neck.choose_tiles(active[levels : levels + len(self._neck.capacities)])

    def tables(self, located: BatchCells) -> LevelTables:
        """Make the neighbour tables of the backbone and of the neck's first layer."""
        return self._backbone.tables(located.grids, located.coarse)

    def plan(self, located: BatchCells) -> Any:
        """Plan the cells of the neck; None for a dense neck."""
        if isinstance(self._neck, GpuDenseNeck):
            return None
        return self._neck.plan(located.coarse, located.grids[-1])

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[BatchLevels], BatchLevels]]]:
        """Stages of the backbone; the neck is planned during the first one at the latest."""
        count = len(self._backbone.capacities)
        return [(f"backbone 1/{2**level}", partial(self._level, level)) for level in range(count)]

    def _level(self, level: int, levels: BatchLevels) -> BatchLevels:
        located, planning = levels.located, level == 0 and not self.grid.plans_early
        if planning:
            with self._on_side_stream():
                levels = replace(levels, plan=self.plan(located))
        assert levels.tables is not None
        rows = self._backbone(level, levels.rows, located.grids, levels.tables)
        if planning:
            self._join_side_stream()
        return replace(levels, rows=rows)

    def neck(self, levels: BatchLevels) -> BatchMap:
        """Compute the map near active cells, or everywhere."""
        assert levels.tables is not None
        given = levels.rows, levels.tables.strided[-1], levels.located.grids[-1]
        if isinstance(self._neck, GpuDenseNeck):
            features, heat = self._neck(*given)
            return BatchMap(levels, features, lambda: heat)
        return BatchMap(levels, self._neck.map(*given, levels.plan), self._neck.heat)


class DenseSteps(FixedSteps):
    """Steps of a network with a dense backbone.

    Args:
        capacities: capacity for pillars of the whole batch.
        options: see :class:`~perception.run.fixed.FixedSteps`.
    """

    sparse = False

    def __init__(self, network: Network, *, capacities: tuple[int], **options: Any) -> None:
        super().__init__(network, capacities=capacities, **options)
        assert isinstance(network.backbone, DenseBackbone)
        self._heat = pack_heat(network.head, self.dtype)
        self._shape = self.config.pillars.grid_shape
        self._maps = canvas_maps(
            network.backbone, network.neck, self._shape, batch_size=self.batch_size, dtype=self.dtype
        )

    def tables(self, located: BatchCells) -> None:
        """Return None: a dense backbone needs no tables."""

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[BatchLevels], BatchLevels]]]:
        """No separate levels: backbone and neck run as one step."""
        return ()

    def neck(self, levels: BatchLevels) -> BatchMap:
        """Run backbone and neck on the full grid."""
        features = self._maps(levels.rows, levels.located.grids[0].cells)
        rows, columns = (2 * side // self.config.backbone.stride for side in self._shape)
        heat = fixed_heat(features, self._heat, spatial_shape=(rows, columns), impl=self.impl)
        return BatchMap(levels, features, lambda: heat)
