"""Interleaved timing of several detectors on the same scans."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perception.comparison.sides import SPARSE, Side

#: A slow side takes part in every n-th round.
_SLOW_EVERY = 10
#: Cycles that keep the GPU busy while a call is queued.
_HEAD_START_CYCLES = 100_000


@dataclass(frozen=True)
class SideTimes:
    """Times of one side.

    Attributes:
        name: of the side.
        frame_ms: of every measured frame.
        batch_ms: of every measured batch.
        batch_size: frames per batch; 0 if no batch was measured.
        memory_mb: device memory in use; None on a CPU.
    """

    name: str
    frame_ms: list[float]
    batch_ms: list[float]
    batch_size: int
    memory_mb: float | None

    @property
    def p50_ms(self) -> float:
        """Median of single frames."""
        return float(np.percentile(self.frame_ms, 50))

    @property
    def p99_ms(self) -> float:
        """99th percentile of single frames."""
        return float(np.percentile(self.frame_ms, 99))

    @property
    def batch_frames_per_s(self) -> float | None:
        """Frames per second in batches."""
        return 1e3 * self.batch_size / float(np.median(self.batch_ms)) if self.batch_ms else None


@dataclass
class Comparison:
    """Result of :func:`compare`.

    Attributes:
        sides: sides that ran, in order.
        left_out: name of each side that could not run to the reason.
    """

    sides: list[SideTimes] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def times_sparse(self, side: SideTimes) -> float:
        """Return how many times slower a side is than the sparse detector: median ratio over interleaved
        frames.
        """
        sparse = next(entry for entry in self.sides if entry.name == SPARSE)
        if len(side.frame_ms) != len(sparse.frame_ms):
            return side.p50_ms / sparse.p50_ms
        return float(np.median(np.array(side.frame_ms) / np.array(sparse.frame_ms)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "sides": [
                {
                    "name": side.name,
                    "p50_ms": side.p50_ms,
                    "p99_ms": side.p99_ms,
                    "times_sparse": self.times_sparse(side),
                    "batch_size": side.batch_size,
                    "batch_frames_per_s": side.batch_frames_per_s,
                    "memory_mb": side.memory_mb,
                    "frames_measured": len(side.frame_ms),
                }
                for side in self.sides
            ],
            "left_out": self.left_out,
        }


def compare(
    sides: Sequence[Side],
    clouds: Sequence[Tensor],
    device: torch.device,
    *,
    rounds: int,
    batch_size: int,
    on_step: Callable[[], None] = lambda: None,
) -> Comparison:
    """Time all sides on all clouds, interleaved, so that a busy machine slows all of them equally.

    Args:
        sides: the first must be the sparse one.
        clouds: (N_i, C) float32 each, at least one.
        device: where the sides run.
        rounds: measured calls of each side on each cloud.
        batch_size: frames per batch for throughput; with fewer clouds no batch is measured.
        on_step: called after each side is built, each cloud and each batch: ``len(sides) + len(clouds) +
            len(clouds) // batch_size`` times.

    Raises:
        RuntimeError: the sparse side itself cannot run.
    """
    placed = [cloud.to(device) for cloud in clouds]
    batches = [placed[at : at + batch_size] for at in range(0, len(placed) - batch_size + 1, batch_size)]
    result = Comparison()
    made, memory = {}, {}
    for side in sides:
        before = reserved_bytes(device)
        try:
            ready = side.make()
            ready([max(placed, key=len)])()
        except Exception as error:  # the report lists sides that cannot run here
            if side.name == SPARSE:
                raise
            result.left_out[side.name] = f"{type(error).__name__}: {_first_line(error)}"
        else:
            made[side.name] = ready
            held = (reserved_bytes(device) - before) / 1e6
            memory[side.name] = held if device.type == "cuda" else None
        on_step()
    slow = {side.name for side in sides if side.slow}
    frame_ms: dict[str, list[float]] = {name: [] for name in made}
    batch_ms: dict[str, list[float]] = {name: [] for name in made}
    for inputs, times in [([cloud], frame_ms) for cloud in placed] + [(batch, batch_ms) for batch in batches]:
        calls = {name: ready(inputs) for name, ready in made.items()}
        for name, taken in time_interleaved(calls, device, rounds=rounds, slow=slow).items():
            times[name] += taken
        on_step()
    size = batch_size if batches else 0
    result.sides = [
        SideTimes(name, frame_ms[name], batch_ms[name], size if batch_ms[name] else 0, memory[name])
        for name in made
    ]
    return result


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device,
    *,
    rounds: int,
    slow: Collection[str] = (),
) -> dict[str, list[float]]:
    """Return milliseconds of single calls, by name: measured by events on a GPU, by the wall clock on a CPU.

    Args:
        calls: functions to call once per round, after one unmeasured call each.
        device: where they run.
        rounds: number of measured rounds.
        slow: names that take part in every tenth round only.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    events = []
    for turn in range(rounds):
        for name, call in calls.items():
            if name in slow and turn % _SLOW_EVERY:
                continue
            if device.type == "cpu":
                start = time.perf_counter()
                call()
                samples[name].append((time.perf_counter() - start) * 1e3)
                continue
            pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            # The GPU sleeps until both events and the launch are queued.
            torch.cuda._sleep(_HEAD_START_CYCLES)
            pair[0].record()
            call()
            pair[1].record()
            events.append((name, pair))
    if events:
        torch.cuda.synchronize(device)
    for name, (begin, end) in events:
        samples[name].append(float(begin.elapsed_time(end)))
    return samples


def reserved_bytes(device: torch.device) -> int:
    """Return the device memory held by tensors and graphs; 0 on a CPU."""
    if device.type == "cpu":
        return 0
    # A detector is part of a reference cycle, and what is given back later would count against the next side.
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved(device))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:200]
