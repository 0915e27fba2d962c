"""Tasks shared among worker threads, in each of which torch uses one thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest
import torch

from sparse_core.common import workers
from sparse_core.common.workers import call_ahead, is_shareable, run_on_worker, share_tasks, sharing_threads

NUMBER: ContextVar[int] = ContextVar("NUMBER", default=0)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_torch_has_one_thread_in_every_task(count: int, threads: Callable[[int], None]) -> None:
    threads(count)
    seen: dict[int, int] = {}

    def task(number: int) -> None:
        # torch reads the number only for an operation that it can divide.
        torch.ones(1 << 17).mul_(2.0)
        seen[number] = torch.get_num_threads()

    share_tasks(task, 20)
    assert seen == dict.fromkeys(range(20), 1)
    assert torch.get_num_threads() == count


def test_tasks_run_side_by_side(threads: Callable[[int], None]) -> None:
    threads(3)
    together = threading.Barrier(3)
    share_tasks(lambda _: together.wait(timeout=60) and None, 3)
    assert not together.broken


def test_a_call_and_its_tasks_share_the_threads(threads: Callable[[int], None]) -> None:
    threads(2)

    def call() -> tuple[int, int, set[int], int]:
        names: set[int] = set()
        nested: list[int] = []

        def task(number: int) -> None:
            names.add(threading.get_ident())
            nested.append(sharing_threads())
            share_tasks(lambda inner: names.add(threading.get_ident()), 2)

        share_tasks(task, 30)
        return torch.get_num_threads(), sharing_threads(), names, max(nested)

    own, shared, names, nested = run_on_worker(call)
    assert (own, shared, nested) == (1, 2, 1)
    assert len(names) <= 2
    assert threading.get_ident() not in names
    assert run_on_worker(sharing_threads, threads=1) == 1
    threads(1)
    assert run_on_worker(threading.get_ident) == threading.get_ident()


def test_tasks_do_not_wait_for_sleeping_helpers(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads(4)
    monkeypatch.setattr(workers._SharedJob, "help", lambda _: None)
    done: list[int] = []
    share_tasks(done.append, 10)
    assert done == list(range(10))


def test_modes_and_context_follow(threads: Callable[[int], None]) -> None:
    threads(2)
    NUMBER.set(7)

    def modes() -> tuple[bool, bool, torch.dtype | None]:
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast

    def found() -> set[tuple[bool, bool, torch.dtype | None]]:
        seen = {modes()}
        share_tasks(lambda _: seen.add(modes()), 20)
        return seen

    assert run_on_worker(found) == {(True, False, None)}
    with torch.no_grad():
        assert run_on_worker(found) == {(False, False, None)}
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert run_on_worker(found) == {(False, True, torch.bfloat16)}
    assert run_on_worker(NUMBER.get) == 7


@pytest.mark.parametrize("count", [1, 3])
def test_errors_reach_the_caller(count: int, threads: Callable[[int], None]) -> None:
    threads(count)

    def task(number: int) -> None:
        if number == 3:
            raise KeyError(number)

    with pytest.raises(KeyError, match="3"):
        share_tasks(task, 50)
    with pytest.raises(ZeroDivisionError):
        run_on_worker(lambda: 1 // 0)
    assert run_on_worker(lambda: 5) == 5


def test_no_tasks(threads: Callable[[int], None]) -> None:
    threads(2)
    share_tasks(lambda _: pytest.fail("there is no task"), 0)


def test_workers_are_used_again(threads: Callable[[int], None]) -> None:
    threads(3)
    share_tasks(lambda _: None, 9)
    before = threading.active_count()
    for _ in range(20):
        share_tasks(lambda _: None, 9)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_makes_workers_of_its_own(threads: Callable[[int], None]) -> None:
    threads(2)
    share_tasks(lambda _: None, 4)
    child = os.fork()
    if child == 0:
        done: list[int] = []
        share_tasks(done.append, 4)
        os._exit(0 if sorted(done) == [0, 1, 2, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_operations_divided_into_tasks() -> None:
    rows = torch.ones(2, 2)
    assert not is_shareable(rows)
    with torch.no_grad():
        assert is_shareable(rows)
        assert not is_shareable(rows.to("meta"))


def test_calls_ahead_keep_the_order_of_items_and_errors() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(4):
            taken.append(number)
            yield number

    for item, result in call_ahead(lambda number: (6 // (number - 2), threading.get_ident()), items()):
        assert taken == list(range(min(item + 2, 4)))
        if item == 2:
            with pytest.raises(ZeroDivisionError):
                result()
        else:
            value, thread = result()
            assert value == 6 // (item - 2)
            assert thread != threading.get_ident()


def test_closing_calls_ahead_waits_for_started_ones() -> None:
    released, done = threading.Event(), []
    calls = call_ahead(lambda number: done.append((released.wait(), number)), [0, 1, 2])
    next(calls)
    threading.Timer(0.05, released.set).start()
    calls.close()
    assert (True, 1) in done
