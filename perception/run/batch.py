"""Records that fixed-size steps pass on, and the interface of their grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from perception.config import DetectorConfig
from perception.model.network import Network
from perception.stages.backbone.fixed import CellGrid, LevelTables
from perception.stages.head import pack_boxes
from perception.stages.neck import GpuBoundedNeck, GpuDenseNeck, GpuUnboundedNeck, NeckWeights
from perception.stages.nms import Suppressed
from perception.stages.pillars import EncoderWeights
from perception.stages.refine import PackedRefine, RefinedBoxes, RefineWorkspace
from sparse_core.kernels.op import Impl

#: Necks of the bounded grid (near active cells, or dense) and of the unbounded grid.
GpuNeck = GpuBoundedNeck | GpuDenseNeck | GpuUnboundedNeck


class FixedScans(NamedTuple):
    """A batch of frames.

    Attributes:
        points: (B, P, C) float32 x, y, z (metres, LiDAR frame), intensity, and for several sweeps the age, on
            the device.
        lengths: (B,) int32 points of each frame.
    """

    points: Tensor
    lengths: Tensor


class FrameBoxes(NamedTuple):
    """Boxes of a batch, on the device.

    Attributes:
        boxes: (B, M, 7) float32, LiDAR frame, best score first; zeros after the last box.
        scores: (B, M) float32; labels: (B, M) int32, -1 after the last box.
        counts: (B,) int32 boxes of each frame.
        numbers: int32 counters, concatenated: invalid points of each frame (B); pillars before each frame
            (B); active cells of each level and cells of each list, for the whole batch; with an unbounded
            range, points of each frame beyond its reach (B); label of the last peak of each frame (B) and of
            the last proposal (B), -1 if there was room for more.
        vectors: (B, M, E) float32 embedding (128) and velocity (2) of each box, as far as the network has
            these heads; undefined after the last box.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    numbers: Tensor
    vectors: Tensor


class BatchCells(NamedTuple):
    """Points and active cells.

    Attributes:
        points: points by cell; the type depends on the grid.
        grids: active cells of each level.
        coarse: active cells of the neck's map; None if the neck is dense.
    """

    points: Any
    grids: list[Any]
    coarse: Any = None


@dataclass(frozen=True)
class BatchLevels:
    """Features after a level of the backbone.

    Attributes:
        located: points and active cells.
        tables: neighbour tables of the layers; None for a dense backbone.
        rows: (capacity, C) features of the pillars, then of the last level.
        plan: cells that the neck computes; None: not planned yet, or dense.
    """

    located: BatchCells
    tables: LevelTables | None
    rows: Tensor
    plan: Any = None


class BatchMap(NamedTuple):
    """The map that head and refinement read.

    Attributes:
        levels: backbone features that the map was computed from.
        features: (B * H * W, C), or rows of the listed cells of an unbounded grid.
        heat: returns the float32 heat map.
    """

    levels: BatchLevels
    features: Tensor
    heat: Callable[[], Tensor]


class PeakBoxes(NamedTuple):
    """Boxes (B, K, 7) float32 at peaks, scores (B, K) float32, labels (B, K) int32; -1 after the last."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class BatchPeaks(NamedTuple):
    """Boxes at the peaks of the heat map.

    Attributes:
        map: map that the boxes were read from.
        pillars: points sorted by pillar, for the refinement.
        found: boxes.
        numbers: see :class:`FrameBoxes`; without the last 2 B.
    """

    map: BatchMap
    pillars: Any
    found: PeakBoxes
    numbers: Tensor


class BatchBoxes(NamedTuple):
    """Distinct boxes before, between or after refinement steps.

    Attributes:
        peaks: peaks that the boxes come from.
        kept: boxes, scores and labels.
        fit_logits: (B, K) float32 logits of the predicted IoU; None before the refinement.
        features: (B, K, 256) features of the refinement; None before it.
        cropped: (B, K, 7) boxes that the last refinement read; None before it.
    """

    peaks: BatchPeaks
    kept: Suppressed
    fit_logits: Tensor | None = None
    features: Tensor | None = None
    cropped: Tensor | None = None


class FrameGrid(ABC):
    """Grid-dependent steps of a batch: bounded (bit grid) or unbounded (hash tables).

    Args:
        network: folded network, on the device to run on.
        config: configuration of the network, possibly with other thresholds.
        capacities: capacity for active cells of each level, for the whole batch; with ``coarse`` also of the
            neck's map (last).
        coarse: the neck is computed near active cells only.
    """

    #: True if the neck is planned in parallel with the encoder, False if with the first level of the
    #: backbone. The tables of a bounded grid take about as long as its encoder.
    plans_early: bool

    def __init__(
        self,
        network: Network,
        config: DetectorConfig,
        capacities: tuple[int, ...],
        *,
        coarse: bool,
        batch_size: int,
        dtype: torch.dtype,
        impl: Impl,
    ) -> None:
        self.config, self.capacities, self.coarse = config, capacities, coarse
        self.batch_size, self.dtype, self.impl = batch_size, dtype, impl
        self.device = next(network.parameters()).device
        self.encoder = EncoderWeights.from_encoder(network.encoder, device=self.device)
        self.box_weights = pack_boxes(network.head, dtype)

    def located(self, points: Any, grids: list[CellGrid]) -> BatchCells:
        """Combine points with the cells of each level and of the neck's map."""
        return BatchCells(points, grids[:-1], grids[-1]) if self.coarse else BatchCells(points, grids)

    @abstractmethod
    def locate(self, scans: FixedScans) -> BatchCells:
        """Assign points to cells, and find the active cells of every level."""

    @abstractmethod
    def encode(self, located: BatchCells) -> Tensor:
        """Compute the features of the pillars: (capacity, C)."""

    @abstractmethod
    def neck(self, weights: NeckWeights, nearby: tuple[int, ...]) -> GpuNeck:
        """Make the neck of this grid.

        Args:
            nearby: capacity of each list of cells near active ones; empty: a dense neck (bounded grids only).
        """

    @abstractmethod
    def sort(self, located: BatchCells) -> Any:
        """Sort points by pillar for the refinement; ``invalid`` counts points that are not finite: (B,)."""

    @abstractmethod
    def pillars_before(self, located: BatchCells) -> Tensor:
        """Return the number of pillars before each frame: (B,) int32."""

    @abstractmethod
    def far(self, located: BatchCells) -> list[Tensor]:
        """Return (B,) int32 points beyond the reach of an unbounded grid; empty for a bounded one."""

    @abstractmethod
    def peaks(self, features: BatchMap, minimum: Tensor) -> PeakBoxes:
        """Read boxes at peaks that reach the minimum score (classes,) of their class."""

    @abstractmethod
    def refine(
        self, boxes: BatchBoxes, weights: PackedRefine, *, turn: bool, workspace: RefineWorkspace | None
    ) -> RefinedBoxes:
        """Run one refinement step, see :func:`~perception.stages.refine.fixed_refine`."""
