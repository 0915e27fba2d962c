"""Timing of GPU work in CUDA graphs, where launches from Python cost nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch

from benchmarks.lib.timing import Clock, Side, Summary, interleave

#: A graph holds enough calls to last this long, up to a number of calls.
_GRAPH_MS, _MOST_CALLS = 0.3, 20


def captured(run: Side) -> Side:
    """Replays ``run``, which is called once before it is captured in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def can_capture(run: Side) -> bool:
    """Return False if calls wait for the device, as many libraries do."""
    try:
        captured(run)
    except Exception:  # Libraries raise all kinds.
        torch.cuda.synchronize()
        return False
    return True


def device_ms(run: Side) -> float:
    """Milliseconds of one call on the device, after one that is not measured."""
    run()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def call_microseconds(
    runs: Mapping[str, Side],
    device: torch.device,
    *,
    rounds: int,
    budget_s: float,
    seed: int,
    eager: Collection[str] = (),
) -> dict[str, list[float]]:
    """Microseconds of a call, by side and round; all sides are interleaved.

    On a GPU sides are timed by events, in CUDA graphs of several calls; on a CPU by the wall clock.

    Args:
        runs: what to call, by name.
        device: a GPU or the CPU.
        rounds, budget_s, seed: see :func:`benchmarks.lib.timing.interleave`.
        eager: sides that are called eagerly, not in a graph.
    """
    sides: dict[str, Side] = {}
    calls = dict.fromkeys(runs, 1)
    for name, run in runs.items():
        if device.type == "cpu" or name in eager:
            sides[name] = run
            continue
        calls[name] = max(1, min(_MOST_CALLS, math.ceil(_GRAPH_MS / device_ms(run))))
        sides[name] = captured(_repeated(run, calls[name]))
    clock: Clock = "wall" if device.type == "cpu" else "device"
    samples = interleave(sides, device, rounds=rounds, warmup=1, budget_s=budget_s, clock=clock, seed=seed)
    return {name: [value * 1e3 / calls[name] for value in times] for name, times in samples.items()}


def microseconds(samples: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of times in microseconds."""
    summary = Summary.of(samples)
    return {
        "median": round(summary.median_ms, 2),
        "lower_quartile": round(summary.lower_quartile_ms, 2),
        "upper_quartile": round(summary.upper_quartile_ms, 2),
    }


def _repeated(run: Side, count: int) -> Side:
    def repeated() -> None:
        for _ in range(count):
            run()

    return repeated
