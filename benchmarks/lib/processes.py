"""Studies of many trainings: several processes at a time, with a bar."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Task = TypeVar("Task")
Result = TypeVar("Result")


def progress_bar() -> Progress:
    """Return a bar on the terminal's error stream, so that ``--json`` stays JSON."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def run_each(
    function: Callable[[Task], Result], tasks: Sequence[Task], processes: int
) -> Iterator[tuple[Task, Result]]:
    """Yield each task with its result, in the order in which they finish; one process is this one."""
    if processes == 1:
        for task in tasks:
            yield task, function(task)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(function, task): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
