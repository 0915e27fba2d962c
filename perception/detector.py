"""Scans to detections, in the quickest way that the machine has."""

from __future__ import annotations

import copy
import math
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig
from perception.device import usable_device
from perception.model.network import Network
from perception.model.ranging import in_range
from perception.registry import graph_steps, kind_of
from perception.run.eager import EagerRunner
from perception.run.precision import PRECISIONS, Precision, usable_precision
from perception.run.results import FrameResult, Reporter
from perception.scans.tensors import Cloud, as_tensor
from perception.scans.watch import ScanWatch, emit_once
from perception.types import Detections
from sparse_core.errors import CapacityWarning

if TYPE_CHECKING:
    from perception.run.graph import FrameRunner, Overflow

#: What a detector takes: a cloud, or the path of a file of one.
Scan = Cloud | str | Path

#: Frames of a graph of several, and points of a frame beyond which the memory is better spent elsewhere.
_BATCH, _MOST_POINTS_IN_A_GRAPH = 8, 1 << 21


class Detector:
    """Finds objects in point clouds.

    >>> detector = Detector.from_pretrained("pointpillars-kitti")
    >>> detections = detector(points)          # points: (N, 4) float32 x, y, z, intensity
    >>> detections.boxes, detections.scores, detections.labels

    On a GPU a frame is one CUDA graph, captured at the first frame (see :meth:`warmup`); the kernels of a
    sparse network are tuned on first use and the choices kept for later processes.

    Args:
        network: trained network; it is folded for inference and must not be trained further.
        device: where to run.
        fast: whole frames as CUDA graphs; None: where it can be (a sparse or dense network whose
            implementation is ``"auto"``, on CUDA, with Triton).
        precision: of the features: ``"float16"``, ``"bfloat16"`` or ``"float32"`` in these graphs; on a CPU
            ``"float32"``, or ``"bfloat16"`` where the network is a sparse one and the CPU has AVX512-BF16 or
            AMX. None: float16 in graphs, float32 elsewhere. What else runs outside of graphs is float32, or
            whatever autocast says.
        overflow: what such a graph does with a frame of more active cells than it has room for: ``"grow"``
            captures a larger one and loses nothing, ``"warn"`` leaves cells out and tells how many.

    Raises:
        ValueError: ``fast=True`` or a precision where it cannot be, an unknown precision or overflow, no
            such device.
    """

    def __init__(
        self,
        network: Network,
        *,
        device: str | torch.device = "cpu",
        fast: bool | None = None,
        precision: Precision | None = None,
        overflow: Overflow = "grow",
    ) -> None:
        from perception.run.graph import FrameRunner, compiling, why_no_graph

        self.config: DetectorConfig = network.config
        self.device = usable_device(device)
        self.overflow: Overflow = overflow
        kind, steps = kind_of(self.config), graph_steps(self.config)
        reason = why_no_graph(self.config, steps, self.device)
        if fast and reason:
            raise ValueError(f"fast=True cannot be: {reason}")
        graphs = not reason if fast is None else fast
        self.precision = usable_precision(precision, network, self.device, graphs=graphs)
        self._asked_precision = precision
        if self.config.pillars.open and self.device.type != "cpu" and (reason or fast is False):
            raise ValueError(
                "a detector without a range (pillars.range_m: null) runs on a CPU or as CUDA graphs, and"
                f" frames are none here: {reason or 'fast=False'}; give it a range, or device='cpu'"
            )
        dtype = PRECISIONS[self.precision]
        if graphs:
            # While the weights go to the device.
            compiling(self.device, dtype)
        self.network = network.to(self.device).fold()
        # Without a range, what no graph takes is computed on the host.
        on_host = self.config.pillars.open and self.device.type != "cpu"
        self._eager = EagerRunner(
            copy.deepcopy(self.network).cpu() if on_host else self.network,
            kind.eager,
            dtype=torch.float32 if graphs else dtype,
        )
        self._graphs: FrameRunner | None = None
        if graphs:
            self._graphs = FrameRunner(self.network, steps, dtype=dtype, overflow=overflow)
        self.watch = ScanWatch(self.config.pillars, every_frame=not self.fast)
        self._report = Reporter(self.config)
        #: Kinds of warnings that were emitted; detectors of one network share it.
        self.warned: set[str] = set()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        device: str | torch.device = "cpu",
        *,
        fast: bool | None = None,
        precision: Precision | None = None,
        overflow: Overflow = "grow",
    ) -> Detector:
        """Load shipped weights by name, or a ``.safetensors`` file.

        Args:
            name_or_path: of the weights; ``organisation/name`` is asked of the Hugging Face hub.
            device, fast, precision, overflow: as for the class.

        Raises:
            CheckpointError: no such weights, a corrupt file, or weights of another configuration.
        """
        network = load_weights(name_or_path)
        return cls(network, device=device, fast=fast, precision=precision, overflow=overflow)

    @property
    def fast(self) -> bool:
        """Whether frames run as CUDA graphs."""
        return self._graphs is not None

    def with_score_threshold(self, score: float | Mapping[str, float]) -> Detector:
        """A detector on the same network that reports boxes from ``score`` on.

        Args:
            score: one for all classes; or by class name: other classes are then reported from
                ``nms.score_threshold`` on, below which nothing is known.

        Raises:
            ConfigError: a score out of [0, 1], or of an unknown class.
        """
        nms, classes = self.config.nms, self.config.head.classes
        if isinstance(score, Mapping):
            nms = replace(nms, report_thresholds=dict(score))
        elif nms.score_maps:
            # Reported scores are compared; the network has to let through what may reach them.
            own = min(nms.unmapped(name, score) for name in classes)
            nms = replace(nms, score_threshold=own, report_thresholds=dict.fromkeys(classes, score))
        else:
            nms = replace(nms, score_threshold=score, report_thresholds={})
        return self._with_config(replace(self.config, nms=nms))

    def with_range(self, range_m: Sequence[float] | None) -> Detector:
        """A detector on the same weights that looks elsewhere: convolutions do not know where they are.

        Args:
            range_m: x, y, z minimum then x, y, z maximum, a whole number of the coarsest cells in x and y;
                None: no range in x and y. Pillars are then found by 64-bit keys of their cells, what a frame
                costs grows with the pillars that hold points, and boxes are those of a range that holds
                all of them and has the same limits. Heights and the corners of pillars stay. Limits of a
                frame grow with the area.

        Raises:
            ConfigError: a range that the network cannot have; the dense twin needs one.
            ValueError: there is no range, and the device is neither a CPU nor one that frames are graphs on.
        """
        moved = in_range(self.network, self.config.pillars.with_range(range_m))
        if moved is self.network:
            return self
        moved.config = replace(self.config, pillars=moved.config.pillars)
        made = Detector(moved, device=self.device, precision=self._asked_precision, overflow=self.overflow)
        made.warned = self.warned
        return made

    def with_limits(self, factor: float) -> Detector:
        """A detector on the same network whose limits of a frame are larger by a factor.

        Limits bound the peaks that are read, the proposals that are refined and the boxes that are reported;
        a frame that reaches one says so in ``warnings``.

        Args:
            factor: of the configured limits, more than 0; a frame takes longer with more.

        Raises:
            ValueError: a factor that is not positive and finite.
        """
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be positive and finite, got {factor}")
        config = self.config
        changed = replace(
            config,
            head=replace(config.head, top_k=math.ceil(config.head.top_k * factor)),
            refine=replace(config.refine, proposals=math.ceil(config.refine.proposals * factor)),
            nms=replace(config.nms, max_boxes=math.ceil(config.nms.max_boxes * factor)),
        )
        return self._with_config(changed)

    def _with_config(self, config: DetectorConfig) -> Detector:
        """A detector on the same network and grid with other thresholds and limits.

        Runners are shared where they compute the same, and so are their graphs.
        """
        changed = copy.copy(self)
        changed.config = config
        changed.watch = ScanWatch(config.pillars, every_frame=not self.fast)
        before, after = (
            (each.nms.score_threshold, each.proposal_scores, each.limits) for each in (self.config, config)
        )
        if after != before:
            changed._eager = self._eager.with_config(config)
            changed._graphs = self._graphs and self._graphs.with_config(config)
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
        typical = torch.zeros((0, 4), dtype=torch.float32) if cloud is None else as_tensor(_read(cloud))
        with self.watch.muted():
            self.detect_batch([typical] * frames)

    def profile(self, cloud: Scan, *, repeats: int = 20) -> dict[str, float]:
        """Milliseconds of each stage of a frame, by name in their order, medians.

        Where frames are CUDA graphs each stage is one of its own, timed on the device; otherwise a stage ends
        when the device is idle.

        Args:
            cloud: the frame.
            repeats: measured runs.
        """
        return (self._graphs or self._eager).profile([as_tensor(_read(cloud))], repeats=repeats)

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
            frames are CUDA graphs, the first ten and every hundredth. Boxes do not depend on it. The first
            warning of each kind is also a Python warning (:class:`~perception.errors.ScanWarning`).

        Raises:
            DataError: a file that is missing or cannot be used.
            ValueError: the cloud has other columns.
            TypeError: it is no cloud of real numbers.
        """
        return self.detect_batch([cloud])[0]

    def detect_batch(self, scans: Sequence[Scan]) -> list[Detections]:
        """Detect objects in several scans of any density at a time.

        On a CPU results are those of one by one to the bit: each frame is computed on its own. A sparse
        network computes several frames side by side where there are at least as many as threads. The number
        of threads changes no bit. On a GPU frames share a pass, and boxes may differ from those of one by one
        by rounding.
        """
        if len(scans) == 0:
            return []
        clouds = [_read(scan) for scan in scans]
        tensors = [as_tensor(cloud) for cloud in clouds]
        # Whole batches, then one by one: two graphs serve any number of frames.
        whole = len(clouds) // _BATCH * _BATCH if len(clouds) > _BATCH else len(clouds)
        parts = [tensors[at : at + _BATCH] for at in range(0, whole, _BATCH)]
        parts += [[tensor] for tensor in tensors[whole:]]
        if self._graphs is None or max(map(len, tensors)) > _MOST_POINTS_IN_A_GRAPH:
            results = self._eager(tensors)
        else:
            results = [result for part in parts for result in self._in_a_graph(self._graphs, part)]
        for message in dict.fromkeys(text for result in results for text in result.capacity_messages()):
            warnings.warn(message, CapacityWarning, stacklevel=2)
        return [self._described(result, cloud) for result, cloud in zip(results, clouds, strict=True)]

    def stream(self, clouds: Iterable[Scan]) -> Iterator[Detections]:
        """Detect objects in scans as they arrive: results in their order, each as soon as it is known.

        A thread fetches the scans. On a GPU the next scan is copied and queued while one is computed.

        Args:
            clouds: any iterable, endless or not; each as for a call. Arrays in a list need no thread.
        """
        if self._graphs is None:
            for cloud in clouds:
                yield self(cloud)
            return
        from perception.run.stream import stream_frames

        given: deque[Cloud] = deque()

        def tensors() -> Iterator[Tensor]:
            for cloud in map(_read, clouds):
                given.append(cloud)
                yield as_tensor(cloud)

        ready = isinstance(clouds, Sequence) and not any(isinstance(one, str | Path) for one in clouds)
        for result in stream_frames(self._graphs, tensors(), ready=ready):
            cloud = given.popleft()
            # The limit keeps the nearest pillars, which fixed buffers cannot choose.
            crowded = result.pillars > self.config.pillars.max_pillars
            yield self(cloud) if crowded else self._described(result, cloud)

    def _in_a_graph(self, graphs: FrameRunner, tensors: list[Tensor]) -> list[FrameResult]:
        results = graphs.frames(tensors)
        crowded = any(result.pillars > self.config.pillars.max_pillars for result in results)
        return self._eager(tensors) if crowded else results

    def _described(self, result: FrameResult, cloud: Cloud) -> Detections:
        if self._report.config is not self.config:
            self._report = Reporter(self.config)
        found = self._report(result, cloud, self.watch(cloud, pillars=result.pillars))
        if found.warnings:
            # What did not fit is a CapacityWarning already.
            capacity = result.capacity_messages()
            emit_once([text for text in found.warnings if text not in capacity], self.warned)
        return found


def _read(scan: Scan) -> Cloud:
    """The cloud, out of its file where it is the path of one."""
    if not isinstance(scan, str | Path):
        return scan
    # Most programs give arrays, and readers are many.
    from perception.io import load_point_cloud

    return load_point_cloud(scan)
