"""Timing of several sides in one run, interleaved so that drift of the machine hits all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

Side = Callable[[], object]
Clock = Literal["wall", "device", "process"]

#: Busy-wait of the device before a device-clock measurement (cycles, about a millisecond): the host
#: enqueues the work meanwhile, so the events see kernels and not launches.
_HEAD_START_CYCLES = 2_000_000
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Summary:
    """Distribution of one side's times in milliseconds.

    Attributes:
        count: samples.
        median_ms, lower_quartile_ms, upper_quartile_ms, iqr_ms: middle half.
        p99_ms: 99th percentile, interpolated; close to the maximum for fewer than 100 samples.
        minimum_ms: fastest sample.
    """

    count: int
    median_ms: float
    lower_quartile_ms: float
    upper_quartile_ms: float
    iqr_ms: float
    p99_ms: float
    minimum_ms: float

    @classmethod
    def of(cls, samples_ms: Sequence[float]) -> Summary:
        """Summarise at least one sample.

        Raises:
            ValueError: no samples.
        """
        if len(samples_ms) == 0:
            raise ValueError("a summary needs at least one sample")
        values = np.asarray(samples_ms, dtype=np.float64)
        low, middle, high, late = (float(value) for value in np.percentile(values, [25, 50, 75, 99]))
        return cls(len(values), middle, low, high, high - low, late, float(values.min()))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, rounded to a tenth of a microsecond."""
        return {key: round(value, 4) for key, value in asdict(self).items()}


def time_once(side: Side, device: torch.device, clock: Clock = "wall") -> float:
    """Milliseconds of one call.

    Args:
        side: what to call.
        device: CUDA devices are synchronised before and after.
        clock: ``"wall"`` is the host's clock, launches included; ``"device"`` uses CUDA events after a head
            start for the host, which leaves the time of the kernels (CUDA only; a CPU has the wall instead).
            ``"process"`` is the time of all threads of this process on the processor, which other programs
            hardly change (CPU only).
    """
    if device.type != "cuda":
        now = time.process_time if clock == "process" else time.perf_counter
        start = now()
        side()
        return (now() - start) * 1e3
    torch.cuda.synchronize(device)
    if clock == "wall":
        start = time.perf_counter()
        side()
        torch.cuda.synchronize(device)
        return (time.perf_counter() - start) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_HEAD_START_CYCLES)
    begin.record()
    side()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end))


def interleave(
    sides: Mapping[str, Side],
    device: torch.device,
    *,
    rounds: int,
    warmup: int = 1,
    budget_s: float = float("inf"),
    clock: Clock = "wall",
    seed: int = 0,
) -> dict[str, list[float]]:
    """Time all sides round by round, in a new order every round.

    Entry i of every list comes from round i, so lists can be compared pair by pair.

    Args:
        sides: what to call, by name.
        device, clock: see :func:`time_once`.
        rounds: measured calls of each side.
        warmup: calls of each side that are not measured.
        budget_s: no round starts after this time; at least three rounds (or ``rounds``) always run.
        seed: of the orders.

    Returns:
        Milliseconds by side and round.
    """
    shuffled = random.Random(seed)
    order = list(sides)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    start = time.perf_counter()
    for _ in range(warmup):
        for name in order:
            sides[name]()
    for index in range(rounds):
        if index >= _LEAST_ROUNDS and time.perf_counter() - start > budget_s:
            break
        shuffled.shuffle(order)
        for name in order:
            samples[name].append(time_once(sides[name], device, clock))
    return samples


def paired_ratio(numerator_ms: Sequence[float], denominator_ms: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of the ratio of samples taken side by side.

    Raises:
        ValueError: lists of different lengths, or empty ones.
    """
    if len(numerator_ms) != len(denominator_ms) or len(numerator_ms) == 0:
        raise ValueError(
            f"need two equally long lists, got {len(numerator_ms)} and {len(denominator_ms)} samples"
        )
    ratios = np.asarray(numerator_ms, dtype=np.float64) / np.asarray(denominator_ms, dtype=np.float64)
    low, middle, high = (float(value) for value in np.percentile(ratios, [25, 50, 75]))
    return {"median": round(middle, 3), "lower_quartile": round(low, 3), "upper_quartile": round(high, 3)}
