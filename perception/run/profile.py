"""Measure the stages of a frame."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from perception.run.batch import FixedScans
from perception.run.fixed import FixedSteps
from perception.run.program import StageRunner

GivenT = TypeVar("GivenT")
MadeT = TypeVar("MadeT")


def time_stages(
    frame: Callable[[StageRunner], object], device: torch.device, *, repeats: int
) -> dict[str, float]:
    """Return median milliseconds of each stage, in order; a stage ends when the device is idle.

    Args:
        frame: runs a frame, each stage through its argument.
        repeats: measured frames, after one warm-up frame.
    """
    times: dict[str, list[float]] = {}

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def measure(name: str, step: Callable[[GivenT], MadeT], given: GivenT) -> MadeT:
        start = now()
        made = step(given)
        times.setdefault(name, []).append((now() - start) * 1e3)
        return made

    for _ in range(repeats + 1):
        frame(measure)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def time_stage_graphs(steps: FixedSteps, scans: FixedScans, *, repeats: int) -> dict[str, float]:
    """Capture each stage as a separate CUDA graph and return its median milliseconds.

    Args:
        steps: steps that have run before.
        scans: input of the steps.
        repeats: measured frames, after one warm-up frame.
    """
    graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def capture(name: str, step: Callable[[GivenT], MadeT], given: GivenT) -> MadeT:
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            return step(given)

    steps(scans, capture)
    frames = []
    # Replay whole frames: later stages clear the counters of earlier ones.
    for _ in range(repeats + 1):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(graphs) + 1)]
        marks[0].record()
        for graph, mark in zip(graphs.values(), marks[1:], strict=True):
            graph.replay()
            mark.record()
        frames.append(marks)
    torch.cuda.synchronize(steps.device)
    return {
        name: statistics.median(float(marks[at].elapsed_time(marks[at + 1])) for marks in frames[1:])
        for at, name in enumerate(graphs)
    }
