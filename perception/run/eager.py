"""Eager execution of frames, on any device, for any network and any number of points."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from perception.config import DetectorConfig, Limits
from perception.errors import PrecisionWarning
from perception.geometry import GroundGrid
from perception.model.backbone import BackboneMaps
from perception.model.head import Proposals
from perception.model.listed_map import FeatureMap, ListedMap
from perception.model.network import Network
from perception.model.pillars import Pillars, make_pillars
from perception.model.refine import AXES, RefineStage, turned
from perception.nms import rotated_nms
from perception.run.precision import name_of
from perception.run.profile import time_stages
from perception.run.program import StageRunner, Steps, run_frame, run_step
from perception.run.results import FrameResult
from perception.scans.watch import emit_once
from perception.stages.cpu import PlannedLevels, PlannedMaps
from perception.stages.refine.cpu import CpuPoints, PlannedPoints
from perception.stages.report import ReportRules
from perception.types import EMBEDDING_DIM
from sparse_core.common.workers import run_on_worker, share_tasks, sharing_threads
from sparse_core.conv import SparseTensor
from sparse_core.errors import CapacityWarning

#: Makes the steps of a network for a dtype of features.
MakeSteps = Callable[..., Steps[Sequence[Tensor], Any, Any, Any, Any, Any, list[FrameResult]]]

_SLOW_AUTOCAST = (
    "torch.autocast makes frames on a CPU more than twice as slow. Leave it, and pass precision='bfloat16' or"
    " precision='int8' to the detector instead."
)
#: Size of the table that counts occupied pillars of any grid.
_COUNTED_CELLS = 1 << 18


class EagerLevels(NamedTuple):
    """Pillar features, then the backbone's output."""

    pillars: Pillars
    features: SparseTensor | BackboneMaps | PlannedLevels


class EagerMap(NamedTuple):
    """The map that head and refinement read.

    Attributes:
        pillars: points by pillar.
        features: (B, C, H, W), bytes of that map, or values of listed cells for an unbounded range.
        heat_logits: computes the logits of the heat map: (B, classes, H, W), or of the listed cells.
    """

    pillars: Pillars
    features: FeatureMap
    heat_logits: Callable[[], Tensor]


class EagerPeaks(NamedTuple):
    """Boxes at the peaks of the heat map, with pillars and map."""

    pillars: Pillars
    features: FeatureMap
    proposals: Proposals


class EagerBoxes(NamedTuple):
    """Distinct boxes of all frames before, between or after refinement steps.

    Attributes:
        peaks: peaks that the boxes come from.
        boxes: (R, 7); scores: (R,); labels: (R,) int64; frame by frame.
        counts: boxes of each frame.
        fit_logits: (R,) logits of the predicted IoU; None before the refinement.
        features: (R, 256) features of the refinement; None before it.
        velocities: (R, 2) m/s in the LiDAR frame; None before the last refinement, and without that head.
    """

    peaks: EagerPeaks
    boxes: Tensor
    scores: Tensor
    labels: Tensor
    counts: list[int]
    fit_logits: Tensor | None = None
    features: Tensor | None = None
    velocities: Tensor | None = None


class EagerSteps(
    Steps[Sequence[Tensor], Pillars, EagerLevels, EagerMap, EagerPeaks, EagerBoxes, list[FrameResult]]
):
    """Steps that call the network's layers, or :class:`PlannedMaps` on a CPU.

    Scans are (N_i, C) float32 each, on the device.

    Args:
        dtype: dtype of the features on a CPU: float32, or bfloat16 or int8 if :meth:`PlannedMaps.suits`.
    """

    def __init__(self, network: Network, dtype: torch.dtype = torch.float32) -> None:
        self.network, self.config, self.dtype = network, network.config, dtype
        self.planned = PlannedMaps(network, dtype) if PlannedMaps.suits(network) else None
        #: Replacements for the point layers of refinement stages.
        self._points: dict[nn.Module, CpuPoints[Any]] = {}
        if dtype == torch.int8:
            # This module loads all of sparse_core.nm.
            from perception.stages.refine.int8 import BytePoints

            self._points = {stage: BytePoints(stage, network) for stage in self._stages()}
        elif dtype != torch.float32:
            self._points = {stage: PlannedPoints(stage) for stage in self._stages()}
        # Other layers may keep state, which threads must not share.
        self.threaded = self.planned is not None

    def locate(self, scans: Sequence[Tensor]) -> Pillars:
        """Sort points by pillar."""
        return make_pillars(scans, self.config.pillars)

    def nothing(self, located: Pillars) -> list[FrameResult] | None:
        """Return empty results if no frame has a pillar."""
        if len(located.table) > 0:
            return None
        boxes = located.points.new_zeros((0, 7))
        labels = boxes.new_zeros(0, dtype=torch.int64)
        return self._results(located, (boxes, boxes[:, 0], labels), [0] * located.batch_size)

    def encode(self, located: Pillars) -> EagerLevels:
        """Compute the features of the pillars."""
        return EagerLevels(located, self.network.encoder(located))

    @property
    def levels(self) -> Sequence[tuple[str, Callable[[EagerLevels], EagerLevels]]]:
        """The backbone as a whole."""
        return (("backbone", self._backbone),)

    def _backbone(self, levels: EagerLevels) -> EagerLevels:
        encoded = levels.features
        assert isinstance(encoded, SparseTensor)
        if self.planned is not None and self.planned.runs(encoded):
            return EagerLevels(levels.pillars, self.planned.backbone(encoded))
        if self.config.pillars.open:
            raise ValueError(
                "a detector without a range (pillars.range_m: null) needs CUDA graphs, or a CPU without"
                " autocast and own folded layers without hooks. Give it a range."
            )
        if self.dtype != torch.float32:
            raise ValueError(
                f"precision={name_of(self.dtype)!r} needs a CPU without autocast, own folded layers without"
                " hooks and a grid that fits the memory. Use precision='float32'."
            )
        return EagerLevels(levels.pillars, self.network.backbone(encoded))

    def neck(self, levels: EagerLevels) -> EagerMap:
        """Run the neck that matches the backbone."""
        if isinstance(levels.features, PlannedLevels):
            assert self.planned is not None
            return EagerMap(levels.pillars, *self.planned.neck(levels.features))
        features = self.network.neck(levels.features)
        return EagerMap(levels.pillars, features, partial(self.network.head.heat_logits, features))

    def head(self, features: EagerMap) -> EagerPeaks:
        """Read boxes at the peaks."""
        head, logits = self.network.head, features.heat_logits()
        most = self.config.limits.peaks
        above = torch.tensor(self.config.proposal_scores, dtype=torch.float32, device=logits.device)
        if isinstance(features.features, ListedMap):
            batch = features.pillars.batch_size
            proposals = head.propose_listed(features.features, logits, batch, top_k=most, above=above)
        else:
            proposals = head.propose(features.features, logits, top_k=most, above=above, trim=True)
        return EagerPeaks(features.pillars, features.features, proposals)

    def propose(self, peaks: EagerPeaks) -> EagerBoxes:
        """Remove duplicates; a frame without points has no boxes, as in a batch of one."""
        nms, limits = self.config.nms, self.config.limits
        occupied = torch.bincount(peaks.pillars.frames, minlength=peaks.pillars.batch_size) > 0
        usable = (peaks.proposals.scores > 0) & occupied[:, None]
        kept = [
            _distinct(frame, mask, iou_threshold=nms.proposal_iou, most=limits.proposals)
            for frame, mask in zip(zip(*peaks.proposals, strict=True), usable, strict=True)
        ]
        boxes, scores, labels = (torch.cat(parts) for parts in zip(*kept, strict=True))
        return EagerBoxes(peaks, boxes, scores, labels, [len(frame[0]) for frame in kept])

    @property
    def refinements(self) -> Sequence[Callable[[EagerBoxes], EagerBoxes]]:
        """One step per stage of the network; the last also resolves the heading."""
        stages = self._stages()
        return [partial(self._refine, stage, last=stage is stages[-1]) for stage in stages]

    def _stages(self) -> list[RefineStage]:
        return [stage for stage in self.network.refinements if isinstance(stage, RefineStage)]

    def _refine(self, stage: RefineStage, boxes: EagerBoxes, *, last: bool) -> EagerBoxes:
        if len(boxes.boxes) == 0:
            return boxes
        frames = torch.repeat_interleave(torch.tensor(boxes.counts, device=boxes.boxes.device))
        points = self._points.get(stage)
        refined, output = stage.refined(
            boxes.peaks.pillars,
            boxes.peaks.features,
            boxes.boxes,
            frames,
            boxes.labels,
            points if points is not None and points.runs() else None,
        )
        velocities = None
        if last:
            refined = turned(refined, output.flip_logits)
            if self.network.velocity is not None:
                velocities = self.network.velocity(output.features, boxes.boxes)
        return boxes._replace(
            boxes=refined, fit_logits=output.fit_logits, features=output.features, velocities=velocities
        )

    def suppress(self, boxes: EagerBoxes) -> list[FrameResult]:
        """Suppress overlapping boxes and copy the rest to the host."""
        nms, limits, weight = self.config.nms, self.config.limits, self.config.head.iou_weight
        scores = boxes.scores
        if boxes.fit_logits is not None:
            scores = scores ** (1 - weight) * torch.sigmoid(boxes.fit_logits) ** weight
        known = [boxes.boxes, scores, boxes.labels]
        if self.network.embedding is not None and boxes.features is not None:
            known.append(boxes.features)
        if boxes.velocities is not None:
            known.append(boxes.velocities)
        kept = [
            _distinct(frame, frame[1] >= nms.score_threshold, iou_threshold=nms.iou, most=limits.boxes)
            for frame in zip(*(part.split(boxes.counts) for part in known), strict=True)
        ]
        found = tuple(torch.cat(part) for part in zip(*kept, strict=True))
        final = [len(frame[0]) for frame in kept]
        peaks = (boxes.peaks.proposals.scores > 0).sum(1).tolist()
        results = self._results(boxes.peaks.pillars, found, final)
        counts = map(Limits, peaks, boxes.counts, final)
        return [result._replace(counts=each) for result, each in zip(results, counts, strict=True)]

    def _results(self, pillars: Pillars, found: tuple[Tensor, ...], counts: list[int]) -> list[FrameResult]:
        """Make results from boxes, scores, labels and, if given, features and velocities."""
        boxes, scores, labels, *further = found
        head = self.network.embedding
        vectors: Sequence[Tensor | None] = [None] * len(counts)
        velocities = list(vectors)
        if head is not None:
            made = head(further.pop(0)) if further else boxes.new_zeros((len(boxes), EMBEDDING_DIM))
            vectors = made.cpu().split(counts)
        if self.network.velocity is not None:
            made = further.pop(0) if further else boxes.new_zeros((len(boxes), AXES))
            velocities = list(made.cpu().split(counts))
        active = torch.bincount(pillars.table.coordinates[:, 0], minlength=pillars.batch_size)
        frames = zip(
            *(part.cpu().split(counts) for part in (boxes, scores, labels)),
            *(part.tolist() for part in (pillars.invalid, active, pillars.overflow, pillars.far)),
            vectors,
            velocities,
            strict=True,
        )
        return [
            FrameResult.of(
                found, score, label, invalid, held,
                left_out=left_out, far=far, embeddings=vector, velocities=velocity,
            )
            for found, score, label, invalid, held, left_out, far, vector, velocity in frames
        ]  # fmt: skip


def _distinct(
    frame: tuple[Tensor, ...], usable: Tensor, *, iou_threshold: float, most: int
) -> tuple[Tensor, ...]:
    """Apply NMS per class to the usable rows of a frame: boxes, scores, labels and further columns."""
    rows = usable.nonzero()[:, 0]
    boxes, scores, labels = (part[rows] for part in frame[:3])
    kept = rotated_nms(boxes, scores, iou_threshold=iou_threshold, labels=labels, max_output=most)
    return tuple(part[rows[kept]] for part in frame)


def densest_first(clouds: Sequence[Tensor], grid: GroundGrid) -> list[int]:
    """Return the indices of (N_i, 4) clouds by descending number of occupied pillars, ties in order.

    The cost of a frame depends on its pillars much more than on its points.
    """
    occupied = [_occupied(cloud, grid) for cloud in clouds]
    return sorted(range(len(clouds)), key=lambda place: -occupied[place])


def _occupied(cloud: Tensor, grid: GroundGrid) -> int:
    """Estimate the number of occupied pillars; cells that collide in the table count once."""
    row, column = grid.cell_of(*cloud[grid.contains(*cloud.T[:3])].T[:2])
    table = torch.zeros(_COUNTED_CELLS, dtype=torch.bool)
    table[(row.long() * grid.key_shape[1] + column) % _COUNTED_CELLS] = True
    return int(table.sum())


class EagerRunner:
    """Runs frames eagerly.

    Args:
        network: folded network, on the device to run on.
        steps: makes the steps, ``kind_of(config).eager`` of :mod:`perception.registry`.
        dtype: dtype of the features, see :class:`EagerSteps`.
    """

    def __init__(self, network: Network, steps: MakeSteps, *, dtype: torch.dtype = torch.float32) -> None:
        self.steps = steps(network) if dtype == torch.float32 else steps(network, dtype)
        self.device = next(network.parameters()).device
        self._rules = ReportRules.of(network.config)
        #: Emitted warnings; shared by runners of other thresholds.
        self._warned: set[str] = set()

    def with_config(self, config: DetectorConfig) -> EagerRunner:
        """Return a runner of the same network with other thresholds."""
        changed = copy.copy(self)
        changed.steps = copy.copy(self.steps)
        changed.steps.config = config
        changed._rules = ReportRules.of(config)
        return changed

    def __call__(self, clouds: Sequence[Tensor]) -> list[FrameResult]:
        """Detect objects in (N_i, C) float32 clouds on any device.

        A CPU computes each frame alone. With at least as many frames as threads, threads compute frames in
        parallel, densest first, so that no long frame starts last.
        """
        self._warn_of_autocast()
        with warnings.catch_warnings():
            # Each result reports its own overflow.
            warnings.simplefilter("ignore", CapacityWarning)
            if self.device.type != "cpu":
                return self._run(clouds)
            if not self.steps.threaded or sharing_threads() == 1 or len(clouds) < sharing_threads():
                return [result for cloud in clouds for result in run_on_worker(partial(self._run, [cloud]))]
            order = densest_first(clouds, self.steps.config.pillars.grid)
            found: dict[int, list[FrameResult]] = {}

            def compute(number: int) -> None:
                place = order[number]
                found[place] = self._run([clouds[place]])

            share_tasks(compute, len(order))
            return [result for place in range(len(clouds)) for result in found[place]]

    def _warn_of_autocast(self) -> None:
        """Warn once that autocast runs the network's own layers instead of planned ones."""
        steps = self.steps
        if not torch.is_autocast_enabled("cpu") or self.device.type != "cpu":
            return
        if isinstance(steps, EagerSteps) and steps.planned is not None and steps.dtype == torch.float32:
            emit_once([_SLOW_AUTOCAST], self._warned, PrecisionWarning)

    def profile(self, clouds: Sequence[Tensor], *, repeats: int) -> dict[str, float]:
        """Return median milliseconds of each stage of a batch."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CapacityWarning)
            frame = partial(self._run, clouds)
            if self.device.type != "cpu":
                return time_stages(frame, self.device, repeats=repeats)
            return run_on_worker(lambda: time_stages(frame, self.device, repeats=repeats))

    @torch.inference_mode()
    def _run(self, clouds: Sequence[Tensor], on_stage: StageRunner = run_step) -> list[FrameResult]:
        results = run_frame(self.steps, [cloud.to(self.device) for cloud in clouds], on_stage)
        return [result.with_rules(self._rules) for result in results]
