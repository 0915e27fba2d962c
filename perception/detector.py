"""The detector: point clouds in, boxes out."""

from __future__ import annotations

import copy
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

import numpy as np
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
from perception.scans.tensors import Cloud, as_tensor, has_ages
from perception.scans.watch import ScanWatch, emit_once
from perception.types import Detections, PointCloud
from sparse_core.errors import CapacityWarning

if TYPE_CHECKING:
    from perception.run.graph import FrameRunner, Overflow

#: Input of a detector: a point cloud, or the path of a point cloud file.
Scan = Cloud | str | Path
ScanT = TypeVar("ScanT", bound=Scan)

#: Warning of a detector with several sweeps about a scan without past scans.
_ALONE = (
    "this detector reads {} sweeps, but this scan came without past scans, so that it may find less. Add the"
    " poses of the sensor (--poses FILE), or merge scans with perception.scans.sweeps.SweepBuffer."
)
#: Points per frame above which eager code saves memory.
_MOST_POINTS_IN_A_GRAPH = 1 << 21


class Detector:
    """Detects objects in point clouds.

    >>> detector = Detector.from_pretrained("pointpillars-kitti")
    >>> detections = detector(points)          # points: (N, 4) float32 x, y, z, intensity
    >>> detections.boxes, detections.scores, detections.labels

    On a GPU each frame is one CUDA graph. The first frame captures the graph and tunes kernels, see
    :meth:`warmup`; later processes reuse the tuned choices.

    Args:
        network: trained network. The detector folds it for inference, so it cannot be trained further.
        device: device to run on.
        fast: run frames as CUDA graphs. None: if possible, which takes CUDA, Triton and a sparse or dense
            network with ``impl="auto"``.
        precision: number format of the features. CUDA graphs take ``"float16"`` (default), ``"bfloat16"`` or
            ``"float32"``. A CPU takes ``"float32"`` (default); or with a sparse network ``"bfloat16"``, which
            needs AVX512-BF16 or AMX, or ``"int8"``, which needs the ranges of ``perceive quantise``.
        overflow: what a CUDA graph does if a frame has too many active cells: ``"grow"`` captures a larger
            graph, ``"warn"`` drops cells and warns.

    Raises:
        ValueError: unknown or unsupported precision, unknown overflow or device, or ``fast=True`` without
            CUDA graphs.
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
        from perception.run.graph import FrameRunner, start_compiling, why_no_graph

        self.config: DetectorConfig = network.config
        self.device = usable_device(device)
        self.overflow: Overflow = overflow
        kind, steps = kind_of(self.config), graph_steps(self.config)
        reason = why_no_graph(self.config, steps, self.device)
        if fast and reason:
            raise ValueError(f"fast=True needs CUDA graphs, but {reason}. Pass fast=None to run without.")
        graphs = not reason if fast is None else fast
        self.precision = usable_precision(precision, network, self.device, graphs=graphs)
        self._asked_precision = precision
        if self.config.pillars.open and self.device.type != "cpu" and (reason or fast is False):
            raise ValueError(
                "a detector without a range (pillars.range_m: null) needs a CPU or CUDA graphs, but"
                f" {reason or 'fast is False'}. Give it a range, or pass device='cpu'."
            )
        dtype = PRECISIONS[self.precision]
        if graphs:
            # Compile while the weights are copied to the device.
            start_compiling(self.device, dtype)
        self.network = network.to(self.device).fold()
        # Without a range, the CPU computes the frames that no graph holds.
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
        #: Kinds of warnings emitted so far, shared by detectors of one network.
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
        """Load a detector from shipped weights, a file, or the Hugging Face hub.

        Args:
            name_or_path: name of shipped weights, path of a ``.safetensors`` file, or ``organisation/name``
                on the hub.
            device, fast, precision, overflow: see the class.

        Raises:
            CheckpointError: unknown weights, a corrupt file, or weights of another configuration.
        """
        if fast is not False and str(device).startswith("cuda"):
            from sparse_core.kernels.precompile import start_triton

            start_triton()  # Beside reading the weights.
        network = load_weights(name_or_path)
        return cls(network, device=device, fast=fast, precision=precision, overflow=overflow)

    @property
    def fast(self) -> bool:
        """True if frames run as CUDA graphs."""
        return self._graphs is not None

    def with_score_threshold(self, score: float | Mapping[str, float]) -> Detector:
        """Return a detector on the same network that reports boxes with at least ``score``.

        Args:
            score: one score for all classes, or scores by class name. Classes without a score keep
                ``nms.score_threshold``.

        Raises:
            ConfigError: a score out of [0, 1], or an unknown class.
        """
        nms, classes = self.config.nms, self.config.head.classes
        if isinstance(score, Mapping):
            nms = replace(nms, report_thresholds=dict(score))
        elif nms.score_maps:
            # The network must pass every box whose mapped score may reach the threshold.
            own = min(nms.unmapped(name, score) for name in classes)
            nms = replace(nms, score_threshold=own, report_thresholds=dict.fromkeys(classes, score))
        else:
            nms = replace(nms, score_threshold=score, report_thresholds={})
        return self._with_config(replace(self.config, nms=nms))

    def with_range(self, range_m: Sequence[float] | None) -> Detector:
        """Return a detector with the same weights for another range.

        Args:
            range_m: x, y, z minimum, then x, y, z maximum, in metres. Lengths in x and y must be a multiple
                of the coarsest cell. None: unbounded in x and y; the cost of a frame then grows with its
                occupied pillars. Limits of a frame grow with the area.

        Raises:
            ConfigError: a range that does not fit the cells, or None for a dense network.
            ValueError: None on a GPU without CUDA graphs.
        """
        moved = in_range(self.network, self.config.pillars.with_range(range_m))
        if moved is self.network:
            return self
        moved.config = replace(self.config, pillars=moved.config.pillars)
        made = Detector(moved, device=self.device, precision=self._asked_precision, overflow=self.overflow)
        made.warned = self.warned
        return made

    def with_limits(self, factor: float) -> Detector:
        """Return a detector on the same network with scaled limits per frame.

        Limits bound pillars, peaks, refined proposals and reported boxes. ``Detections.warnings`` and
        ``Detections.limits_reached`` name the limits that a frame reached.

        Args:
            factor: multiplies the configured limits; larger limits take longer.

        Raises:
            ValueError: ``factor`` is not positive and finite.
        """
        if not 0 < factor < math.inf:
            raise ValueError(f"factor must be positive and finite, got {factor}")
        config = self.config
        changed = replace(
            config,
            pillars=replace(config.pillars, max_pillars=math.ceil(config.pillars.max_pillars * factor)),
            head=replace(config.head, top_k=math.ceil(config.head.top_k * factor)),
            refine=replace(config.refine, proposals=math.ceil(config.refine.proposals * factor)),
            nms=replace(config.nms, max_boxes=math.ceil(config.nms.max_boxes * factor)),
        )
        return self._with_config(changed)

    def _with_config(self, config: DetectorConfig) -> Detector:
        """Return a detector with other thresholds and limits that shares runners and graphs if it can."""
        changed = copy.copy(self)
        changed.config = config
        changed.watch = ScanWatch(config.pillars, every_frame=not self.fast)
        before, after = (
            (each.nms.score_threshold, each.proposal_scores, each.limits, each.pillars.max_pillars)
            for each in (self.config, config)
        )
        if after != before:
            changed._eager = self._eager.with_config(config)
            changed._graphs = self._graphs and self._graphs.with_config(config)
        return changed

    def reporting_everything(self) -> Detector:
        """Return a detector on the same network that reports all boxes above ``nms.score_threshold``."""
        return self.with_score_threshold({})

    def warmup(self, cloud: Scan | None = None, *, frames: int = 1) -> None:
        """Compile and tune kernels and capture the CUDA graphs, so that no later call waits for that.

        Args:
            cloud: a typical scan, which sets the size of the graphs. None: an empty scan; a graph may grow
                at the first real one.
            frames: largest batch to prepare for, up to 8, see :meth:`detect_batch`. Above 1 there are two
                graphs, one for a single frame.
        """
        empty = torch.zeros((0, 4), dtype=torch.float32)
        typical = self._as_tensor(empty if cloud is None else self._read(cloud))
        with self.watch.muted():
            if self._graphs is None or len(typical) > _MOST_POINTS_IN_A_GRAPH:
                self.detect_batch([typical] * frames)
            else:
                self._graphs.prepare(typical, frames)

    def keep_warm(self, interval_s: float = 0.002) -> AbstractContextManager[object]:
        """Compute empty frames between the calls within a ``with`` block.

        After a pause, a call on a GPU takes longer than one that follows another. Empty frames avoid part of
        that. They cost power, a part of a CPU core, and up to one empty frame of delay for a call that
        arrives during one. ``python -m benchmarks.calls.calls --device cuda --rows pauses``
        measures both sides on your machine.

        Args:
            interval_s: pause between empty frames.

        Raises:
            ValueError: the detector runs without CUDA graphs, or the interval is not positive.
        """
        from perception.run.warm import WarmKeeper

        if self._graphs is None:
            raise ValueError(
                "keep_warm needs CUDA graphs: pass device='cuda'. Frames on a CPU do not need it."
            )
        return WarmKeeper(self._graphs.rehearse, interval_s)

    def profile(self, cloud: Scan, *, repeats: int = 20) -> dict[str, float]:
        """Measure the stages of a frame: median milliseconds by name, in order.

        With CUDA graphs, each stage is captured separately and timed on the device.

        Args:
            cloud: scan to measure with.
            repeats: measured runs.
        """
        return (self._graphs or self._eager).profile([self._as_tensor(self._read(cloud))], repeats=repeats)

    @overload
    def __call__(self, cloud: Scan) -> Detections: ...
    @overload
    def __call__(self, cloud: list[ScanT] | tuple[ScanT, ...]) -> list[Detections]: ...
    def __call__(self, cloud: Scan | list[ScanT] | tuple[ScanT, ...]) -> Detections | list[Detections]:
        """Detect objects in one scan, or in a list of scans.

        Args:
            cloud: (N, 4) array or tensor of x, y, z (metres, LiDAR frame) and intensity in [0, 1], or (N, 3)
                without intensity, of any real dtype. Also the path of a file (``.bin``, ``.npy``, ``.pcd``,
                ``.ply``). A fifth column is dropped with a warning. Points that are NaN, infinite or out of
                range are ignored. :class:`~perception.scans.ScanTransform` converts units and axes.
                A detector with ``pillars.sweeps`` above 1 reads merged scans
                (:class:`~perception.scans.sweeps.SweepBuffer`), or a fifth column of ages in seconds. It
                takes other scans alone, with a warning.

        Returns:
            Boxes that reach the configured score, best first; for a list, one result per scan.
            ``warnings`` names doubtful units, axes, ground height, intensity and range, with a fix. With
            CUDA graphs, only the first ten scans and every hundredth are checked, and only on the host. The
            first warning of each kind is also a Python :class:`~perception.errors.ScanWarning`.

        Raises:
            DataError: a missing or unusable file.
            ValueError: wrong number of columns.
            TypeError: not an array of real numbers.
        """
        if isinstance(cloud, list | tuple):
            return self.detect_batch(cloud)
        return self.detect_batch([cloud])[0]

    def detect_batch(self, scans: Sequence[Scan]) -> list[Detections]:
        """Detect objects in several scans.

        On a CPU, results equal those of single calls bit for bit, for any number of threads. On a GPU,
        frames share a pass, and boxes may differ from those of single calls by rounding.

        On a GPU a call captures a CUDA graph only if there is none yet. Otherwise the scans share the
        existing graphs: one that they fill by more than half, or one after the other. Prepare a graph for
        batches with ``warmup(cloud, frames=8)``, which doubles the throughput.

        Args:
            scans: see :meth:`__call__`.
        """
        if len(scans) == 0:
            return []
        clouds = [self._read(scan) for scan in scans]
        tensors = [self._as_tensor(cloud) for cloud in clouds]
        remarks: list[list[str]] = []

        def check() -> None:
            remarks.extend(map(self.watch.check, clouds))

        if self._graphs is None or max(map(len, tensors)) > _MOST_POINTS_IN_A_GRAPH:
            results = self._eager(tensors)
        else:
            # Scans are checked while the GPU computes the first part.
            results = self._in_graphs(self._graphs, tensors, check)
        if not remarks:
            check()
        for message in dict.fromkeys(text for result in results for text in result.capacity_messages()):
            warnings.warn(message, CapacityWarning, stacklevel=2)
        return [self._described(*each) for each in zip(results, clouds, remarks, strict=True)]

    def stream(self, clouds: Iterable[Scan]) -> Iterator[Detections]:
        """Detect objects in scans as they arrive, and yield results in order.

        On a GPU a thread fetches the scans, and the next scan is copied while the current one is computed.

        Args:
            clouds: any iterable of scans, also an endless one; see :meth:`__call__`.
        """
        if self._graphs is None:
            for cloud in clouds:
                yield self(cloud)
            return
        from perception.run.stream import stream_frames

        given: deque[Cloud] = deque()

        def tensors() -> Iterator[Tensor]:
            for cloud in map(self._read, clouds):
                given.append(cloud)
                yield self._as_tensor(cloud)

        ready = isinstance(clouds, Sequence) and not any(isinstance(one, str | Path) for one in clouds)
        for result in stream_frames(self._graphs, tensors(), ready=ready):
            cloud = given.popleft()
            # Eager code keeps the nearest pillars; fixed buffers cannot choose them.
            crowded = result.pillars > self.config.pillars.most_pillars
            yield self(cloud) if crowded else self._described(result, cloud, self.watch.check(cloud))

    def _read(self, scan: Scan) -> Cloud:
        """Return the point cloud; read it if ``scan`` is a path."""
        if not isinstance(scan, str | Path):
            if self.config.pillars.sweeps > 1:
                return scan
            if isinstance(scan, Tensor) and not scan.is_cuda and scan.ndim == 2 and scan.shape[1] == 5:
                scan = scan.detach().numpy()
            # PointCloud drops a fifth column and notes that in its warnings.
            return PointCloud(scan) if isinstance(scan, np.ndarray) and scan.shape[1:] == (5,) else scan
        # Most programs pass arrays, and the readers take long to import.
        from perception.io import load_point_cloud

        return load_point_cloud(scan)

    def _as_tensor(self, cloud: Cloud) -> Tensor:
        return as_tensor(cloud, self.config.pillars)

    def _in_graphs(
        self, graphs: FrameRunner, tensors: list[Tensor], meanwhile: Callable[[], None]
    ) -> list[FrameResult]:
        results: list[FrameResult] = []
        for count in graphs.split(len(tensors)):
            part = tensors[len(results) : len(results) + count]
            found = graphs.serve(part, None if results else meanwhile)
            crowded = any(result.pillars > self.config.pillars.most_pillars for result in found)
            results += self._eager(part) if crowded else found
        return results

    def _described(self, result: FrameResult, cloud: Cloud, remarks: list[str]) -> Detections:
        if self._report.config is not self.config:
            self._report = Reporter(self.config)
        remarks = self.watch.with_pillars(remarks, cloud, result.pillars)
        if self.config.pillars.sweeps > 1 and not has_ages(cloud):
            remarks = [*remarks, _ALONE.format(self.config.pillars.sweeps)]
        found = self._report(result, cloud, remarks)
        if found.warnings:
            # detect_batch has emitted these as CapacityWarning.
            capacity = result.capacity_messages()
            emit_once([text for text in found.warnings if text not in capacity], self.warned)
        return found
