"""Composition of the stages: points to detections."""

from __future__ import annotations

import copy
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from perception.boxes import wrap_angle
from perception.config import DetectorConfig
from perception.model.head import Proposals
from perception.model.network import Network, NetworkMaps
from perception.model.pillars import Pillars, make_pillars
from perception.model.weights import load_weights
from perception.nms import rotated_nms
from perception.run.planned import PlannedMaps
from perception.scans.tensors import Cloud, as_tensor, raised_m
from perception.scans.watch import ScanWatch
from perception.types import Detections, PointCloud
from sparse_core.conv import SparseTensor
from sparse_core.errors import CapacityWarning
from sparse_core.libraries import module_available

if TYPE_CHECKING:
    from perception.run.graph import FrameResult, FrameRunner, Overflow

Precision = Literal["float16", "bfloat16", "float32"]
#: Types of the features in CUDA graphs.
PRECISIONS: dict[Precision, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}

#: What a detector takes: a cloud, or the path of a file of one.
Scan = Cloud | str | Path

#: Frames of a graph of several, and points of a frame beyond which the memory is better spent elsewhere.
_BATCH, _MOST_POINTS_IN_A_GRAPH = 8, 1 << 21

#: Called with the name of a stage and its time in milliseconds.
StageTimer = Callable[[str, float], None]


class _Candidates(NamedTuple):
    """Boxes (R, 7), scores (R,) and class indices (R,) of one frame."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor


class _Found(NamedTuple):
    """Result of one frame, and the points, pillars and (of its batch) cells that were left out."""

    result: _Candidates
    invalid: int
    overflow: int
    cells: int = 0


class Detector:
    """Finds objects in point clouds.

    >>> detector = Detector.from_pretrained("pointpillars-kitti")
    >>> detections = detector(points)          # points: (N, 4) float32 x, y, z, intensity
    >>> detections.boxes, detections.scores, detections.labels

    On a GPU a frame of a sparse network is one CUDA graph, captured at the first frame (see
    :meth:`warmup`); its kernels are tuned on first use and the choices kept for later processes.

    Args:
        network: trained network; it is folded for inference and must not be trained further.
        device: where to run.
        fast: whole frames as CUDA graphs; None: where it can be (a sparse network whose implementation is
            ``"auto"``, on CUDA, with Triton).
        precision: of the features in these graphs: ``"float16"``, ``"bfloat16"`` or ``"float32"``. What runs
            outside of graphs is float32, or whatever autocast says.
        overflow: what such a graph does with a frame of more active cells than it has room for: ``"grow"``
            captures a larger one and loses nothing, ``"warn"`` leaves cells out and tells how many.

    Raises:
        ValueError: ``fast=True`` where it cannot be, an unknown precision or overflow, no such device.
    """

    def __init__(
        self,
        network: Network,
        *,
        device: str | torch.device = "cpu",
        fast: bool | None = None,
        precision: Precision = "float16",
        overflow: Overflow = "grow",
    ) -> None:
        self.config: DetectorConfig = network.config
        self.device = usable_device(device)
        self.network = network.to(self.device).fold()
        self.on_stage: StageTimer | None = None
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
        self.precision: Precision = precision
        self.overflow: Overflow = overflow
        reason = _why_not_fast(self.config, self.device)
        if fast and reason:
            raise ValueError(f"fast=True cannot be: {reason}")
        self._planned = PlannedMaps(network) if PlannedMaps.suits(network) else None
        self._runner = self._make_runner() if fast or (fast is None and not reason) else None
        self.watch = ScanWatch(self.config.pillars, every_frame=self._runner is None)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        device: str | torch.device = "cpu",
        *,
        fast: bool | None = None,
        precision: Precision = "float16",
        overflow: Overflow = "grow",
    ) -> Detector:
        """Load shipped weights by name, or a ``.safetensors`` file.

        Args:
            name_or_path: of the weights.
            device, fast, precision, overflow: as for the class.

        Raises:
            CheckpointError: no such weights, a corrupt file, or weights of another configuration.
        """
        network = load_weights(name_or_path)
        return cls(network, device=device, fast=fast, precision=precision, overflow=overflow)

    @property
    def fast(self) -> bool:
        """Whether frames run as CUDA graphs."""
        return self._runner is not None

    def _reported(self, result: _Candidates) -> _Candidates:
        """On the host, what is reported of a class; NMS has left out what is below its own threshold."""
        boxes, scores, labels = (part.cpu() for part in result)
        chosen = self.config.nms.report_thresholds
        least = torch.tensor([chosen.get(name, 0.0) for name in self.config.head.classes])
        kept = scores >= least[labels]
        return _Candidates(boxes[kept], scores[kept], labels[kept])

    def _make_runner(self) -> FrameRunner:
        from perception.run.graph import FrameRunner

        return FrameRunner(self.network, dtype=PRECISIONS[self.precision], overflow=self.overflow)

    def with_score_threshold(self, score: float | Mapping[str, float]) -> Detector:
        """A detector on the same network that reports boxes from ``score`` on.

        Args:
            score: one for all classes; or by class name: other classes are then reported from
                ``nms.score_threshold`` on, below which nothing is known.

        Raises:
            ConfigError: a score out of [0, 1], or of an unknown class.
        """
        nms = self.config.nms
        if isinstance(score, Mapping):
            nms = replace(nms, report_thresholds=dict(score))
        else:
            nms = replace(nms, score_threshold=score, report_thresholds={})
        changed = copy.copy(self)
        changed.watch = ScanWatch(self.config.pillars, every_frame=self._runner is None)
        changed.config = replace(self.config, nms=nms)
        if self._runner is not None and nms.score_threshold != self.config.nms.score_threshold:
            changed._runner = self._runner.with_config(changed.config)
        return changed

    def reporting_everything(self) -> Detector:
        """A detector on the same network that reports all boxes from ``nms.score_threshold`` on."""
        return self.with_score_threshold({})

    def warmup(self, cloud: Scan | None = None, *, frames: int = 1) -> None:
        """Get ready for the first frame: compile and tune kernels, capture the graph.

        Args:
            cloud: a typical scan, so that there is room for others like it; None: a scan of nothing, whose
                graph may have to grow at the first real one.
            frames: scans of a call of :meth:`detect_batch` to get ready for.
        """
        typical = as_tensor(_read(cloud)) if cloud is not None else torch.zeros((0, 4))
        with self.watch.muted():
            self.detect_batch([typical] * frames)

    def stream(self, clouds: Iterable[Scan]) -> Iterator[Detections]:
        """Detect objects in scans as they arrive: results in their order, each as soon as it is known.

        A thread fetches the scans. On a GPU the next scan is copied and queued while one is computed.

        Args:
            clouds: any iterable, endless or not; each as for a call.
        """
        if self._runner is None or self.device.type != "cuda":
            for cloud in clouds:
                yield self(cloud)
            return
        from perception.run.stream import stream_frames

        given: deque[Cloud] = deque()

        def tensors() -> Iterator[Tensor]:
            for cloud in map(_read, clouds):
                given.append(cloud)
                yield as_tensor(cloud)

        for result in stream_frames(self._runner, tensors()):
            cloud = given.popleft()
            if result.pillars > self.config.pillars.max_pillars:
                yield self(cloud)
            else:
                yield self._describe(self._found(result), cloud)

    def profile(self, cloud: Scan, *, repeats: int = 20) -> dict[str, float]:
        """Milliseconds of each stage of a frame, by name in their order, medians.

        On the fast path each stage is a CUDA graph of its own, timed on the device; otherwise a stage ends
        when the device is idle.

        Args:
            cloud: the frame.
            repeats: measured runs.
        """
        cloud = _read(cloud)
        if self._runner is not None:
            return self._runner.profile([as_tensor(cloud)], repeats=repeats)
        times: dict[str, list[float]] = {}
        before = self.on_stage
        self.on_stage = lambda stage, elapsed: times.setdefault(stage, []).append(elapsed)
        try:
            with self.watch.muted():
                for _ in range(repeats + 1):
                    self(cloud)
        finally:
            self.on_stage = before
        return {stage: statistics.median(values[1:]) for stage, values in times.items()}

    def __call__(self, cloud: Scan) -> Detections:
        """Detect objects in one scan.

        Args:
            cloud: (N, 4) x, y, z (metres, LiDAR frame), intensity in [0, 1] of any real dtype; (N, 3) without
                intensity. Points that are NaN, infinite or out of range are left out; the former are reported
                in ``warnings``. A :class:`~perception.scans.ScanTransform` makes such a cloud of others. Or
                the path of a file (``.bin``, ``.npy``, ``.pcd``, ``.ply``).

        Returns:
            Boxes with at least the configured score, best first; empty for an empty cloud. ``warnings`` also
            says what is doubtful about the scan and what mends it: unit, axes, height of the ground,
            intensity, and once that most points are out of range. Scans on the host are looked at; where
            frames are CUDA graphs, the first ten and every hundredth. Boxes do not depend on it.

        Raises:
            DataError: a file that is missing or cannot be used.
            ValueError: the cloud has other columns.
            TypeError: it is no cloud of real numbers.
        """
        return self.detect_batch([cloud])[0]

    def detect_batch(self, scans: Sequence[Scan]) -> list[Detections]:
        """Detect objects in several scans of any density at a time.

        On a CPU results are those of one by one to the bit: each frame is computed on its own, those of a
        sparse network several at a time, on threads of their own. (The number of threads does not change
        bits of a sparse network either; of a dense one it does, by rounding.) On a GPU frames share a pass,
        and boxes may differ from those of one by one by rounding.
        """
        if len(scans) == 0:
            return []
        clouds = [_read(scan) for scan in scans]
        tensors = [as_tensor(cloud) for cloud in clouds]
        largest = max(len(tensor) for tensor in tensors)
        if self._runner is None or self.on_stage is not None or largest > _MOST_POINTS_IN_A_GRAPH:
            return self._detect_eagerly(clouds)
        # Whole batches, then one by one: two graphs serve any number of frames.
        whole = len(clouds) // _BATCH * _BATCH if len(clouds) > _BATCH else 0
        size = _BATCH if whole else len(clouds)
        found: list[Detections] = []
        for first in range(0, max(whole, size), size):
            found += self._detect_fast(clouds[first : first + size], tensors[first : first + size])
        for cloud, tensor in zip(clouds[len(found) :], tensors[len(found) :], strict=True):
            found += self._detect_fast([cloud], [tensor])
        return found

    def _detect_fast(self, clouds: Sequence[Cloud], tensors: list[Tensor]) -> list[Detections]:
        assert self._runner is not None
        with torch.inference_mode(), warnings.catch_warnings():
            # Each frame tells of its own overflow below.
            warnings.simplefilter("ignore", CapacityWarning)
            results = self._runner(tensors)
        if any(result.pillars > self.config.pillars.max_pillars for result in results):
            # The limit keeps the nearest pillars, which fixed buffers cannot choose.
            return self._detect_eagerly(clouds)
        overflow = results[0].overflow
        if overflow:
            warnings.warn(_left_out(overflow), CapacityWarning, stacklevel=3)
        return [
            self._describe(self._found(result), cloud) for result, cloud in zip(results, clouds, strict=True)
        ]

    @staticmethod
    def _found(result: FrameResult) -> _Found:
        candidates = _Candidates(result.boxes, result.scores, result.labels.long())
        return _Found(candidates, result.invalid, 0, result.overflow)

    def _detect_eagerly(self, clouds: Sequence[Cloud]) -> list[Detections]:
        tensors = [as_tensor(cloud).to(self.device) for cloud in clouds]
        with warnings.catch_warnings():
            # Each frame tells of its own overflow below.
            warnings.simplefilter("ignore", CapacityWarning)
            found = self._one_by_one(tensors) if self.device.type == "cpu" else self._detect(tensors)
        for frame in found:
            if frame.overflow:
                warnings.warn(_overflow_message(frame.overflow), CapacityWarning, stacklevel=3)
        return [self._describe(frame, cloud) for frame, cloud in zip(found, clouds, strict=True)]

    def _one_by_one(self, clouds: list[Tensor]) -> list[_Found]:
        """Each frame by itself, as many at a time as there are threads; a clock needs them in turn."""
        threads = torch.get_num_threads()
        together = min(threads, len(clouds))
        # Autocast is of the thread that asks for it, and layers of other makes may keep a state.
        if self._planned is None or self.on_stage is not None or torch.is_autocast_enabled("cpu"):
            together = 1
        if together == 1:
            return [found for cloud in clouds for found in self._detect([cloud])]
        # So is the number of threads.
        with ThreadPoolExecutor(
            together, initializer=torch.set_num_threads, initargs=(threads // together,)
        ) as pool:
            frames = pool.map(lambda cloud: self._detect([cloud]), clouds)
            return [found for frame in frames for found in frame]

    @torch.inference_mode()
    def _detect(self, clouds: list[Tensor]) -> list[_Found]:
        clock = _StageClock(self.on_stage, self.device)
        pillars = make_pillars(clouds, self.config.pillars)
        clock.lap("pillars")
        left_out = list(zip(pillars.invalid.tolist(), pillars.overflow.tolist(), strict=True))
        if len(pillars.table) == 0:
            return [_Found(_nothing(self.device), *counts) for counts in left_out]
        encoded = self.network.encoder(pillars)
        clock.lap("encoder")
        maps = self._maps(encoded, clock.lap)
        proposals = self.network.propose(maps)
        clock.lap("head")
        candidates = self._candidates(pillars, proposals)
        clock.lap("proposal NMS")
        refined = self._refine(pillars, maps.features, candidates)
        clock.lap("refine")
        final = [self._suppress(*candidate) for candidate in refined]
        clock.lap("NMS")
        return [_Found(result, *counts) for result, counts in zip(final, left_out, strict=True)]

    def _maps(self, encoded: SparseTensor, lap: Callable[[str], None]) -> NetworkMaps:
        """First stage up to the heat map, in the way that is quickest here."""
        if self._planned is not None and self._planned.runs(encoded):
            return self._planned(encoded, lap)
        backbone_maps = self.network.backbone(encoded)
        lap("backbone")
        features = self.network.neck(backbone_maps)
        lap("neck")
        return NetworkMaps(features, self.network.head.heat_logits(features))

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
        boxes, scores, labels = self._reported(found.result)
        values = boxes.cpu().numpy().astype(np.float32)
        values[:, 6] = wrap_angle(values[:, 6])
        # Seen from the height of the training data; reported from the sensor's own.
        if raised := raised_m(cloud):
            values[:, 2] -= np.float32(raised)
        messages = []
        if found.invalid:
            messages.append(f"{found.invalid} points with NaN or infinite values left out")
        if found.overflow:
            messages.append(_overflow_message(found.overflow))
        if found.cells:
            messages.append(_left_out(found.cells))
        messages += self.watch(cloud)
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


def _left_out(count: int) -> str:
    return f"{count} active cells left out: there was no room in the graph (overflow='grow' makes room)"


def _why_not_fast(config: DetectorConfig, device: torch.device) -> str | None:
    """Why frames cannot be CUDA graphs here; None where they can."""
    if config.backbone.kind != "sparse" or not config.backbone.dilating:
        return "the network is not a sparse one whose strided layers dilate"
    if config.refine.enabled and len(config.refine.channels) != 3:
        return "the refinement has not three point layers"
    if config.backbone.impl != "auto":
        return f"the network asks for impl={config.backbone.impl!r}"
    if device.type != "cuda":
        return f"the device is {device}"
    if not module_available("triton"):
        return "Triton is not installed"
    return None


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


def _read(scan: Scan) -> Cloud:
    """The cloud, out of its file where it is the path of one."""
    if not isinstance(scan, str | Path):
        return scan
    # Most programs give arrays, and readers are many.
    from perception.io import load_point_cloud

    return load_point_cloud(scan)
