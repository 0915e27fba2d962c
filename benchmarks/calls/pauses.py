"""Calls of the detector as a sensor makes them: with pauses, in batches of changing size, and their tail."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calls.frames import SPARSE, eight_clouds
from benchmarks.calls.rows import timed
from benchmarks.lib.timing import time_once
from perception import Detector
from perception.types import FloatArray

#: Calls of a mode by its pause in seconds.
_CALLS = {0.0: 300, 0.01: 80, 0.1: 20}
#: Back-to-back calls for the tail; every hundredth scan is checked.
_TAIL_CALLS = 6000
_TAIL_FIELDS = ("p90", "p999", "longest", "slowest_that_check", "slowest_with_garbage_collection")
#: Bytes that are written to evict a core's own caches and part of the shared one.
_EVICTED_BYTES = 1 << 26
#: Cycles of the GPU in a second, fewer than it makes, so that its work ends before the pause does.
_CYCLES_A_SECOND = 1.4e9


def tail(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Thousands of calls back to back, and how many of the slowest ones are calls that check their scan."""
    clouds = eight_clouds(options)
    detector = Detector.from_pretrained(SPARSE, device=options.device)
    for points in clouds * 2:
        detector(points)
    detector.watch._frames = 0
    count = 200 if options.quick else _TAIL_CALLS
    collected: list[int] = []
    samples: list[float] = []

    def note(phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            collected.append(len(samples))

    gc.callbacks.append(note)
    try:
        for number in range(count):
            points = clouds[number % len(clouds)]
            start = time.perf_counter()
            detector(points)
            samples.append((time.perf_counter() - start) * 1e3)
    finally:
        gc.callbacks.remove(note)
    times = np.array(samples)
    checked = np.arange(count) % 100 == 99
    slowest = times.argsort()[-max(1, count // 100) :]
    return [
        timed(
            "detector(points), thousands of calls",
            samples,
            p90=round(float(np.quantile(times, 0.9)), 4),
            p999=round(float(np.quantile(times, 0.999)), 4),
            longest=round(float(times.max()), 4),
            slowest_that_check=round(float(checked[slowest].mean()), 3),
            slowest_with_garbage_collection=round(float(np.isin(slowest, collected).mean()), 3),
        ),
        timed("the same, calls that check their scan", list(times[checked])),
    ]


def sizes(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The first batch of each size after single calls, and batches with and without a graph for them."""
    clouds = eight_clouds(options)
    detector = Detector.from_pretrained(SPARSE, device=options.device)
    detector.warmup(clouds[0])
    detector(clouds[0])
    found = []
    for count in (2, 4, 8):
        first = _times(partial(detector.detect_batch, clouds[:count]), 1)
        found.append(timed(f"first batch of {count} after single calls", first))
    found += _batches(detector, clouds, "without a graph for batches", options)
    found.append(timed("warmup(frames=8)", _times(lambda: detector.warmup(clouds[0], frames=8), 1)))
    found.append(timed("first batch of 8 after it", _times(lambda: detector.detect_batch(clouds), 1)))
    return [*found, *_batches(detector, clouds, "after warmup(frames=8)", options)]


def _batches(
    detector: Detector, clouds: Sequence[FloatArray], when: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    found = []
    for count in (2, 4, 5, 6, 8):
        called = partial(detector.detect_batch, clouds[:count])
        samples = _times(called, 3 if options.quick else 40)
        found.append(timed(f"detect_batch of {count}, a frame, {when}", [one / count for one in samples]))
    return found


def pauses(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Calls after pauses that leave the GPU, the caches or the core asleep, and parts of these calls.

    Modes that differ in one cause only show which one makes a call after a pause slow.
    """
    clouds = eight_clouds(options)
    detector = Detector.from_pretrained(SPARSE, device=options.device)
    for points in clouds * 2:
        detector(points)
    memory = np.ones(_EVICTED_BYTES, np.uint8)

    def evict(seconds: float) -> None:
        _spin(seconds)
        memory[::64] += 1

    def busy(seconds: float) -> None:
        torch.cuda._sleep(int(seconds * _CYCLES_A_SECOND))
        time.sleep(seconds)

    def busy_spin(seconds: float) -> None:
        torch.cuda._sleep(int(seconds * _CYCLES_A_SECOND))
        _spin(seconds)

    def wake_early(seconds: float) -> None:
        time.sleep(seconds - 0.001)
        _spin(0.001)

    modes: dict[str, tuple[Callable[[float], None], Callable[[], AbstractContextManager[object]]]] = {
        "all asleep": (time.sleep, nullcontext),
        "core awake": (_spin, nullcontext),
        "core awake, caches overwritten": (evict, nullcontext),
        "core awake for the last millisecond": (wake_early, nullcontext),
    }
    if options.device == "cuda":
        modes |= {
            "GPU busy": (busy, nullcontext),
            "GPU busy, core awake": (busy_spin, nullcontext),
            "keep_warm(0.002)": (time.sleep, detector.keep_warm),
            "keep_warm(0.0005)": (time.sleep, lambda: detector.keep_warm(0.0005)),
        }
    found = [_paused("back to back", 0.0, detector, clouds, lambda seconds: None, options)]
    for seconds in (0.01, 0.1):
        for name, (pause, context) in modes.items():
            with context():
                called = f"{seconds * 1e3:.0f} ms pause, {name}"
                found.append(_paused(called, seconds, detector, clouds, pause, options))
    if options.device == "cuda":
        found += [_graph_alone(detector, clouds, seconds, options) for seconds in _CALLS]
    return found


def _paused(
    called: str,
    seconds: float,
    detector: Detector,
    clouds: Sequence[FloatArray],
    pause: Callable[[float], None],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Time calls that each follow a pause, with the median milliseconds of their parts."""
    count = 5 if options.quick else _CALLS[seconds]
    samples, parts = [], []
    with _parts(detector) as marks:
        for number in range(count):
            points = clouds[number % len(clouds)]
            pause(seconds)
            marks.clear()
            start = time.perf_counter()
            detector(points)
            end = time.perf_counter()
            samples.append((end - start) * 1e3)
            if len(marks) == 4:
                parts.append(np.diff([start, *marks, end]) * 1e3)
    names = ("before", "send", "launch", "wait", "after")
    medians = np.median(parts, axis=0).round(4).tolist() if parts else []
    return timed(called, samples, parts_ms=dict(zip(names, medians, strict=False)))


@contextmanager
def _parts(detector: Detector) -> Iterator[list[float]]:
    """Note when a call begins to send its scan, to launch its graph, to wait, and to report."""
    marks: list[float] = []
    graphs = detector._graphs
    graph = None if graphs is None else graphs._graphs.get(1)
    if graph is None or graph._host is None:
        yield marks
        return
    load, replay, fetch = graph._load, graph.replay, graph._out.fetch

    def noted(function: Callable[..., Any], *, last: bool = False) -> Callable[..., Any]:
        def call(*given: Any) -> None:
            marks.append(time.perf_counter())
            function(*given)
            if last:
                marks.append(time.perf_counter())

        return call

    patched: list[tuple[object, str, object]] = [
        (graph, "_load", noted(load)),
        (graph, "replay", noted(replay)),
        (graph._out, "fetch", noted(fetch, last=True)),
    ]
    for owner, name, function in patched:
        setattr(owner, name, function)
    try:
        yield marks
    finally:
        graph.replay = replay
        del graph._load, graph._out.fetch


def _graph_alone(
    detector: Detector, clouds: Sequence[FloatArray], seconds: float, options: argparse.Namespace
) -> dict[str, Any]:
    """Time the graph on the device after pauses: clocks that fell make it slower."""
    assert detector._graphs is not None
    graph = detector._graphs.graph_for([torch.from_numpy(clouds[0])])
    detector(clouds[0])
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for _ in range(5 if options.quick else _CALLS[seconds]):
        time.sleep(seconds)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end))
    return timed(f"graph alone, on the device, after {seconds * 1e3:.0f} ms", samples)


def _times(call: Callable[[], object], count: int) -> list[float]:
    """Return milliseconds of calls that wait for the device themselves."""
    return [time_once(call, torch.device("cpu")) for _ in range(count)]


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def details(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each row with parts or a tail, which the table of calls does not show."""
    found = []
    for row in rows:
        numbers = {name: row[name] for name in _TAIL_FIELDS if name in row} | row.get("parts_ms", {})
        if numbers:
            found.append(
                f"{row['call']}: {', '.join(f'{name} {value:.3f}' for name, value in numbers.items())}"
            )
    return found
