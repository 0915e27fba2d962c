"""The budget of the thread that moves vectors, and its settings."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from memory.config import StoreConfig, TierOptions
from memory.search import tiers
from memory.search.tiers import Mover


class Clock:
    """Time passes when work says so and while the thread rests."""

    def __init__(self) -> None:
        self.now, self.worked, self.rested = 0.0, 0.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    def wait(self, seconds: float | None = None) -> bool:
        self.now += seconds or 0.0
        self.rested += seconds or 0.0
        return False


@pytest.mark.parametrize("budget", [0.05, 0.2, 0.5, 1.0])
def test_work_takes_its_share_of_the_time(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(tiers, "time", clock)
    durations = iter([0.01, 0.3, 0.002] * 10)
    done = threading.Event()

    def step(rest: Callable[[], None]) -> bool:
        duration = next(durations, None)
        if duration is None:
            done.set()
            return False
        clock.work(duration / 2)
        rest()
        clock.work(duration / 2)
        return True

    mover = Mover(step, budget)
    monkeypatch.setattr(mover._stopped, "wait", clock.wait)
    mover.wake()
    assert done.wait(300)
    mover.stop()
    assert clock.worked == pytest.approx(3.12)
    assert clock.worked / (clock.worked + clock.rested) == pytest.approx(budget, rel=1e-6)


def test_a_step_that_fails_is_reported_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()
    calls = []

    def step(rest: Callable[[], None]) -> bool:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("no room")
        ran.set()
        return False

    mover = Mover(step, 1.0)
    mover.wake()
    while not ran.wait(0.01):
        mover.wake()
    mover.stop()
    assert "failed to move" in caplog.text
    assert "no room" in caplog.text


def test_stopping_interrupts_a_long_rest() -> None:
    resting = threading.Event()

    def step(rest: Callable[[], None]) -> bool:
        resting.set()
        for _ in range(1000):
            threading.Event().wait(0.02)
            rest()
        return True

    mover = Mover(step, 1e-4)
    mover.wake()
    assert resting.wait(300)
    mover.stop()
    mover.wake()
    assert not [thread for thread in threading.enumerate() if thread.name == "memory-tiers"]


def test_settings_are_kept_and_checked(tmp_path: Path) -> None:
    config = StoreConfig(index="faiss-rabitq", tiers=TierOptions(recent=5, budget=0.5, background=False))
    config.save(tmp_path)
    assert StoreConfig.load(tmp_path) == config
    for field, value, error in (
        ("recent", -1, ValueError),
        ("recent", 1.5, TypeError),
        ("portion", 0, ValueError),
        ("budget", 0.0, ValueError),
        ("budget", 1.5, ValueError),
        ("budget", float("nan"), ValueError),
        ("background", 1, TypeError),
    ):
        with pytest.raises(error, match=field):
            dataclasses.replace(TierOptions(), **{field: value})
    with pytest.raises(ValueError, match="tiers"):
        StoreConfig.from_json({"tiers": {"budget": 7}})
