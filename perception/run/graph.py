"""Whole frames as CUDA graphs: buffers, capture, replay, and growth when a frame does not fit."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from perception.config import DetectorConfig, Limits
from perception.model.network import Network
from perception.run import transfer
from perception.run.batch import FixedScans, FrameBoxes
from perception.run.fixed import FixedSteps
from perception.run.profile import time_stage_graphs, time_stages
from perception.run.results import FrameResult
from perception.run.transfer import InputBlock, OutputBlock
from perception.stages.neck import list_reach, work_share
from perception.stages.report import Reported, ReportLayout, ReportRules, fixed_report
from sparse_core.common.libraries import module_available
from sparse_core.errors import CapacityWarning
from sparse_core.kernels.ahead import compile_ahead
from sparse_core.kernels.op import Impl

Overflow = Literal["grow", "warn"]

#: What first frames of the shipped weights compile, the longest first (`benchmarks.detector.list_kernels`).
_KERNELS = Path(__file__).with_name("kernels.json")
#: Smallest room for points and for pillars of a frame.
_LEAST_POINTS, _LEAST_PILLARS = 1 << 15, 1 << 13
#: Room beyond what the frame that did not fit needs.
_SLACK = 1.25
#: Cells of the neck's map, all frames together, up to which all are computed: launches cost more than cells.
_DENSE_CELLS = 1 << 13
#: Share of the neck's work above which lists of cells are not worth their tables.
_MOST_SHARE = 0.6


def why_no_graph(config: DetectorConfig, steps: type[FixedSteps] | None, device: torch.device) -> str | None:
    """Return why frames cannot run as CUDA graphs, as a clause for messages; None if they can.

    Args:
        config: configuration of the network.
        steps: ``graph_steps(config)`` of :mod:`perception.registry`.
        device: device to run on.
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
    """Begin to compile what first frames need, once; done when the result is."""
    if device.type != "cuda" or dtype != torch.float16:
        return None
    return compile_ahead(_KERNELS, torch.cuda.current_device() if device.index is None else device.index)


class Room(NamedTuple):
    """What a graph has room for.

    Attributes:
        batch_size: frames.
        points: points a frame.
        capacities: active cells of each level, all frames together.
        nearby: cells of each list of cells near active ones, all frames together; none where the neck is
            computed everywhere.
    """

    batch_size: int
    points: int
    capacities: tuple[int, ...]
    nearby: tuple[int, ...] = ()

    @property
    def limits(self) -> tuple[int, ...]:
        """Active cells of each level and list that there is room for."""
        return (*self.capacities, *self.nearby)

    def active(self, numbers: list[int]) -> list[int]:
        """Return how many there are of those, out of ``FrameBoxes.numbers``."""
        return numbers[2 * self.batch_size :][: len(self.limits)]

    def holds(self, other: Room) -> bool:
        """Whether there is room for all that the other has room for; a neck computed everywhere has."""
        if other.points > self.points or not all(map(int.__le__, other.capacities, self.capacities)):
            return False
        if not self.nearby:
            return True
        return bool(other.nearby) and all(map(int.__le__, other.nearby, self.nearby))


@dataclass(eq=False)
class FrameGraph:
    """One graph: static input, replay, static output.

    Attributes:
        room: what it has room for.
        steps: what it captured.
        entry: its input.
        found: output, overwritten by every replay.
        words: (W,) int32, what is reported of it (:func:`~perception.stages.report.fixed_report`),
            overwritten too.
        rules: by which it is reported: a graph has addresses only, and what it reads is held here.
        replay: computes both.
    """

    room: Room
    steps: FixedSteps
    entry: InputBlock
    found: FrameBoxes
    words: Tensor
    rules: ReportRules
    replay: Callable[[], None]

    def __post_init__(self) -> None:
        frames, most, width = self.found.embeddings.shape
        self.layout = ReportLayout(frames, most, len(self.found.numbers), width)
        device = self.steps.device
        self._host: InputBlock | None = None
        self._sent: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._host = InputBlock(self.room.batch_size, self.room.points)
            self._out = OutputBlock(self.words)
            self._reported = self.layout.views(self._out.host_words.numpy())
            self._sent, self._sending = torch.cuda.Event(), False

    @property
    def scans(self) -> FixedScans:
        """The input as steps take it."""
        return self.entry.scans

    @classmethod
    def capture(cls, steps: FixedSteps, room: Room, clouds: Sequence[Tensor]) -> FrameGraph:
        """Allocate the input and capture a batch.

        Args:
            steps: to be captured; those of plain torch are computed anew at every replay, as on a CPU.
            room: for the graph.
            clouds: (N_i, 4) float32 each, for the runs before the capture, which compile and tune kernels.
        """
        device = steps.device
        rules = ReportRules.of(steps.config, device)

        def reported(found: FrameBoxes) -> Tensor:
            labels, vectors = found.labels.to(torch.int32), found.embeddings
            numbers = found.numbers.to(torch.int32)
            return fixed_report(*found[:2], labels, found.counts, numbers, vectors, rules, impl=steps.impl)

        entry = InputBlock(room.batch_size, room.points, device=device)
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
            # The first run tells what the second, and the graph, choose their tiles for.
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
        """Copy clouds, (N_i, 4) float32 each, into the input without waiting for it."""
        self._load(clouds)
        if self._sent is not None:
            self._sent.record()
            self._sending = True

    def _load(self, clouds: Sequence[Tensor]) -> None:
        if self._host is None or self._sent is None:
            self.entry.send(self.entry, clouds)
            return
        if self._sending:
            # The copies of :meth:`load` read this block; who runs waits for its own.
            self._sent.synchronize()
            self._sending = False
        self.entry.send(self._host, clouds)

    def run(self, clouds: Sequence[Tensor]) -> Reported:
        """What clouds, (N_i, 4) float32 each, hold, until the next run; in inference mode."""
        self._load(clouds)
        self.replay()
        if self._host is None:
            return self.layout.views(self.words.numpy())
        self._out.fetch()
        return self._reported


class FrameRunner:
    """Detects objects frame by frame in as few graphs as the sizes of the frames need.

    Args:
        network: folded, on the device to run on; sparse with layers that dilate, dense, or of another kind
            that has steps for graphs.
        steps: its steps for graphs, ``graph_steps(config)`` of :mod:`perception.registry`.
        dtype: of the features.
        overflow: what happens when a frame does not fit the room for active cells. ``"grow"``: a graph with
            more room is captured and the frame computed again, so that nothing is lost. ``"warn"``: what
            does not fit is left out and a ``CapacityWarning`` tells how much.

    On large maps the neck is computed near active cells only; a frame whose cells are near most of the map
    has a graph captured that computes it everywhere, which gives the same boxes.
        impl: see :class:`~perception.run.fixed.FixedSteps`.
        config: the network's own with other thresholds; None: the network's own.
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
        self._made: Any = steps
        if steps is None:
            raise ValueError(f"detectors of kind {self.config.backbone.kind!r} have no graphs")
        self._graphs: dict[int, FrameGraph] = {}
        self._lock = threading.Lock()
        self._compiling = start_compiling(self.device, dtype)
        if self.device.type == "cuda":
            transfer.prepare()

    def graph_for(self, clouds: Sequence[Tensor], room: Room | None = None) -> FrameGraph:
        """The graph for batches of this size, captured anew if it has too little room.

        Args:
            clouds: (N_i, 4) float32 each; the batch that the graph is to be captured with.
            room: for active cells; None: what there is already, or a first guess.
        """
        batch_size, points = len(clouds), max(map(len, clouds))
        known = self._graphs.get(batch_size)
        if room is None:
            if known is not None and points <= known.room.points:
                return known
            room = self._guess_room(batch_size) if known is None else known.room
        room = room._replace(points=_rounded(points, _LEAST_POINTS))
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
        # The old graph's memory is given back before the new one asks for its own.
        self._graphs.pop(batch_size, None)
        with torch.inference_mode():
            self._graphs[batch_size] = FrameGraph.capture(self._steps(room), room, clouds)
        return self._graphs[batch_size]

    def _steps(self, room: Room) -> FixedSteps:
        lists = {"nearby": room.nearby} if self._made.sparse else {}
        steps: FixedSteps = self._made(
            self.network, batch_size=room.batch_size, capacities=room.capacities, **lists,
            dtype=self.dtype, impl=self.impl, config=self.config,
        )  # fmt: skip
        return steps

    def _guess_room(self, batch_size: int) -> Room:
        config, first = self.network.config, _LEAST_PILLARS * batch_size
        # Of a dense network only pillars are active cells.
        levels = len(config.backbone.channels) if self._made.sparse else 1
        lists = list_reach(config.neck.blocks) + 1
        if config.pillars.open:
            # Nothing bounds the cells; where there is no second try there is more room.
            first *= 1 if self.overflow == "grow" else 4
            return Room(batch_size, 0, (first,) * levels, (first,) * lists)
        rows, columns = config.pillars.grid_shape
        cells = self._neck_cells(batch_size)
        most = [
            batch_size * math.ceil(rows / 2**level) * math.ceil(columns / 2**level) for level in range(levels)
        ]
        room = Room(batch_size, 0, tuple(min(count, first) for count in most))
        if not self._made.sparse or config.neck.blocks == 0 or cells <= _DENSE_CELLS:
            return room
        # A runner that may not grow has room for every cell.
        near = min(cells, first) if self.overflow == "grow" else cells
        return room._replace(nearby=(near,) * lists)

    def _neck_cells(self, batch_size: int) -> int:
        rows, columns = self.network.config.pillars.grid_shape
        return batch_size * rows * columns // self.network.config.backbone.stride**2

    def __call__(self, clouds: Sequence[Tensor]) -> list[FrameResult]:
        """Boxes of a batch of clouds; a ``CapacityWarning`` tells what was left out.

        Args:
            clouds: (N_i, 4) float32 each, on any device.
        """
        results = self.frames(clouds)
        warn_of_overflow(results)
        return results

    def frames(self, clouds: Sequence[Tensor]) -> list[FrameResult]:
        """The same, and only the results tell what was left out."""
        # One graph has one input and one output.
        with self._lock, torch.inference_mode():
            graph = self.graph_for(clouds)
            while True:
                reported = graph.run(clouds)
                numbers = reported.numbers.tolist()
                larger = self.growth(graph, numbers)
                if larger is None:
                    return self.results(reported, numbers, graph)
                graph = self.graph_for(clouds, larger)

    def with_config(self, config: DetectorConfig) -> FrameRunner:
        """A runner of the same network with other thresholds; it captures graphs of its own."""
        return FrameRunner(
            self.network, self._made, dtype=self.dtype, overflow=self.overflow, impl=self.impl, config=config
        )

    def profile(self, clouds: Sequence[Tensor], *, repeats: int) -> dict[str, float]:
        """Milliseconds of each stage of a batch: each a graph of its own on a GPU; medians."""
        graph = self.graph_for(clouds)
        graph.load(clouds)
        with torch.inference_mode():
            if graph.steps.capturable:
                return time_stage_graphs(graph.steps, graph.scans, repeats=repeats)
            return time_stages(partial(graph.steps, graph.scans), self.device, repeats=repeats)

    def growth(self, graph: FrameGraph, numbers: list[int]) -> Room | None:
        """Room that the last batch needs, if it did not fit and the runner may grow."""
        if self.overflow != "grow":
            return None
        room = graph.room
        active = room.active(numbers)
        fits = all(map(int.__le__, active, room.limits))
        if fits and (not room.nearby or self.config.pillars.open):
            return None
        levels, lists = active[: len(room.capacities)], active[len(room.capacities) :]
        needed = room._replace(capacities=_grown(levels, room.capacities))
        if self.config.pillars.open:
            needed = needed._replace(nearby=_grown(lists, room.nearby))
        elif lists:
            cells = self._neck_cells(room.batch_size)
            near = tuple(min(cells, count) for count in _grown(lists, room.nearby))
            needed = needed._replace(nearby=() if work_share(lists, cells) > _MOST_SHARE else near)
        return None if needed == room else needed

    def results(self, reported: Reported, numbers: list[int], graph: FrameGraph) -> list[FrameResult]:
        """Results of a batch that is on the host, copies of their own.

        Args:
            reported: what the graph wrote.
            numbers: its numbers.
            graph: which did.
        """
        batch, most = graph.room.batch_size, graph.room.limits
        active = graph.room.active(numbers)
        far = numbers[2 * batch + len(most) : -2 * batch] or [0] * batch
        last_peaks, last_proposals = numbers[-2 * batch : -batch], numbers[-batch:]
        limits = self.config.limits
        overflow = sum(count - limit for count, limit in zip(active, most, strict=True) if count > limit)
        counts, before = reported.counts.tolist(), [*numbers[batch : 2 * batch], active[0]]
        embedded = self.network.embedding is not None
        results = []
        for frame in range(batch):
            pillars = before[frame + 1] - before[frame]
            # A frame without a pillar has no boxes, whatever the biases of the network say.
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
                    embeddings=reported.embeddings[frame, :count].copy() if embedded else None,
                )
            )
        return results


def warn_of_overflow(results: Sequence[FrameResult]) -> None:
    """Warn of what a batch left out."""
    for message in dict.fromkeys(text for result in results for text in result.capacity_messages()):
        warnings.warn(message, CapacityWarning, stacklevel=3)


def _grown(active: Sequence[int], capacities: Sequence[int]) -> tuple[int, ...]:
    """The capacities, with more room where active cells do not fit."""
    return tuple(
        _rounded(int(count * _SLACK), _LEAST_PILLARS) if count > room else room
        for count, room in zip(active, capacities, strict=True)
    )


def _rounded(count: int, least: int) -> int:
    """The next of a few sizes: powers of two and the middles between them, at least ``least``."""
    if count <= least:
        return least
    power = 1 << (count - 1).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power
