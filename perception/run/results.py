"""Boxes of a frame on the host, and what a user is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.config import DetectorConfig
from perception.geometry import OpenGrid
from perception.scans.tensors import Cloud, raised_m
from perception.types import Detections, PointCloud


class FrameResult(NamedTuple):
    """Boxes of one frame, on the host.

    Attributes:
        boxes: (M, 7) float32; scores: (M,) float32; labels: (M,) integers.
        invalid: points with NaN or infinite values.
        pillars: pillars of the frame that hold a point.
        overflow: pillars, cells of coarser levels and listed cells of its batch that a graph left out.
        left_out: pillars beyond ``pillars.max_pillars``, the farthest ones.
        far: points beyond the reach of a detector without a range.
        embeddings: (M, 128) float32 unit vectors; None of a network without the head.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    invalid: int
    pillars: int
    overflow: int = 0
    left_out: int = 0
    far: int = 0
    embeddings: Tensor | None = None

    def capacity_messages(self) -> list[str]:
        """What did not fit, in words."""
        pillars = f"{self.left_out} pillars left out, the farthest ones (raise pillars.max_pillars)"
        cells = f"{self.overflow} active cells left out: there was no room in the graph (overflow='grow'"
        return [pillars] * (self.left_out > 0) + [f"{cells} makes room)"] * (self.overflow > 0)


def _calibrated(result: FrameResult, config: DetectorConfig) -> FrameResult:
    """Scores by the maps of their classes, best first; the order within a class stays."""
    maps = [config.nms.score_maps.get(name, (1.0, 0.0)) for name in config.head.classes]
    scale, bias = torch.tensor(maps, dtype=torch.float64)[result.labels.long()].unbind(1)
    mapped = torch.sigmoid(scale * torch.logit(result.scores.double(), eps=1e-6) + bias).float()
    has_map = torch.tensor([name in config.nms.score_maps for name in config.head.classes])
    scores = torch.where(has_map[result.labels.long()], mapped, result.scores)
    order = torch.argsort(scores, descending=True, stable=True)
    vectors = result.embeddings
    return result._replace(
        boxes=result.boxes[order],
        scores=scores[order],
        labels=result.labels[order],
        embeddings=None if vectors is None else vectors[order],
    )


def with_footprints(boxes: Tensor, labels: Tensor, config: DetectorConfig) -> Tensor:
    """Boxes (M, 7) with the lengths and widths of ``nms.footprints_m`` where their class (M,) has some."""
    classes, known = config.head.classes, config.nms.footprints_m
    sides = torch.tensor([known.get(name, (0.0, 0.0)) for name in classes], device=boxes.device)
    given = sides[labels.long()].to(boxes.dtype)
    return torch.cat([boxes[:, :3], torch.where(given > 0, given, boxes[:, 3:5]), boxes[:, 5:]], dim=1)


def described(
    result: FrameResult, cloud: Cloud, config: DetectorConfig, remarks: Sequence[str] = ()
) -> Detections:
    """Detections of a scan.

    Args:
        result: of its frame; NMS has left out what is below its own threshold.
        cloud: the scan; boxes are reported from its sensor's height.
        config: classes, and the scores from which they are reported.
        remarks: more warnings.
    """
    classes = config.head.classes
    if config.nms.score_maps:
        result = _calibrated(result, config)
    if config.nms.footprints_m:
        result = result._replace(boxes=with_footprints(result.boxes, result.labels, config))
    least = torch.tensor([config.nms.report_thresholds.get(name, 0.0) for name in classes])
    kept = result.scores >= least[result.labels.long()]
    boxes = result.boxes[kept].numpy().astype(np.float32)
    boxes[:, 6] = wrap_angle(boxes[:, 6])
    # Seen from the height of the training data; reported from the sensor's own.
    if raised := raised_m(cloud):
        boxes[:, 2] -= np.float32(raised)
    messages = [f"{result.invalid} points with NaN or infinite values left out"] if result.invalid else []
    grid = config.pillars.grid
    if result.far and isinstance(grid, OpenGrid):
        messages.append(
            f"{result.far} points left out: {grid.reach_m / 1e3:.1f} km or more away along x or y, where"
            " single precision is coarse (shift the scan so that the sensor is near the origin)"
        )
    scan = cloud if isinstance(cloud, PointCloud) else None
    return Detections(
        boxes,
        result.scores[kept].numpy().astype(np.float32),
        [classes[int(label)] for label in result.labels[kept]],
        timestamp_ns=scan.timestamp_ns if scan is not None else None,
        source=scan.source if scan is not None else None,
        warnings=(*messages, *result.capacity_messages(), *remarks),
        embeddings=None if result.embeddings is None else result.embeddings[kept].numpy(),
    )
