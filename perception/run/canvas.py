"""Eager steps of detectors with a dense canvas of pillars, on any device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from perception.config import AnchorConfig, CentreConfig, Limits
from perception.geometry import BirdsEyeGrid
from perception.model.anchors import AnchorHead
from perception.model.canvas import CanvasBackbone, CanvasEncoder, canvas_section
from perception.model.centres import CentreGroupsHead
from perception.model.network import Network
from perception.nms import rotated_nms
from perception.run.program import Steps
from perception.run.results import FrameResult


class CanvasPillars(NamedTuple):
    """The first points of the pillars of a frame.

    Attributes:
        slots: (M, points, C); counted: (M, points) bool, True for slots with a point.
        cell: (M,) int64 row * columns + column.
        invalid: points with NaN or infinite values; left_out: pillars beyond the limit.
    """

    slots: Tensor
    counted: Tensor
    cell: Tensor
    invalid: int
    left_out: int


class CanvasLevels(NamedTuple):
    """Frames, and their canvas or map (B, C, H, W)."""

    frames: list[CanvasPillars]
    features: Tensor


class Candidates(NamedTuple):
    """Boxes of a frame above the score threshold.

    Attributes:
        boxes: (A, 7) float32, LiDAR frame.
        scores: (A,) float32.
        labels: (A,) int64.
        groups: (A,) int64; boxes of one group suppress each other.
        velocities: (A, 2) float32 m/s, LiDAR frame; None without ``head.velocity``.
        peaks: how many of the first ``head.top_k`` boxes, of any group, reach the score threshold.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    groups: Tensor
    velocities: Tensor | None = None
    peaks: int = 0


class CanvasPeaks(NamedTuple):
    """Frames, and the candidates of each."""

    frames: list[CanvasPillars]
    found: list[Candidates]


class CanvasSteps(
    Steps[
        Sequence[Tensor],
        list[CanvasPillars],
        CanvasLevels,
        CanvasLevels,
        CanvasPeaks,
        CanvasPeaks,
        list[FrameResult],
    ]
):
    """Steps for scans, (N_i, C) float32 each, on the device.

    Args:
        network: a :class:`~perception.model.canvas.CanvasNetwork`, folded.
    """

    threaded = True
    #: True if ``nms.max_boxes`` applies to each group.
    most_by_group = False

    def __init__(self, network: Network) -> None:
        self.config = network.config
        encoder, backbone = network.get_submodule("encoder"), network.get_submodule("backbone")
        assert isinstance(encoder, CanvasEncoder)
        assert isinstance(backbone, CanvasBackbone)
        self.encoder, self.backbone = encoder, backbone
        self.points = canvas_section(network.config).points
        self.grid: BirdsEyeGrid = network.config.pillars.closed_grid

    @abstractmethod
    def candidates(self, features: Tensor) -> Candidates:
        """Return the boxes of a frame's map (1, C, H, W) above the score threshold."""

    def locate(self, scans: Sequence[Tensor]) -> list[CanvasPillars]:
        """Collect the first points of each pillar and the first pillars, in the order of the scan."""
        return [self._located(scan) for scan in scans]

    def _located(self, scan: Tensor) -> CanvasPillars:
        finite = torch.isfinite(scan).all(dim=1)
        points = scan[finite & self.grid.contains(*scan[:, :3].unbind(1))]
        row, column = self.grid.cell_of(points[:, 0], points[:, 1])
        cells, order = torch.sort(row.long() * self.grid.shape[1] + column.long(), stable=True)
        active, counts = torch.unique_consecutive(cells, return_counts=True)
        first = torch.cumsum(counts, 0) - counts
        left_out = max(0, len(active) - self.config.pillars.max_pillars)
        if left_out:
            earliest = torch.argsort(order[first])[: self.config.pillars.max_pillars]
            active, counts, first = active[earliest], counts[earliest], first[earliest]
        number = torch.arange(self.points, device=scan.device)
        rows = order[torch.minimum(first[:, None] + number, (first + counts - 1)[:, None])]
        invalid = int((~finite).sum())
        return CanvasPillars(points[rows], number < counts[:, None], active, invalid, left_out)

    def encode(self, located: list[CanvasPillars]) -> CanvasLevels:
        """Place pillar features on a canvas."""
        rows, columns = self.grid.shape
        lowest, highest = self.config.pillars.heights_m
        canvas = []
        for frame in located:
            places = torch.stack([frame.cell % columns, frame.cell // columns], dim=1)
            ground = self.grid.metres_of(self.grid.positions_of_cells(places) + 0.5)
            centre = torch.nn.functional.pad(ground, (0, 1), value=(lowest + highest) / 2)
            features = self.encoder(frame.slots, frame.counted, centre)
            empty = features.new_zeros(rows * columns, self.config.pillars.channels)
            canvas.append(empty.index_copy(0, frame.cell, features).view(rows, columns, -1))
        return CanvasLevels(located, torch.stack(canvas).permute(0, 3, 1, 2))

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[CanvasLevels], CanvasLevels]]]:
        """The backbone as a whole."""
        return (("backbone", lambda levels: levels._replace(features=self.backbone(levels.features))),)

    def neck(self, levels: CanvasLevels) -> CanvasLevels:
        """Return the levels; the backbone includes the neck."""
        return levels

    def head(self, features: CanvasLevels) -> CanvasPeaks:
        """Find the candidates of each frame."""
        return CanvasPeaks(features.frames, [self.candidates(frame[None]) for frame in features.features])

    def propose(self, peaks: CanvasPeaks) -> CanvasPeaks:
        """Return the peaks; there is no second stage."""
        return peaks

    @property
    def refinements(self) -> Sequence[Callable[[CanvasPeaks], CanvasPeaks]]:
        """No refinement steps."""
        return ()

    def suppress(self, boxes: CanvasPeaks) -> list[FrameResult]:
        """Suppress overlapping boxes; a frame without points has no boxes."""
        return [self._result(frame, found) for frame, found in zip(*boxes, strict=True)]

    def _result(self, frame: CanvasPillars, found: Candidates) -> FrameResult:
        nms = self.config.nms
        if not len(frame.cell):
            velocities = None if found.velocities is None else found.velocities[:0]
            found = Candidates(
                found.boxes[:0], found.scores[:0], found.labels[:0], found.groups[:0], velocities
            )
        kept = rotated_nms(
            found.boxes,
            found.scores,
            iou_threshold=nms.iou,
            labels=found.groups,
            max_output=None if self.most_by_group else self.config.limits.boxes,
        )
        if self.most_by_group and len(kept):
            groups = found.groups[kept]
            earlier = torch.nn.functional.one_hot(groups).cumsum(0)
            kept = kept[earlier.gather(1, groups[:, None])[:, 0] <= self.config.limits.boxes]
        boxes, scores, labels = (part[kept].cpu() for part in found[:3])
        result = FrameResult.of(
            boxes,
            scores,
            labels,
            frame.invalid,
            len(frame.cell) + frame.left_out,
            left_out=frame.left_out,
            velocities=None if found.velocities is None else found.velocities[kept].cpu(),
        )
        fullest = torch.bincount(found.groups[kept]).max() if self.most_by_group and len(kept) else len(kept)
        return result._replace(counts=Limits(found.peaks, 0, int(fullest)))


class AnchorSteps(CanvasSteps):
    """Steps of an :class:`~perception.model.anchors.AnchorNetwork`.

    Args:
        network: folded.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        head, section = network.get_submodule("head"), network.config.backbone
        assert isinstance(head, AnchorHead)
        assert isinstance(section, AnchorConfig)
        self.anchor_head, self.per_class = head, section.per_class

    def candidates(self, features: Tensor) -> Candidates:
        """Return the best anchors of a map (1, C, H, W) that reach the score threshold."""
        found = self.anchor_head(features, self.config.head.top_k)
        threshold = self.config.nms.score_threshold
        if self.per_class:
            rows, labels = (found.scores > threshold).nonzero().unbind(1)
            peaks = len(rows.unique())
            return Candidates(found.boxes[rows], found.scores[rows, labels], labels, labels, peaks=peaks)
        scores, labels = found.scores.max(1)
        rows = (scores >= threshold).nonzero()[:, 0]
        groups = torch.zeros_like(rows)
        return Candidates(found.boxes[rows], scores[rows], labels[rows], groups, peaks=len(rows))


class CentreSteps(CanvasSteps):
    """Steps of a :class:`~perception.model.centres.CentreNetwork`.

    Args:
        network: folded.
    """

    most_by_group = True

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        head, section = network.get_submodule("head"), network.config.backbone
        assert isinstance(head, CentreGroupsHead)
        assert isinstance(section, CentreConfig)
        self.centre_head, self.limits_m = head, section.centres_m

    def candidates(self, features: Tensor) -> Candidates:
        """Return the peaks of each group of (1, C, H, W) above the score threshold and within the limits."""
        found, peaks = [], 0
        for row, group in enumerate(self.centre_head(features, self.config.head.top_k)):
            sure = group.scores > self.config.nms.score_threshold
            peaks = max(peaks, int(sure.sum()))
            # Sizes are exponentials and may overflow.
            good = sure & group.boxes.isfinite().all(1)
            if self.limits_m is not None:
                limits = group.boxes.new_tensor(self.limits_m)
                centre = group.boxes[:, :3]
                good &= ((centre >= limits[:3]) & (centre <= limits[3:])).all(1)
            groups = torch.full_like(group.labels, row)
            parts = (*group[:3], groups, *(() if group.velocities is None else (group.velocities,)))
            found.append([part[good] for part in parts])
        boxes, scores, labels, groups, *rest = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Candidates(boxes, scores, labels, groups, rest[0] if rest else None, peaks)
