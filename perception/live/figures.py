"""Counts and latencies of a run, in bounded memory."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Window of the scan rate in seconds.
_WINDOW_S = 5.0
#: Number of latencies in the figures of the last seconds.
_RECENT = 512


class LatencyHistogram:
    """Percentiles of durations, to 1 %, by counts in 2,000 steps from 10 µs on."""

    _LEAST_S, _STEP, _STEPS = 1e-5, 1.01, 2000

    def __init__(self) -> None:
        self._counts = np.zeros(self._STEPS, np.int64)
        #: Number of durations, and their sum in seconds.
        self.count, self.total_s = 0, 0.0

    def add(self, seconds: float) -> None:
        """Add a duration."""
        step = math.log(max(seconds, self._LEAST_S) / self._LEAST_S) / math.log(self._STEP)
        self._counts[min(round(step), self._STEPS - 1)] += 1
        self.count += 1
        self.total_s += seconds

    def percentile(self, percent: float) -> float | None:
        """Return a percentile in seconds; None without durations."""
        if not self.count:
            return None
        rank = max(1, math.ceil(self.count * percent / 100))
        step = int(np.searchsorted(np.cumsum(self._counts), rank))
        return float(self._LEAST_S * self._STEP**step)

    def below(self, seconds: float) -> int:
        """Return the number of durations up to a limit."""
        step = math.log(max(seconds, self._LEAST_S) / self._LEAST_S) / math.log(self._STEP)
        return int(self._counts[: int(step) + 1].sum())


@dataclass
class Figures:
    """Counts of a run; one thread writes them, others read.

    Attributes:
        arrived: scans that arrived.
        done: processed scans.
        dropped: scans dropped for newer ones.
        skipped: scans skipped to keep ``--rate``.
        unreadable: unusable scans.
        late: scans earlier than the one before.
        without_pose: scans without a pose, although poses are given.
        reconnects: times that the source was reopened.
        restarts: times that the sensor's clock was set back and tracking restarted.
        unpublished: results dropped because sinks were too slow.
        tracks: current tracks.
        objects: all tracked objects so far.
        memories: memories in the store; None without a store.
        latency: time from the arrival of a scan to its tracks.
    """

    arrived: int = 0
    done: int = 0
    dropped: int = 0
    skipped: int = 0
    unreadable: int = 0
    late: int = 0
    without_pose: int = 0
    reconnects: int = 0
    restarts: int = 0
    unpublished: int = 0
    tracks: int = 0
    objects: int = 0
    memories: int | None = None
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._began_s = time.monotonic()
        self._writing = threading.Lock()

    def frame(self, latency_s: float, *, tracks: int, objects: int) -> None:
        """Count a processed scan."""
        with self._writing:
            self.done += 1
            self.tracks, self.objects = tracks, objects
            self.latency.add(latency_s)
            self._recent.append((time.monotonic(), latency_s))

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began_s

    @property
    def idle_s(self) -> float:
        """Seconds since the last processed scan, or since the start."""
        with self._writing:
            return time.monotonic() - (self._recent[-1][0] if self._recent else self._began_s)

    def now(self) -> dict[str, Any]:
        """Return figures of the last seconds and all counts, as plain values."""
        with self._writing:
            now_s = time.monotonic()
            span_s = min(_WINDOW_S, now_s - self._began_s)
            last = [latency for at_s, latency in self._recent if now_s - at_s <= span_s]
        median, worst = np.percentile(last, [50, 99], method="higher").tolist() if last else (None, None)
        return {
            "scans_per_s": round(len(last) / span_s, 2) if span_s > 0 else 0.0,
            "latency_p50_ms": _milliseconds(median),
            "latency_p99_ms": _milliseconds(worst),
            **self.counts(),
        }

    def summary(self) -> dict[str, Any]:
        """Return figures of the whole run, as plain values."""
        with self._writing:
            median, worst = self.latency.percentile(50), self.latency.percentile(99)
        return {
            "seconds": round(self.seconds, 2),
            "scans_per_s": round(self.done / self.seconds, 2) if self.seconds > 0 else 0.0,
            "latency_p50_ms": _milliseconds(median),
            "latency_p99_ms": _milliseconds(worst),
            **self.counts(),
        }

    def counts(self) -> dict[str, int]:
        """Return all counts by name."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int) and not name.startswith("_")
        }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)
