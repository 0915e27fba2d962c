"""What the steps of a batch of frames hand on where everything has a fixed size, and the grid they run on."""

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

#: A neck of the bounded grid, near active cells or at all, or of the unbounded one.
GpuNeck = GpuBoundedNeck | GpuDenseNeck | GpuUnboundedNeck


class FixedScans(NamedTuple):
    """A batch of frames.

    Attributes:
        points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity, on the device.
        lengths: (B,) int32 points of each frame.
    """

    points: Tensor
    lengths: Tensor


class FrameBoxes(NamedTuple):
    """What a frame, or a batch of them, gives; all on the device.

    Attributes:
        boxes: (B, M, 7) float32, LiDAR frame, best score first; zeros behind the last.
        scores: (B, M) float32; labels: (B, M) int32, -1 behind the last.
        counts: (B,) int32 boxes of each frame.
        numbers: (4 B + levels + lists,) int32: invalid points of each frame, pillars before each frame,
            active cells of each level and cells of each list near them, of all frames together; of a
            detector without a range then B points of each frame beyond its reach. At last the labels of the
            last peak and of the last proposal of each frame, 2 B, -1 where there was room for more.
        embeddings: (B, M, 128) float32 unit vectors, anything behind the last; (B, M, 0) without the head.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: Tensor
    numbers: Tensor
    embeddings: Tensor


class BatchCells(NamedTuple):
    """Points by cell.

    Attributes:
        points: as the grid locates them.
        grids: active cells of each level.
        coarse: active cells of the neck's map; None where the neck is computed everywhere.
    """

    points: Any
    grids: list[Any]
    coarse: Any = None


@dataclass(frozen=True)
class BatchLevels:
    """The backbone so far.

    Attributes:
        located: where it is computed.
        tables: which rows its layers read; None where nothing is looked up.
        rows: (capacity, C) features of the pillars, then of the last level so far.
        plan: where the neck is computed; None: not known yet, or everywhere.
    """

    located: BatchCells
    tables: LevelTables | None
    rows: Tensor
    plan: Any = None


class BatchMap(NamedTuple):
    """The map that head and refinement read.

    Attributes:
        levels: what it was made of.
        features: (B * H * W, C), or rows of the listed cells of an unbounded grid.
        heat: makes the heat map of these, float32, or has it.
    """

    levels: BatchLevels
    features: Tensor
    heat: Callable[[], Tensor]


class PeakBoxes(NamedTuple):
    """Boxes (B, K, 7) float32 at peaks, scores (B, K) float32 and labels (B, K) int32, -1 behind the last."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class BatchPeaks(NamedTuple):
    """Boxes at the peaks of the heat map.

    Attributes:
        map: what they come from.
        pillars: points in order, for the refinement.
        found: the boxes.
        numbers: see :class:`FrameBoxes`; without the last 2 B.
    """

    map: BatchMap
    pillars: Any
    found: PeakBoxes
    numbers: Tensor


class BatchBoxes(NamedTuple):
    """Distinct boxes, refined so far.

    Attributes:
        peaks: what they come from.
        kept: boxes, scores and labels.
        fit_logits: (B, K) float32 how well they fit; None before the refinement.
        features: (B, K, 256) of the refinement; None before it.
    """

    peaks: BatchPeaks
    kept: Suppressed
    fit_logits: Tensor | None = None
    features: Tensor | None = None


class FrameGrid(ABC):
    """The cells of a batch, and what is read at them.

    Args:
        network: folded, on the device to run on.
        config: the network's own with other thresholds.
        capacities: active cells of each level that there is room for, all frames together; those of the
            neck's map last, where it is computed near active cells only.
        coarse: whether it is.
        batch_size: frames.
        dtype: of the features.
        impl: of every step.
    """

    #: True if the neck is planned beside the encoder; else beside the first level of the backbone, since a
    #: bounded grid's tables take about as long as its encoder.
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
        """Points, and the cells of each level and of the neck's map."""
        return BatchCells(points, grids[:-1], grids[-1]) if self.coarse else BatchCells(points, grids)

    @abstractmethod
    def locate(self, scans: FixedScans) -> BatchCells:
        """Points by cell, and the cells of every level."""

    @abstractmethod
    def encode(self, located: BatchCells) -> Tensor:
        """Features of the pillars: (capacity, C)."""

    @abstractmethod
    def neck(self, weights: NeckWeights, nearby: tuple[int, ...]) -> GpuNeck:
        """The neck of this grid.

        Args:
            weights: of it.
            nearby: cells of each list of cells near active ones that there is room for; none: it is computed
                everywhere, which an unbounded grid cannot be.
        """

    @abstractmethod
    def sort(self, located: BatchCells) -> Any:
        """Points in order, for the refinement, with ``invalid``: (B,) int32 points that are not finite."""

    @abstractmethod
    def pillars_before(self, located: BatchCells) -> Tensor:
        """(B,) int32 pillars of the frames before each."""

    @abstractmethod
    def far(self, located: BatchCells) -> list[Tensor]:
        """(B,) int32 points beyond the reach of the grid, if it tells these from others."""

    @abstractmethod
    def peaks(self, features: BatchMap, minimum: Tensor) -> PeakBoxes:
        """Boxes at the peaks of the heat map whose scores are at least the minimum (classes,) of theirs."""

    @abstractmethod
    def refine(
        self, boxes: BatchBoxes, weights: PackedRefine, *, turn: bool, workspace: RefineWorkspace | None
    ) -> RefinedBoxes:
        """One step of refinement, see :func:`~perception.stages.refine.fixed_refine`."""
