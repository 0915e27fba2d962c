"""Boxes of a frame on the host, and what a user is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from perception.boxes import wrap_angle
from perception.config import DetectorConfig
from perception.geometry import OpenGrid
from perception.scans.tensors import Cloud, raised_m
from perception.types import Detections, FloatArray, PointCloud

#: Scores are kept so far from 0 and 1 before their logit is taken.
_LEAST_SHARE = 1e-6


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


class Reporter:
    """What a user is told of the boxes of a frame.

    Of a few dozen boxes every call costs more than its work, so that everything is numpy, and what follows
    from the configuration is prepared once.

    Args:
        config: classes, the scores from which they are reported, maps of scores, footprints.
    """

    def __init__(self, config: DetectorConfig) -> None:
        self.config = config
        classes, nms = config.head.classes, config.nms
        self._classes = np.array(classes, dtype=object)
        self._least = np.array([nms.report_thresholds.get(name, 0.0) for name in classes], np.float32)
        maps = [nms.score_maps.get(name, (1.0, 0.0)) for name in classes]
        self._scale, self._bias = np.array(maps, np.float64).T
        self._mapped = np.array([name in nms.score_maps for name in classes])
        self._sides = np.array([nms.footprints_m.get(name, (0.0, 0.0)) for name in classes], np.float32)

    def __call__(self, result: FrameResult, cloud: Cloud, remarks: Sequence[str] = ()) -> Detections:
        """Detections of a scan.

        Args:
            result: of its frame; NMS has left out what is below its own threshold.
            cloud: the scan; boxes are reported from its sensor's height.
            remarks: more warnings.
        """
        labels, scores = result.labels.numpy(), result.scores.numpy()
        order = np.arange(len(labels))
        if self.config.nms.score_maps:
            # The order within a class stays.
            scores = self._calibrated(scores, labels)
            order = np.argsort(-scores, kind="stable")
        rows = order[scores[order] >= self._least[labels[order]]]
        labels, scores = labels[rows], scores[rows].astype(np.float32, copy=False)
        boxes = result.boxes.numpy()[rows].astype(np.float32, copy=False)
        boxes[:, 6] = wrap_angle(boxes[:, 6])
        if self.config.nms.footprints_m:
            given = self._sides[labels]
            boxes[:, 3:5] = np.where(given > 0, given, boxes[:, 3:5])
        # Seen from the height of the training data; reported from the sensor's own.
        if raised := raised_m(cloud):
            boxes[:, 2] -= np.float32(raised)
        scan = cloud if isinstance(cloud, PointCloud) else None
        return Detections(
            boxes,
            scores,
            self._classes[labels].tolist(),
            timestamp_ns=scan.timestamp_ns if scan is not None else None,
            source=scan.source if scan is not None else None,
            warnings=(*self._messages(result), *result.capacity_messages(), *remarks),
            embeddings=None if result.embeddings is None else result.embeddings.numpy()[rows],
        )

    def _calibrated(self, scores: FloatArray, labels: npt.NDArray[np.integer]) -> FloatArray:
        """Scores by the maps of their classes."""
        share = np.minimum(np.maximum(scores.astype(np.float64), _LEAST_SHARE), 1 - _LEAST_SHARE)
        logit = self._scale[labels] * np.log(share / (1 - share)) + self._bias[labels]
        mapped = (1 / (1 + np.exp(-logit))).astype(np.float32)
        return np.where(self._mapped[labels], mapped, scores)

    def _messages(self, result: FrameResult) -> list[str]:
        messages = []
        if result.invalid:
            messages.append(f"{result.invalid} points with NaN or infinite values left out")
        grid = self.config.pillars.grid if result.far else None
        if isinstance(grid, OpenGrid):
            messages.append(
                f"{result.far} points left out: {grid.reach_m / 1e3:.1f} km or more away along x or y, where"
                " single precision is coarse (shift the scan so that the sensor is near the origin)"
            )
        return messages
