"""How long the stages of a frame take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from perception.run.fixed import FastNetwork

__all__ = ["stage_times"]


def stage_times(network: FastNetwork, points: Tensor, lengths: Tensor, *, repeats: int) -> dict[str, float]:
    """Median milliseconds of each stage, in the order of a frame; on a GPU each is a graph of its own.

    Args:
        network: one that has run before.
        points, lengths: as it takes them.
        repeats: frames.
    """
    times: dict[str, list[float]] = {}
    if points.device.type == "cpu" or network.impl == "reference":

        def measure(name: str, stage: Callable[[], None]) -> None:
            start = time.perf_counter()
            stage()
            times.setdefault(name, []).append((time.perf_counter() - start) * 1e3)

        for _ in range(repeats):
            network.run(points, lengths, measure)
    else:
        times = _replayed(network, points, lengths, repeats)
    return {name: statistics.median(taken) for name, taken in times.items()}


def _replayed(network: FastNetwork, points: Tensor, lengths: Tensor, repeats: int) -> dict[str, list[float]]:
    graphs: dict[str, torch.cuda.CUDAGraph] = {}

    def capture(name: str, stage: Callable[[], None]) -> None:
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            stage()

    network.run(points, lengths, capture)
    events = []
    # One frame is not counted. Stages run in turn: what one counts up, a later one clears.
    for _ in range(repeats + 1):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(graphs) + 1)]
        marks[0].record()
        for graph, mark in zip(graphs.values(), marks[1:], strict=True):
            graph.replay()
            mark.record()
        events.append(marks)
    torch.cuda.synchronize(points.device)
    return {
        name: [float(marks[at].elapsed_time(marks[at + 1])) for marks in events[1:]]
        for at, name in enumerate(graphs)
    }
