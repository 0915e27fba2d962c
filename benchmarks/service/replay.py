"""An hour of a robot's observations: does the memory of the service's process stay bounded?"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from benchmarks.service.process import Service

#: Frames a second, as a LiDAR gives them.
HZ = 10
#: Things that are seen in a frame.
SEEN = 8
#: Things in the world, on a loop of streets.
THINGS = 600
_LOOP_M = 1200.0
_SPEED_M_S = 5.0
_NOISE_M = 0.1
_SAMPLES = 60


class Drive:
    """A robot that drives round a loop and sees the nearest things: noisy places, noisy vectors.

    Args:
        dim: of the vectors.
        seed: of the world and the noise.
    """

    def __init__(self, dim: int, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._along = np.sort(self._generator.uniform(0.0, _LOOP_M, THINGS))
        self._aside = self._generator.uniform(-12.0, 12.0, THINGS)
        self._labels = [f"thing {kind}" for kind in self._generator.integers(0, 12, THINGS)]
        self._vectors = self._generator.normal(size=(THINGS, dim))

    def second(self, at: int) -> list[dict[str, Any]]:
        """The observations of a second, as records."""
        records = []
        for frame in range(HZ):
            elapsed = at + frame / HZ
            records += self._frame(int(1.7e18) + round(1e9 * elapsed), elapsed * _SPEED_M_S)
        return records

    def _frame(self, time_ns: int, driven_m: float) -> list[dict[str, Any]]:
        away = np.abs((self._along - driven_m + _LOOP_M / 2) % _LOOP_M - _LOOP_M / 2)
        records = []
        for thing in np.argsort(away, kind="stable")[:SEEN].tolist():
            x, y = self._position(thing) + self._generator.normal(scale=_NOISE_M, size=2)
            vector = self._vectors[thing] + 0.05 * self._generator.normal(size=self._vectors.shape[1])
            records.append(
                {
                    "time_ns": time_ns,
                    "label": self._labels[thing],
                    "position": [round(float(x), 3), round(float(y), 3), 0.0],
                    "confidence": round(float(self._generator.uniform(0.4, 1.0)), 3),
                    "embedding": np.round(vector, 4).tolist(),
                }
            )
        return records

    def _position(self, thing: int) -> NDArray[np.float64]:
        angle = 2 * np.pi * self._along[thing] / _LOOP_M
        radius = _LOOP_M / (2 * np.pi) + self._aside[thing]
        place: NDArray[np.float64] = radius * np.array([np.cos(angle), np.sin(angle)])
        return place


def replay(service: Service, *, seconds: int, dim: int, seed: int, progress: Progress) -> dict[str, Any]:
    """Feed a drive as fast as the service takes it, and sample the memory of its process.

    Args:
        service: running, of an empty store; observations are scored and only what matters is kept.
        seconds: of the robot's time.
        dim: of the store's vectors.
        seed: of the drive.
        progress: that shows how far it is.

    Returns:
        ``samples`` of robot's seconds, resident bytes and memories; ``slope_mb_per_hour`` of the second half
        (of the robot's time) by least squares; what was sent, kept and how long it took.
    """
    drive = Drive(dim, seed)
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    every = max(seconds // _SAMPLES, 1)
    samples = []
    sent = 0
    taken = 0.0
    for second in progress.track(range(seconds), description="an hour of observations"):
        records = drive.second(second)
        body = json.dumps({"memories": records, "observe": True})
        start = time.perf_counter()
        connection.request("POST", "/api/memories", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        taken += time.perf_counter() - start
        if answer.status != 200:
            raise RuntimeError(f"an observation was refused: {answer.status} {text[:300]!r}")
        sent += len(records)
        if (second + 1) % every == 0:
            memories = service.get("/api/stats")["memories"]
            samples.append(
                {"robot_s": second + 1, "resident_bytes": service.resident_bytes(), "memories": memories}
            )
    connection.close()
    stats = service.get("/api/stats")
    return {
        "robot_s": seconds,
        "observations": sent,
        "observations_per_s": round(sent / taken, 1),
        "times_real_time": round(seconds / taken, 1),
        "memories": stats["memories"],
        "file_bytes": stats["file_bytes"],
        "resident_first_bytes": samples[0]["resident_bytes"],
        "resident_most_bytes": max(sample["resident_bytes"] for sample in samples),
        "slope_mb_per_hour": slope_mb_per_hour(samples),
        "samples": samples,
    }


def slope_mb_per_hour(samples: list[dict[str, Any]]) -> float | None:
    """Growth of the resident memory in the second half; ``None`` of fewer than four samples."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return None
    hours = np.array([sample["robot_s"] for sample in half]) / 3600.0
    megabytes = np.array([sample["resident_bytes"] for sample in half]) / 1e6
    return round(float(np.polyfit(hours, megabytes, 1)[0]), 2)
