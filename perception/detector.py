"""Composition of the stages: points to detections."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.config import DetectorConfig
from perception.head import Proposals
from perception.network import Network
from perception.nms import rotated_nms
from perception.pillars import Pillars, make_pillars
from perception.types import Detections, FloatArray, PointCloud
from perception.weights import load_weights
from sparse_core.errors import CapacityWarning

Cloud = PointCloud | FloatArray | Tensor

#: Called with the name of a stage and its time in milliseconds.
StageTimer = Callable[[str, float], None]


class _Candidates(NamedTuple):
    """Boxes (R, 7), scores (R,) and class indices (R,) of one frame."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class _Found(NamedTuple):
    """Result of one frame, with the number of its points and of its pillars that were left out."""

    result: _Candidates
    invalid: int
    overflow: int


class Detector:
    """Finds objects in point clouds.

    >>> detector = Detector.from_pretrained("pointpillars-kitti")
    >>> detections = detector(points)          # points: (N, 4) float32 x, y, z, intensity
    >>> detections.boxes, detections.scores, detections.labels

    Args:
        network: trained network; it is folded for inference and must not be trained further.
        device: where to run.
    """

    def __init__(self, network: Network, *, device: str | torch.device = "cpu") -> None:
        self.config: DetectorConfig = network.config
        self.device = usable_device(device)
        self.network = network.to(self.device).fold()
        self.on_stage: StageTimer | None = None

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, device: str | torch.device = "cpu") -> Detector:
        """Load shipped weights by name, or a ``.safetensors`` file.

        Raises:
            CheckpointError: no such weights, a corrupt file, or weights of another configuration.
        """
        return cls(load_weights(name_or_path), device=device)

    def with_score_threshold(self, score: float) -> Detector:
        """A detector on the same network that reports boxes from ``score`` on."""
        changed = copy.copy(self)
        changed.config = replace(self.config, nms=replace(self.config.nms, score_threshold=score))
        return changed

    def __call__(self, cloud: Cloud) -> Detections:
        """Detect objects in one scan.

        Args:
            cloud: (N, 4) float32 x, y, z (metres, LiDAR frame), intensity in [0, 1]. Points that are NaN,
                infinite or out of range are left out; the former are reported in ``warnings``.

        Returns:
            Boxes with at least the configured score, best first; empty for an empty cloud.
        """
        return self.detect_batch([cloud])[0]

    def detect_batch(self, clouds: Sequence[Cloud]) -> list[Detections]:
        """Detect objects in several scans of any density in one pass; same results as one by one."""
        if len(clouds) == 0:
            return []
        tensors = [_as_tensor(cloud).to(self.device) for cloud in clouds]
        with torch.inference_mode(), warnings.catch_warnings():
            # Each frame tells of its own overflow below.
            warnings.simplefilter("ignore", CapacityWarning)
            found = self._detect(tensors)
        for frame in found:
            if frame.overflow:
                warnings.warn(_overflow_message(frame.overflow), CapacityWarning, stacklevel=2)
        return [self._describe(frame, cloud) for frame, cloud in zip(found, clouds, strict=True)]

    def _detect(self, clouds: list[Tensor]) -> list[_Found]:
        clock = _StageClock(self.on_stage, self.device)
        pillars = make_pillars(clouds, self.config.pillars)
        clock.lap("pillars")
        left_out = list(zip(pillars.invalid.tolist(), pillars.overflow.tolist(), strict=True))
        if len(pillars.table) == 0:
            return [_Found(_nothing(self.device), *counts) for counts in left_out]
        encoded = self.network.encoder(pillars)
        clock.lap("encoder")
        backbone_maps = self.network.backbone(encoded)
        clock.lap("backbone")
        features = self.network.neck(backbone_maps)
        clock.lap("neck")
        proposals = self.network.head.propose(features, self.network.head.heat_logits(features))
        clock.lap("head")
        candidates = self._candidates(pillars, proposals)
        clock.lap("proposal NMS")
        refined = self._refine(pillars, features, candidates)
        clock.lap("refine")
        final = [self._suppress(*candidate) for candidate in refined]
        clock.lap("NMS")
        return [_Found(result, *counts) for result, counts in zip(final, left_out, strict=True)]

    def _candidates(self, pillars: Pillars, proposals: Proposals) -> list[_Candidates]:
        """Distinct proposals of each frame; none for a frame without points, as when it comes alone."""
        occupied = torch.bincount(pillars.frames, minlength=pillars.batch_size).tolist()
        return [
            self._suppress_proposals(*(part[frame] for part in proposals)) if count else _nothing(self.device)
            for frame, count in enumerate(occupied)
        ]

    def _suppress_proposals(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> _Candidates:
        usable = (scores > self.config.nms.score_threshold * 0.25).nonzero()[:, 0]
        boxes, scores, labels = boxes[usable], scores[usable], labels[usable]
        kept = rotated_nms(
            boxes,
            scores,
            iou_threshold=self.config.nms.proposal_iou,
            labels=labels,
            max_output=self.config.refine.proposals,
        )
        return _Candidates(boxes[kept], scores[kept], labels[kept])

    def _refine(self, pillars: Pillars, features: Tensor, candidates: list[_Candidates]) -> list[_Candidates]:
        counts = [len(boxes) for boxes, _, _ in candidates]
        if len(self.network.refinements) == 0 or sum(counts) == 0:
            return candidates
        boxes, scores, labels = (torch.cat(parts) for parts in zip(*candidates, strict=True))
        frames = torch.repeat_interleave(torch.tensor(counts, device=boxes.device))
        boxes, output = self.network.refine(pillars, features, boxes, frames, labels)
        weight = self.config.head.iou_weight
        scores = scores ** (1 - weight) * torch.sigmoid(output.fit_logits) ** weight
        parts = zip(boxes.split(counts), scores.split(counts), labels.split(counts), strict=True)
        return [_Candidates(*part) for part in parts]

    def _suppress(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> _Candidates:
        settings = self.config.nms
        usable = (scores >= settings.score_threshold).nonzero()[:, 0]
        boxes, scores, labels = boxes[usable], scores[usable], labels[usable]
        kept = rotated_nms(
            boxes, scores, iou_threshold=settings.iou, labels=labels, max_output=settings.max_boxes
        )
        return _Candidates(boxes[kept], scores[kept], labels[kept])

    def _describe(self, found: _Found, cloud: Cloud) -> Detections:
        boxes, scores, labels = found.result
        values = boxes.cpu().numpy().astype(np.float32)
        values[:, 6] = wrap_angle(values[:, 6])
        messages = []
        if found.invalid:
            messages.append(f"{found.invalid} points with NaN or infinite values left out")
        if found.overflow:
            messages.append(_overflow_message(found.overflow))
        scan = cloud if isinstance(cloud, PointCloud) else None
        return Detections(
            values,
            scores.cpu().numpy().astype(np.float32),
            [self.config.head.classes[int(label)] for label in labels.cpu()],
            timestamp_ns=scan.timestamp_ns if scan is not None else None,
            source=scan.source if scan is not None else None,
            warnings=tuple(messages),
        )


def _nothing(device: torch.device) -> _Candidates:
    labels = torch.zeros(0, dtype=torch.int64, device=device)
    return _Candidates(torch.zeros((0, 7), device=device), torch.zeros(0, device=device), labels)


def _overflow_message(count: int) -> str:
    return f"{count} pillars left out, the farthest ones (raise pillars.max_pillars)"


class _StageClock:
    """Reports the time between laps; does nothing without a listener."""

    def __init__(self, listener: StageTimer | None, device: torch.device) -> None:
        self.listener = listener
        self.device = device
        self.last = self._now() if listener is not None else 0.0

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def lap(self, stage: str) -> None:
        if self.listener is not None:
            now = self._now()
            self.listener(stage, (now - self.last) * 1e3)
            self.last = now


def usable_device(device: str | torch.device) -> torch.device:
    """The device, checked.

    Raises:
        ValueError: it is a CUDA device and torch sees none.
    """
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' was asked for but torch sees no CUDA device; use device='cpu'")
    return chosen


def _as_tensor(cloud: Cloud) -> Tensor:
    if isinstance(cloud, PointCloud):
        # torch warns about arrays that it could not write to.
        return torch.from_numpy(np.require(cloud.points, requirements=["C", "W"]))
    if isinstance(cloud, np.ndarray):
        return _as_tensor(PointCloud(cloud))
    if isinstance(cloud, Tensor):
        if cloud.ndim != 2 or cloud.shape[1] != 4:
            raise ValueError(f"points must have shape (N, 4): x, y, z, intensity; got {tuple(cloud.shape)}")
        return cloud.detach().float()
    raise TypeError(f"points must be a PointCloud, a numpy array or a tensor, got {type(cloud).__name__}")
