"""Signals that ask a computation to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from sparse_core.common.interruption import Interrupted, interruptible, stop_requests

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_recorded_and_the_second_raises(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with stop_requests() as stop:
        assert not stop
        signal.raise_signal(number)
        assert (bool(stop), stop.signal_number) == (True, number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruptible_raises_at_once(number: signal.Signals, status: int) -> None:
    with interruptible(lambda: "nothing to resume"):
        with stop_requests() as stop:
            signal.raise_signal(number)
            assert stop
        with pytest.raises(Interrupted, match="nothing to resume") as raised:
            signal.raise_signal(number)
    assert raised.value.exit_status == status
    assert Interrupted("of another process", None).exit_status == 143


def test_other_threads_leave_signals_alone() -> None:
    seen = []

    def run() -> None:
        with stop_requests() as stop, interruptible(str):
            seen.append((bool(stop), signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
