"""A detector for live runs, and scans that are written while one looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from perception import Detector
from perception.live import Arrival, Source
from perception.types import PointCloud

#: Seconds after which a test gives up. No test depends on it: it only ends one that hangs.
PATIENCE_S = 300.0


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Every test of this folder runs on one thread."""


@pytest.fixture
def detector(tiny_weights: Path) -> Detector:
    """Random weights; some of its boxes are sure enough to be tracked."""
    return Detector.from_pretrained(tiny_weights)


@pytest.fixture
def points() -> Callable[[int], np.ndarray]:
    """(50, 4) float32 of a small scan by number."""

    def make(number: int) -> np.ndarray:
        random = np.random.default_rng(number)
        return random.uniform([0.5, -8, -2, 0], [16, 8, 0, 1], (50, 4)).astype(np.float32)

    return make


def clouds(points: Callable[[int], np.ndarray], count: int, *, step_ns: int = 10**8) -> Iterator[PointCloud]:
    """Scans of a sensor that stands, ten a second."""
    for number in range(count):
        yield PointCloud(points(number % 8), timestamp_ns=10**18 + number * step_ns)


class Listening:
    """Takes the arrivals of a source in a thread, until it has been asked to end."""

    def __init__(self, source: Source) -> None:
        self.came: list[Arrival | Exception] = []
        self.stop, self._source = threading.Event(), source
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for one in self._source.arrivals(self.stop):
                self.came.append(one)
        except Exception as error:
            self.came.append(error)

    def until(self, count: int) -> list[Arrival | Exception]:
        """What came, as soon as there is so much of it."""
        wait_until(lambda: len(self.came) >= count)
        return self.came

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def listening() -> Callable[[Source], Listening]:
    """Takes the arrivals of a source; a context."""
    return Listening


@pytest.fixture
def patience() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds."""
    return wait_until
