"""Results of a frame on the host, and their conversion to detections."""

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
from perception.stages.report.reference import mapped_scores, with_sizes
from perception.types import Detections, FloatArray, PointCloud

#: Configuration fields of the limits per frame.
_SETTINGS = ("head.top_k", "refine.proposals", "nms.max_boxes")
_PILLARS = "pillars.max_pillars"


class FrameResult(NamedTuple):
    """Boxes of one frame, on the host, best first.

    Attributes:
        boxes: (M, 7) float32; scores: (M,) float32; labels: (M,) integers.
        invalid: points with NaN or infinite values.
        pillars: occupied pillars.
        overflow: pillars and cells of the batch that a graph dropped.
        left_out: pillars beyond ``pillars.max_pillars``, the farthest ones.
        far: points beyond the reach of an unbounded range.
        counts: peaks, proposals and boxes. A graph gives the limit of peaks and proposals if it was reached,
            else 0.
        embeddings: (M, 128) float32 unit vectors; None without an embedding head.
        velocities: (M, 2) float32 m/s in the LiDAR frame; None without a velocity head.
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
    velocities: FloatArray | None = None

    @classmethod
    def of(cls, boxes: Tensor, scores: Tensor, labels: Tensor, invalid: int, pillars: int, *,
           left_out: int = 0, far: int = 0, embeddings: Tensor | None = None,
           velocities: Tensor | None = None) -> Self:  # fmt: skip
        """Make a result from tensors on the host."""
        vectors, speeds = (None if part is None else part.numpy() for part in (embeddings, velocities))
        return cls(
            boxes.numpy(), scores.numpy(), labels.numpy(), invalid, pillars,
            left_out=left_out, far=far, embeddings=vectors, velocities=speeds,
        )  # fmt: skip

    def with_rules(self, rules: ReportRules) -> FrameResult:
        """Map and sort scores, wrap headings and set sizes.

        Graphs do the same on the device (:func:`~perception.stages.report.fixed_report`).
        """
        labels = torch.from_numpy(self.labels).long()
        scores = mapped_scores(torch.from_numpy(self.scores), labels, rules)
        scores, order = torch.sort(scores, descending=True, stable=True)
        boxes = with_sizes(torch.from_numpy(self.boxes)[order], labels[order], rules)
        rows = order.numpy()
        return self._replace(
            boxes=boxes.numpy(),
            scores=scores.numpy(),
            labels=self.labels[rows],
            embeddings=None if self.embeddings is None else self.embeddings[rows],
            velocities=None if self.velocities is None else self.velocities[rows],
        )

    def capacity_messages(self) -> list[str]:
        """Return warnings about dropped pillars and cells."""
        messages = []
        if self.left_out:
            messages.append(f"the {self.left_out} farthest pillars left out; raise {_PILLARS}")
        if self.overflow:
            messages.append(
                f"{self.overflow} active cells left out: the CUDA graph is too small; use overflow='grow'"
            )
        return messages


class Reporter:
    """Converts results to detections.

    For a few dozen boxes the overhead of a call exceeds its work, so the code uses few numpy calls and
    prepares constants once.

    Args:
        config: configuration with the classes and reporting thresholds.
    """

    def __init__(self, config: DetectorConfig) -> None:
        self.config = config
        classes, nms = config.head.classes, config.nms
        self._classes = np.array(classes, dtype=object)
        self._least = np.array([nms.report_thresholds.get(name, 0.0) for name in classes], np.float32)

    def __call__(self, result: FrameResult, cloud: Cloud, remarks: Sequence[str] = ()) -> Detections:
        """Return the detections of a scan.

        Args:
            result: result after :meth:`FrameResult.with_rules`.
            cloud: the scan; box heights are relative to its sensor.
            remarks: further warnings.
        """
        boxes, scores, labels, vectors = result.boxes, result.scores, result.labels, result.embeddings
        velocities = result.velocities
        rows = (scores >= self._least[labels]).nonzero()[0]
        if len(rows) < len(scores):
            boxes, scores, labels = boxes.take(rows, 0), scores.take(rows), labels.take(rows)
            vectors = None if vectors is None else vectors.take(rows, 0)
            velocities = None if velocities is None else velocities.take(rows, 0)
        # Convert heights from the training data's sensor to this scan's sensor, and shrunk lengths to metres.
        shrink = self.config.pillars.shrink
        if (raised := raised_m(cloud, shrink)) or shrink != 1:
            boxes = boxes.copy()
            boxes[:, :6] *= np.float32(shrink)
            boxes[:, 2] -= np.float32(raised)
        if velocities is not None and shrink != 1:
            velocities = velocities * np.float32(shrink)
        scan = cloud if isinstance(cloud, PointCloud) else None
        reached = self._reached_limits(result.counts)
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
                *self._about_limits(reached),
            ),
            embeddings=vectors,
            velocities=velocities,
            classes=self.config.head.classes,
            limits_reached=(*((_PILLARS,) if result.left_out else ()), *(_SETTINGS[row] for row in reached)),
        )

    def _messages(self, result: FrameResult) -> list[str]:
        messages = []
        if result.invalid:
            messages.append(f"{result.invalid} points with NaN or infinite values left out")
        grid = self.config.pillars.grid if result.far else None
        if isinstance(grid, OpenGrid):
            messages.append(
                f"{result.far} points left out, because they are {grid.reach_m / 1e3:.1f} km or more away,"
                " where single precision is coarse; shift the scan so that the sensor is near the origin"
            )
        return messages

    def _reached_limits(self, counts: Limits) -> list[int]:
        """Return the positions of reached limits in :class:`~perception.config.Limits`."""
        limits = self.config.limits
        return [row for row, count in enumerate(counts) if count >= limits[row]]

    def _about_limits(self, reached: Sequence[int]) -> list[str]:
        if not reached:
            return []
        limits = self.config.limits
        named = " and ".join(f"{limits[row]} {limits._fields[row]} ({_SETTINGS[row]})" for row in reached)
        return [
            f"The frame reached its limit of {named}: the weakest objects may be missing."
            " Raise the limits with detector.with_limits(2), or perceive detect --limits 2"
        ]
