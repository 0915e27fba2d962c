"""Percentiles in bounded room, and the queue that forgets."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from perception.live import Figures, NewestQueue
from perception.live.figures import LatencyHistogram


def test_percentiles_are_those_of_all_durations_to_a_percent() -> None:
    durations = np.random.default_rng(0).lognormal(-3, 1, 5000)
    histogram = LatencyHistogram()
    assert histogram.percentile(50) is None
    for one in durations.tolist():
        histogram.add(one)
    for percent in (1, 50, 90, 99, 100):
        exact = float(np.percentile(durations, percent, method="inverted_cdf"))
        assert histogram.percentile(percent) == pytest.approx(exact, rel=0.01)
    assert histogram.below(0.05) == pytest.approx(int((durations <= 0.05).sum()), rel=0.01)
    assert histogram.total_s == pytest.approx(durations.sum())
    histogram.add(0.0)
    histogram.add(1e9)
    assert histogram.count == 5002


def test_the_oldest_make_way_and_are_counted() -> None:
    queue = NewestQueue[int](2)
    for number in range(5):
        queue.put(number)
    assert (queue.dropped, len(queue)) == (3, 2)
    assert [queue.take(0), queue.take(0), queue.take(0)] == [3, 4, None]
    with pytest.raises(ValueError, match="at least 1"):
        NewestQueue[int](0)


def test_who_waits_is_woken_by_an_entry_and_by_the_end(patience: Any) -> None:
    queue, taken = NewestQueue[int](1), []
    waiting = threading.Thread(target=lambda: taken.extend([queue.take(600), queue.take(600)]))
    waiting.start()
    queue.put(7)
    patience(lambda: not len(queue))
    queue.close()
    patience(lambda: not waiting.is_alive())
    assert taken == [7, None]
    assert queue.over


def test_figures_of_nothing_and_of_a_frame() -> None:
    figures = Figures()
    assert figures.now()["latency_p99_ms"] is None
    assert "memories" not in figures.summary()
    figures.frame(0.05, tracks=2, objects=3)
    figures.memories = 4
    now = figures.now()
    assert now["latency_p50_ms"] == now["latency_p99_ms"] == 50.0
    assert (now["done"], now["tracks"], now["objects"], now["memories"]) == (1, 2, 3, 4)
    assert figures.summary()["latency_p50_ms"] == pytest.approx(50, rel=0.01)
