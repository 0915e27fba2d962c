"""Boxes of a frame on the host, and what a user is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import Self

from perception.config import DetectorConfig, Limits
from perception.geometry import OpenGrid
from perception.scans.tensors import Cloud, raised_m
from perception.stages.report import ReportRules
from perception.stages.report.reference import mapped_scores, with_footprints
from perception.types import Detections, FloatArray, PointCloud

#: Which fields of a configuration set the limits of a frame.
_SETTINGS = ("head.top_k", "refine.proposals", "nms.max_boxes")


class FrameResult(NamedTuple):
    """Boxes of one frame, on the host, best first.

    Attributes:
        boxes: (M, 7) float32; scores: (M,) float32; labels: (M,) integers.
        invalid: points with NaN or infinite values.
        pillars: pillars of the frame that hold a point.
        overflow: pillars, cells of coarser levels and listed cells of its batch that a graph left out.
        left_out: pillars beyond ``pillars.max_pillars``, the farthest ones.
        far: points beyond the reach of a detector without a range.
        counts: peaks, proposals and boxes of the frame; out of a graph, of the first two whether the limit
            was reached, or 0.
        embeddings: (M, 128) float32 unit vectors; None of a network without the head.
    """

    boxes: FloatArray
    scores: FloatArray
    labels: npt.NDArray[np.integer]
    invalid: int
    pillars: int
    overflow: int = 0
    left_out: int = 0
    far: int = 0
    counts: Limits = Limits(0, 0, 0)
    embeddings: FloatArray | None = None

    @classmethod
    def of(cls, boxes: Tensor, scores: Tensor, labels: Tensor, invalid: int, pillars: int, *,
           left_out: int = 0, far: int = 0, embeddings: Tensor | None = None) -> Self:  # fmt: skip
        """One of tensors on the host."""
        vectors = None if embeddings is None else embeddings.numpy()
        return cls(
            boxes.numpy(), scores.numpy(), labels.numpy(), invalid, pillars,
            left_out=left_out, far=far, embeddings=vectors,
        )  # fmt: skip

    def with_rules(self, rules: ReportRules) -> FrameResult:
        """As reported: scores mapped and in their order, headings wrapped, footprints given.

        Graphs do the same on the device (:func:`~perception.stages.report.fixed_report`).
        """
        labels = torch.from_numpy(self.labels).long()
        scores = mapped_scores(torch.from_numpy(self.scores), labels, rules)
        scores, order = torch.sort(scores, descending=True, stable=True)
        boxes = with_footprints(torch.from_numpy(self.boxes)[order], labels[order], rules)
        return self._replace(
            boxes=boxes.numpy(),
            scores=scores.numpy(),
            labels=self.labels[order.numpy()],
            embeddings=None if self.embeddings is None else self.embeddings[order.numpy()],
        )

    def capacity_messages(self) -> list[str]:
        """What did not fit, in words."""
        messages = []
        if self.left_out:
            messages.append(
                f"{self.left_out} pillars left out, the farthest ones (raise pillars.max_pillars)"
            )
        if self.overflow:
            messages.append(
                f"{self.overflow} active cells left out: there was no room in the graph (overflow='grow'"
                " makes room)"
            )
        return messages


class Reporter:
    """What a user is told of the boxes of a frame.

    Of a few dozen boxes every call costs more than its work, so that everything is numpy, there is little of
    it, and what follows from the configuration is prepared once.

    Args:
        config: classes, and the scores from which they are reported.
    """

    def __init__(self, config: DetectorConfig) -> None:
        self.config = config
        classes, nms = config.head.classes, config.nms
        self._classes = np.array(classes, dtype=object)
        self._least = np.array([nms.report_thresholds.get(name, 0.0) for name in classes], np.float32)

    def __call__(self, result: FrameResult, cloud: Cloud, remarks: Sequence[str] = ()) -> Detections:
        """Detections of a scan.

        Args:
            result: of its frame, as reported.
            cloud: the scan; boxes are reported from its sensor's height.
            remarks: more warnings.
        """
        boxes, scores, labels, vectors = result.boxes, result.scores, result.labels, result.embeddings
        rows = (scores >= self._least[labels]).nonzero()[0]
        if len(rows) < len(scores):
            boxes, scores, labels = boxes.take(rows, 0), scores.take(rows), labels.take(rows)
            vectors = None if vectors is None else vectors.take(rows, 0)
        # Seen from the height of the training data; reported from the sensor's own.
        if raised := raised_m(cloud):
            boxes = boxes.copy()
            boxes[:, 2] -= np.float32(raised)
        scan = cloud if isinstance(cloud, PointCloud) else None
        return Detections.known(
            boxes=boxes,
            scores=scores,
            labels=self._classes[labels].tolist(),
            timestamp_ns=scan.timestamp_ns if scan is not None else None,
            source=scan.source if scan is not None else None,
            warnings=(
                *self._messages(result),
                *result.capacity_messages(),
                *remarks,
                *self._reached_limits(result.counts),
            ),
            embeddings=vectors,
            classes=self.config.head.classes,
        )

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

    def _reached_limits(self, counts: Limits) -> list[str]:
        limits = self.config.limits
        reached = [
            f"{limit} {name} ({setting})"
            for name, setting, limit, count in zip(limits._fields, _SETTINGS, limits, counts, strict=True)
            if count >= limit
        ]
        if not reached:
            return []
        return [
            f"The frame reached its limit of {' and '.join(reached)}: the weakest objects may be missing."
            " Raise it, for example by detector.with_limits(2)"
        ]
