"""Frames as CUDA graphs: buffers, capture, replay, and growth."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from perception.config import DetectorConfig, Limits
from perception.model.network import Network
from perception.model.refine import AXES
from perception.run import transfer
from perception.run.batch import FixedScans, FrameBoxes
from perception.run.fixed import FixedSteps
from perception.run.profile import time_stage_graphs, time_stages
from perception.run.results import FrameResult
from perception.run.room import Room, first_room, needed_room
from perception.run.transfer import InputBlock, OutputBlock
from perception.stages.report import Reported, ReportLayout, ReportRules, fixed_report
from perception.types import EMBEDDING_DIM
from sparse_core.common.libraries import module_available
from sparse_core.errors import CapacityWarning
from sparse_core.kernels.op import Impl
from sparse_core.kernels.precompile import compile_ahead

Overflow = Literal["grow", "warn"]

#: Kernels of the first frame of the shipped weights, longest first (`benchmarks.detector.list_kernels`).
KERNELS = Path(__file__).with_name("kernels.json")
#: Most frames of a graph.
_LARGEST_BATCH = 8


def why_no_graph(config: DetectorConfig, steps: type[FixedSteps] | None, device: torch.device) -> str | None:
    """Return why frames cannot run as CUDA graphs, as a clause for messages; None if they can.

    Args:
        config: configuration of the network.
        steps: ``graph_steps(config)`` of :mod:`perception.registry`.
    """
    if steps is None:
        return f"detectors of kind {config.backbone.kind!r} have no steps for graphs"
    if steps.sparse and not config.backbone.dilating:
        return "the strided layers of the sparse backbone do not dilate (backbone.dilating)"
    if config.refine.enabled and len(config.refine.channels) != 3:
        return "the refinement does not have three point layers (refine.channels)"
    if config.backbone.impl != "auto":
        return f"the network is set to impl={config.backbone.impl!r}"
    if config.pillars.open and config.neck.blocks == 0:
        return "the detector has no range (pillars.range_m: null) and its neck has no block (neck.blocks)"
    if device.type != "cuda":
        return f"the device is {device}"
    if not module_available("triton"):
        return "Triton is not installed"
    return None


def start_compiling(device: torch.device, dtype: torch.dtype) -> Future[None] | None:
    """Start compiling the kernels of the first frame, once per process."""
    if device.type != "cuda" or dtype != torch.float16:
        return None
    return compile_ahead(KERNELS, torch.cuda.current_device() if device.index is None else device.index)


@dataclass(eq=False)
class FrameGraph:
    """One graph: static input, replay, static output.

    Attributes:
        room: capacities.
        steps: captured steps.
        entry: input block.
        found: output, overwritten by every replay.
        words: (W,) int32 report of ``found`` (:func:`~perception.stages.report.fixed_report`), also
            overwritten.
        rules: reporting rules, held here because a graph holds addresses only.
        replay: computes ``found`` and ``words``.
    """

    room: Room
    steps: FixedSteps
    entry: InputBlock
    found: FrameBoxes
    words: Tensor
    rules: ReportRules
    replay: Callable[[], None]

    def __post_init__(self) -> None:
        frames, most, width = self.found.vectors.shape
        self.layout = ReportLayout(frames, most, len(self.found.numbers), width)
        device = self.steps.device
        self._host: InputBlock | None = None
        self._sent: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._host = InputBlock(self.room.batch_size, self.room.points, self.entry.columns)
            self._out = OutputBlock(self.words)
            self._reported = self.layout.views(self._out.host_words.numpy())
            self._sent, self._sending = torch.cuda.Event(), False

    @property
    def scans(self) -> FixedScans:
        """Input of the steps."""
        return self.entry.scans

    @classmethod
    def capture(cls, steps: FixedSteps, room: Room, clouds: Sequence[Tensor]) -> FrameGraph:
        """Allocate the input and capture a batch.

        Args:
            steps: steps to capture; reference implementations run again at every replay.
            room: capacities.
            clouds: (N_i, C) float32 each, for warm-up runs, which compile and tune kernels.
        """
        device = steps.device
        rules = ReportRules.of(steps.config, device)

        def reported(found: FrameBoxes) -> Tensor:
            labels, vectors = found.labels.to(torch.int32), found.vectors
            numbers = found.numbers.to(torch.int32)
            return fixed_report(*found[:2], labels, found.counts, numbers, vectors, rules, impl=steps.impl)

        columns = steps.config.pillars.columns
        entry = InputBlock(room.batch_size, room.points, columns, device=device)
        scans = entry.scans
        for frame, cloud in enumerate(clouds):
            scans.points[frame, : len(cloud)].copy_(cloud)
        scans.lengths.copy_(torch.tensor([len(cloud) for cloud in clouds], dtype=torch.int32))
        if not steps.capturable:
            found = steps(scans)
            made = cls(room, steps, entry, found, reported(found), rules, lambda: None)

            def compute() -> None:
                made.found = steps(scans)
                made.words.copy_(reported(made.found))

            made.replay = compute
            return made
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            # The counts of the first run decide the tiles of the second run and of the graph.
            numbers = steps(scans).numbers.tolist()
            steps.choose_tiles(room.active(numbers))
            steps(scans)
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = steps(scans)
            words = reported(found)
        return cls(room, steps, entry, found, words, rules, graph.replay)

    @torch.inference_mode()
    def load(self, clouds: Sequence[Tensor]) -> None:
        """Copy clouds, (N_i, C) float32 each, into the input, without waiting."""
        self._load(clouds)
        if self._sent is not None:
            self._sent.record()
            self._sending = True

    def _load(self, clouds: Sequence[Tensor]) -> None:
        if self._host is None or self._sent is None:
            self.entry.send(self.entry, clouds)
            return
        if self._sending:
            # The copies of an earlier load() may still read the host block.
            self._sent.synchronize()
            self._sending = False
        self.entry.send(self._host, clouds)

    def run(self, clouds: Sequence[Tensor], meanwhile: Callable[[], None] | None = None) -> Reported:
        """Run clouds, (N_i, C) float32 each; the result is valid until the next run. Needs inference mode.

        Args:
            clouds: one cloud per frame.
            meanwhile: called while the device computes, before the host waits for it.
        """
        self._load(clouds)
        self.replay()
        if meanwhile is not None:
            meanwhile()
        if self._host is None:
            return self.layout.views(self.words.numpy())
        self._out.fetch()
        return self._reported


class FrameRunner:
    """Runs frames as CUDA graphs, one graph per batch size, and captures larger ones as needed.

    :meth:`frames` captures a graph for each batch size. :meth:`serve` captures only if there is no graph that
    could compute the frames, so that a call does not wait seconds for a capture.

    On large maps the neck is computed near active cells only. If these cover most of the map, a graph with a
    dense neck is captured, which gives the same boxes.

    Args:
        network: folded network, on the device to run on.
        steps: ``graph_steps(config)`` of :mod:`perception.registry`.
        overflow: what to do with a frame that has too many active cells: ``"grow"`` captures a larger graph
            and computes the frame again; ``"warn"`` drops cells and emits a ``CapacityWarning``.
        impl: see :class:`~perception.run.fixed.FixedSteps`.
        config: configuration with other thresholds; None: the network's.
    """

    def __init__(
        self,
        network: Network,
        steps: type[FixedSteps] | None,
        *,
        dtype: torch.dtype = torch.float16,
        overflow: Overflow = "grow",
        impl: Impl = "auto",
        config: DetectorConfig | None = None,
    ) -> None:
        if overflow not in ("grow", "warn"):
            raise ValueError(f"overflow must be 'grow' or 'warn', got {overflow!r}")
        self.network, self.dtype, self.overflow, self.impl = network, dtype, overflow, impl
        self.config = config or network.config
        self.device = next(network.parameters()).device
        self._make_steps: Any = steps
        if steps is None:
            raise ValueError(f"detectors of kind {self.config.backbone.kind!r} have no steps for CUDA graphs")
        self._graphs: dict[int, FrameGraph] = {}
        self._lock, self._streams = threading.Lock(), 0
        self._empty = torch.zeros((0, self.config.pillars.columns), dtype=torch.float32)
        self._compiling = start_compiling(self.device, dtype)
        if self.device.type == "cuda":
            transfer.prepare()

    def graph_for(self, clouds: Sequence[Tensor], room: Room | None = None) -> FrameGraph:
        """Return the graph for this batch size; capture a new one if it is missing or too small.

        Args:
            clouds: (N_i, C) float32 each, for the capture.
            room: required capacities; None: those of the present graph, or a first guess.
        """
        batch_size, points = len(clouds), max(map(len, clouds))
        known = self._graphs.get(batch_size)
        if room is None:
            if known is not None and points <= known.room.points:
                return known
            room = self._first_room(batch_size) if known is None else known.room
        room = room.with_points(points, self.config)
        if known is not None:
            if known.room.holds(room):
                return known
            room = room._replace(
                points=max(room.points, known.room.points),
                capacities=tuple(map(max, room.capacities, known.room.capacities)),
                nearby=tuple(map(max, room.nearby, known.room.nearby)),
            )
        del known
        if self._compiling is not None:
            self._compiling.result()
        # Free the memory of the old graph before the capture.
        self._graphs.pop(batch_size, None)
        with torch.inference_mode():
            self._graphs[batch_size] = FrameGraph.capture(self._steps(room), room, clouds)
        return self._graphs[batch_size]

    def _first_room(self, batch_size: int) -> Room:
        sparse, grows = self._make_steps.sparse, self.overflow == "grow"
        return first_room(self.network.config, batch_size, sparse=sparse, grows=grows)

    def _steps(self, room: Room) -> FixedSteps:
        lists = {"nearby": room.nearby} if self._make_steps.sparse else {}
        steps: FixedSteps = self._make_steps(
            self.network, batch_size=room.batch_size, capacities=room.capacities, **lists,
            dtype=self.dtype, impl=self.impl, config=self.config,
        )  # fmt: skip
        return steps

    def __call__(self, clouds: Sequence[Tensor]) -> list[FrameResult]:
        """Detect objects in clouds, (N_i, C) float32 each; warn about dropped cells."""
        results = self.frames(clouds)
        warn_of_overflow(results)
        return results

    def frames(
        self, clouds: Sequence[Tensor], meanwhile: Callable[[], None] | None = None
    ) -> list[FrameResult]:
        """Detect objects in clouds without Python warnings; results report dropped cells.

        Args:
            clouds: (N_i, C) float32 each.
            meanwhile: called once while the device computes.
        """
        # A graph has one input and one output, so frames must not overlap.
        with self._lock:
            return self._computed(clouds, meanwhile)

    @torch.inference_mode()
    def _computed(self, clouds: Sequence[Tensor], meanwhile: Callable[[], None] | None) -> list[FrameResult]:
        graph = self.graph_for(clouds)
        while True:
            reported, meanwhile = graph.run(clouds, meanwhile), None
            numbers = reported.numbers.tolist()
            larger = self.growth(graph, numbers)
            if larger is None:
                return self.results(reported, numbers, graph)
            graph = self.graph_for(clouds, larger)

    def rehearse(self) -> bool:
        """Compute an empty frame, unless a call or a stream is running or there is no graph for one frame.

        Returns:
            True if the frame was computed.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._streams or 1 not in self._graphs:
                return False
            with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
                self._computed([self._empty], None)
            return True
        finally:
            self._lock.release()

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Compute no empty frames within the block, because streams share the graph without waiting."""
        with self._lock:
            self._streams += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1

    def prepare(self, cloud: Tensor, frames: int) -> None:
        """Capture the graphs that serve up to so many frames like a cloud, and the one for a single frame."""
        for size in sorted({1, min(frames, _LARGEST_BATCH)}):
            self.frames([cloud] * size)

    def split(self, count: int) -> list[int]:
        """Return numbers of frames, the parts in which :meth:`serve` should take ``count`` frames.

        Parts fit the existing graphs. Before the first capture, the first part decides its size.
        """
        sizes = sorted(self._graphs) or [min(count, _LARGEST_BATCH)]
        parts: list[int] = []
        while count:
            if _padded_size(sizes, count) is not None:
                return [*parts, count]
            parts.append(max((size for size in sizes if size <= count), default=1))
            count -= parts[-1]
        return parts

    def serve(
        self, clouds: Sequence[Tensor], meanwhile: Callable[[], None] | None = None
    ) -> list[FrameResult]:
        """Return :meth:`frames` of a part of :meth:`split`; a larger graph computes empty scans too."""
        count = len(clouds)
        size = _padded_size(sorted(self._graphs), count)
        if size is None or size == count:
            return self.frames(clouds, meanwhile)
        return self.frames([*clouds, *[self._empty] * (size - count)], meanwhile)[:count]

    def with_config(self, config: DetectorConfig) -> FrameRunner:
        """Return a runner of the same network with other thresholds and separate graphs."""
        return FrameRunner(
            self.network,
            self._make_steps,
            dtype=self.dtype,
            overflow=self.overflow,
            impl=self.impl,
            config=config,
        )

    def profile(self, clouds: Sequence[Tensor], *, repeats: int) -> dict[str, float]:
        """Return median milliseconds of each stage of a batch; on a GPU each stage is a separate graph."""
        graph = self.graph_for(clouds)
        graph.load(clouds)
        with torch.inference_mode():
            if graph.steps.capturable:
                return time_stage_graphs(graph.steps, graph.scans, repeats=repeats)
            return time_stages(partial(graph.steps, graph.scans), self.device, repeats=repeats)

    def growth(self, graph: FrameGraph, numbers: list[int]) -> Room | None:
        """Return the capacities that the last batch needs; None if it fitted or the runner cannot grow."""
        if self.overflow != "grow":
            return None
        return needed_room(graph.room, numbers, self.config)

    def results(self, reported: Reported, numbers: list[int], graph: FrameGraph) -> list[FrameResult]:
        """Copy the results of a batch out of the graph's host buffer.

        Args:
            reported: report of the graph.
            numbers: its ``numbers`` as a list.
            graph: graph that ran.
        """
        batch, most = graph.room.batch_size, graph.room.limits
        active = graph.room.active(numbers)
        far = numbers[2 * batch + len(most) : -2 * batch] or [0] * batch
        last_peaks, last_proposals = numbers[-2 * batch : -batch], numbers[-batch:]
        limits = self.config.limits
        overflow = sum(count - limit for count, limit in zip(active, most, strict=True) if count > limit)
        counts, before = reported.counts.tolist(), [*numbers[batch : 2 * batch], active[0]]
        embedded, moving = self.network.embedding is not None, self.network.velocity is not None
        results = []
        for frame in range(batch):
            pillars = before[frame + 1] - before[frame]
            # A frame without pillars has no boxes, although the biases may produce some.
            count = counts[frame] if pillars > 0 else 0
            results.append(
                FrameResult(
                    reported.boxes[frame, :count].copy(),
                    reported.scores[frame, :count].copy(),
                    reported.labels[frame, :count].copy(),
                    numbers[frame],
                    pillars,
                    overflow,
                    far=far[frame],
                    counts=Limits(
                        limits.peaks if last_peaks[frame] >= 0 else 0,
                        limits.proposals if last_proposals[frame] >= 0 else 0,
                        count,
                    ),
                    embeddings=reported.embeddings[frame, :count, :EMBEDDING_DIM].copy()
                    if embedded
                    else None,
                    velocities=reported.embeddings[frame, :count, -AXES:].copy() if moving else None,
                )
            )
        return results


def _padded_size(sizes: Sequence[int], count: int) -> int | None:
    """Return the smallest size that ``count`` frames fill by more than half; a frame less costs little."""
    return next((size for size in sizes if size // 2 < count <= size), None)


def warn_of_overflow(results: Sequence[FrameResult]) -> None:
    """Emit a ``CapacityWarning`` for cells that a batch dropped."""
    for message in dict.fromkeys(text for result in results for text in result.capacity_messages()):
        warnings.warn(message, CapacityWarning, stacklevel=3)
