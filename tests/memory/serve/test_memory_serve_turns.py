"""Threads that work in turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")

from memory.serve.workers.turns import Turns

#: Seconds after which a test that hangs ends.
GUARD_S = 300.0


@pytest.fixture
def turns() -> Iterator[Turns]:
    """Of which the next begins after a tenth of a second."""
    found = Turns(3, patience_s=0.1)
    yield found
    found.cancel()
    found.join()


@pytest.fixture
def patient() -> Iterator[Turns]:
    """Of which the next begins when the one before is done, however busy the machine is."""
    found = Turns(3, patience_s=3600.0)
    yield found
    found.cancel()
    found.join()


def test_quick_functions_run_one_at_a_time_in_order(patient: Turns) -> None:
    at_work, most, order = 0, 0, []

    def function(number: int) -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.001)
        order.append(number)
        at_work -= 1
        return number

    async def run() -> list[int]:
        return await asyncio.gather(*(patient.call(lambda n=n: function(n)) for n in range(20)))

    assert asyncio.run(run()) == list(range(20))
    assert most == 1
    assert order == list(range(20))


def test_others_go_on_beside_what_takes_long(turns: Turns) -> None:
    end = threading.Event()

    async def run() -> None:
        slow = [asyncio.ensure_future(turns.call(lambda: end.wait(GUARD_S))) for _ in range(2)]
        quick = await asyncio.gather(*(turns.call(lambda n=n: n) for n in range(5)))
        assert quick == list(range(5))
        assert not any(each.done() for each in slow)
        end.set()
        assert await asyncio.gather(*slow) == [True, True]
        assert await turns.call(lambda: "after") == "after"

    asyncio.run(run())


def test_no_more_threads_than_there_may_be(turns: Turns) -> None:
    end, begun = threading.Event(), []

    def function() -> None:
        begun.append(threading.get_ident())
        end.wait(GUARD_S)

    async def run() -> None:
        calls = [asyncio.ensure_future(turns.call(function)) for _ in range(5)]
        while len(begun) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # As long as three times their patience, no other begins.
        assert len(begun) == 3
        end.set()
        await asyncio.gather(*calls)
        assert len(begun) == 5

    asyncio.run(run())


def test_errors_reach_who_asked_and_others_go_on(turns: Turns) -> None:
    async def run() -> None:
        bad, good = turns.call(lambda: 1 // 0), turns.call(lambda: 7)
        failed, found = await asyncio.gather(bad, good, return_exceptions=True)
        assert isinstance(failed, ZeroDivisionError)
        assert found == 7
        with pytest.raises(ZeroDivisionError):
            await turns.call(lambda: 1 // 0)
        assert await turns.call(lambda: 7) == 7

    asyncio.run(run())


def test_what_nobody_waits_for_is_not_called(patient: Turns) -> None:
    end, called = threading.Event(), []

    async def run() -> None:
        first = asyncio.ensure_future(patient.call(lambda: end.wait(GUARD_S)))
        second = asyncio.ensure_future(patient.call(lambda: called.append(1)))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.sleep(0)
        end.set()
        assert await first
        assert await patient.call(lambda: 3) == 3
        assert not called

    asyncio.run(run())


def test_ending_drops_what_has_not_begun() -> None:
    turns = Turns(1, patience_s=3600.0)
    begun, end = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return end.wait(GUARD_S)

    async def run() -> None:
        first = asyncio.ensure_future(turns.call(wait))
        second = asyncio.ensure_future(turns.call(lambda: None))
        assert await asyncio.to_thread(begun.wait, GUARD_S)
        turns.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        end.set()
        assert await first
        with pytest.raises(asyncio.CancelledError):
            await turns.call(lambda: None)

    asyncio.run(run())
    turns.join()
