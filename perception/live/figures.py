"""What a run counts and how long frames take, in bounded room however long it runs."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Seconds that the rate is of.
_WINDOW_S = 5.0
#: Latencies that the figures of the last seconds are of.
_RECENT = 512


class LatencyHistogram:
    """Percentiles of any number of durations, to 1 %: a count for each of 2,000 steps from 10 µs on."""

    _LEAST_S, _STEP, _STEPS = 1e-5, 1.01, 2000

    def __init__(self) -> None:
        self._counts = np.zeros(self._STEPS, np.int64)
        #: How many, and their sum in seconds.
        self.count, self.total_s = 0, 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        step = math.log(max(seconds, self._LEAST_S) / self._LEAST_S) / math.log(self._STEP)
        self._counts[min(round(step), self._STEPS - 1)] += 1
        self.count += 1
        self.total_s += seconds

    def percentile(self, percent: float) -> float | None:
        """Seconds that so many of a hundred do not exceed; ``None`` before the first."""
        if not self.count:
            return None
        rank = max(1, math.ceil(self.count * percent / 100))
        step = int(np.searchsorted(np.cumsum(self._counts), rank))
        return float(self._LEAST_S * self._STEP**step)

    def below(self, seconds: float) -> int:
        """How many took no longer."""
        step = math.log(max(seconds, self._LEAST_S) / self._LEAST_S) / math.log(self._STEP)
        return int(self._counts[: int(step) + 1].sum())


@dataclass
class Figures:
    """Counts of a run; a thread writes what another reads.

    Attributes:
        arrived: scans that came.
        done: scans whose boxes are known.
        dropped: scans that made way for newer ones before they were looked at.
        passed_over: scans left out to keep to ``--rate``.
        unreadable: scans that could not be used.
        late: scans of an earlier moment than the one before.
        without_pose: scans of which nobody said where they were made, where poses were given.
        reconnects: times that the source was opened again.
        restarts: times that the clock of the sensor was put back, and tracks began anew.
        unpublished: results that whoever shows or keeps them was too slow for.
        tracks: that go on now.
        things: tracks so far.
        memories: kept so far, or ``None`` without a memory.
        latency: from the arrival of a scan to its boxes.
    """

    arrived: int = 0
    done: int = 0
    dropped: int = 0
    passed_over: int = 0
    unreadable: int = 0
    late: int = 0
    without_pose: int = 0
    reconnects: int = 0
    restarts: int = 0
    unpublished: int = 0
    tracks: int = 0
    things: int = 0
    memories: int | None = None
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)

    def __post_init__(self) -> None:
        """Begin to count."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._began_s = time.monotonic()
        self._writing = threading.Lock()

    def frame(self, latency_s: float, *, tracks: int, things: int) -> None:
        """A scan is done."""
        with self._writing:
            self.done += 1
            self.tracks, self.things = tracks, things
            self.latency.add(latency_s)
            self._recent.append((time.monotonic(), latency_s))

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began_s

    @property
    def idle_s(self) -> float:
        """Since a scan was done, or since the run began."""
        with self._writing:
            return time.monotonic() - (self._recent[-1][0] if self._recent else self._began_s)

    def now(self) -> dict[str, Any]:
        """The last seconds and all counts, as plain values."""
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
        """The whole run, as plain values."""
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
        """All counts by name; memories only where there is a memory."""
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int) and not name.startswith("_")
        }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 2)
