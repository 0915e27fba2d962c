"""Items taken ahead by a thread arrive in order, with the iterator's own errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from perception.run.fetch import Fetcher


def test_order_and_end() -> None:
    with Fetcher(iter(range(1, 50)), ahead=2) as fetcher:
        taken = []
        while (item := fetcher.take(wait=True)) is not None:
            taken.append(item)
        assert taken == list(range(1, 50))
        assert fetcher.take(wait=True) is None
        assert fetcher.take(wait=False) is None


def test_does_not_wait_unless_asked() -> None:
    gate = threading.Event()

    def slow() -> Iterator[int]:
        gate.wait(300)
        yield 1

    with Fetcher(slow(), ahead=1) as fetcher:
        assert fetcher.take(wait=False) is None
        gate.set()
        assert fetcher.take(wait=True) == 1


def test_runs_no_further_than_asked() -> None:
    seen: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(1, 100):
            seen.append(number)
            yield number

    with Fetcher(counted(), ahead=2) as fetcher:
        assert fetcher.take(wait=True) == 1
    # One taken, two waiting, one in the thread's hands, and one that may have moved up.
    assert len(seen) <= 5


def test_errors_reach_the_taker() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("sensor unplugged")

    with Fetcher(broken(), ahead=2) as fetcher:
        assert fetcher.take(wait=True) == 1
        with pytest.raises(OSError, match="sensor unplugged"):
            fetcher.take(wait=True)
