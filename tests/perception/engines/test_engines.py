"""Engines: each task done once, in order, whichever workers are lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fates import Doubling, Numbers

import perception
from perception.engines.local import LocalEngine, usable_cores
from perception.engines.order import EngineError, TaskResult, run_in_order
from perception.engines.protocol import Engine, Job, WorkerLost

Make = Callable[[Job, int], Engine]


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    if request.param == "local":
        return LocalEngine
    pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")
    from perception.engines.ray import RayEngine

    # What Ray starts finds the tasks of this folder, and the packages, by it.
    folders = (Path(__file__).parent, Path(perception.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))

    return RayEngine


def done_by(engine: Engine, tasks: list[Numbers]) -> list[TaskResult[Numbers]]:
    with closing(engine):
        return list(run_in_order(engine, tasks, attempts=2))


def test_results_come_in_order_and_a_lost_task_is_done_by_another(make: Make, tmp_path: Path) -> None:
    tasks = [Numbers((3 * k, 3 * k + 1, -k - 1), "killed once") for k in range(2)]
    tasks += [Numbers((k,)) for k in range(40)]
    found = done_by(make(Doubling(tmp_path), 2), tasks)
    # Pieces of what was lost are tasks of their own.
    assert [number for given in found for number in given.task.numbers] == [
        number for task in tasks for number in task.numbers
    ]
    assert all(given.result == [2 * number for number in given.task.numbers] for given in found)
    assert len(found) == 2 * 3 + 40


@pytest.mark.parametrize(("fate", "reason"), [("killed", "process"), ("raises", "RuntimeError: -1 is below")])
def test_what_ends_every_worker_is_given_up(make: Make, tmp_path: Path, fate: str, reason: str) -> None:
    found = done_by(make(Doubling(tmp_path), 1), [Numbers((1, -1, 2), fate), Numbers((3,))])
    assert [given.task.numbers for given in found] == [(1,), (-1,), (2,), (3,)]
    assert [given.result for given in found if not isinstance(given.result, WorkerLost)] == [[2], [4], [6]]
    assert isinstance(found[1].result, WorkerLost)
    assert reason in found[1].result.reason


def test_workers_that_cannot_load(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no weights"):
        done_by(make(Doubling(tmp_path, "no weights"), 1), [Numbers((1,))])
    with pytest.raises(EngineError, match="2 workers in a row ended before they were ready"):
        done_by(make(Doubling(tmp_path, "killed"), 1), [Numbers((1,))])
    assert done_by(make(Doubling(tmp_path, "no weights"), 1), []) == []


def test_a_result_may_be_asked_for_again(tmp_path: Path) -> None:
    with closing(LocalEngine(Doubling(tmp_path), 2)) as engine:
        wanted = run_in_order(
            engine,
            [Numbers((k,)) for k in range(9)],
            check=lambda task, result: Numbers((20,)) if task.numbers == (5,) else None,
        )
        assert [given.task.numbers[0] for given in wanted] == [0, 1, 2, 3, 4, 20, 6, 7, 8]


def test_threads_are_shared_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        LocalEngine(Doubling(tmp_path), 0)
    assert usable_cores() >= 1
