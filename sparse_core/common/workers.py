"""Worker threads whose results do not depend on their number.

A BLAS library splits one product between its threads, and rounding depends on the split. The same holds for
vectorised functions at the ends of each thread's share. So torch never splits an operation here. The caller
divides its work into tasks of fixed sizes, and each task runs on one worker thread in which torch uses a
single thread. Waiting workers sleep, so they take no core from other programs.
"""

from __future__ import annotations

import contextvars
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_on_worker(call: Callable[[], Result], threads: int | None = None) -> Result:
    """Run a call in a thread in which torch uses a single thread, and wait for it.

    The call sees the caller's torch modes (gradients, inference, autocast on a CPU) and context variables.

    Args:
        call: to run. :func:`share_tasks` within it uses up to ``threads`` threads.
        threads: limit; None is torch's number in the calling thread. A call from a worker runs at once, with
            that worker's threads.

    Raises:
        Exception: whatever the call raises.
    """
    if _local.helpers is not None:
        return call()
    threads = torch.get_num_threads() if threads is None else threads
    if threads == 1 and torch.get_num_threads() == 1:
        return call()
    workers = _take_workers(threads)
    return _start(call, workers, released=workers)()


def call_ahead(
    call: Callable[[Item], Result], items: Iterable[Item]
) -> Generator[tuple[Item, Callable[[], Result]], None, None]:
    """Yield items, each with a function that returns or raises the result of its call.

    One worker makes the calls, and calls for the next item meanwhile. The caller's thread iterates over the
    items. Closing the generator waits for the worker.

    Args:
        call: called with each item in a thread in which torch uses a single thread.
        items: items in order.
    """
    waiting: deque[tuple[Item, Callable[[], Result]]] = deque()
    # The same one for all calls, because memory and caches of another one would be cold.
    worker = _take_workers(1)
    try:
        for item in items:
            waiting.append((item, _start(partial(call, item), worker)))
            if len(waiting) > 1:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        for _, wait in waiting:
            with suppress(Exception):  # Nobody asked for this result.
                wait()
        _idle.extend(worker)


def _start(
    call: Callable[[], Result], workers: list[_WorkerThread], released: Sequence[_WorkerThread] = ()
) -> Callable[[], Result]:
    """Start a call on the first worker and return a function that waits for its result.

    Args:
        call: to run after the earlier calls of that worker.
        workers: the first, and its helpers.
        released: workers that are idle afterwards.
    """
    first, *helpers = workers
    modes, context = _Modes(), contextvars.copy_context()
    answers: SimpleQueue[tuple[list[Result], BaseException | None]] = SimpleQueue()

    def answer() -> None:
        results, error = [], None
        _local.helpers = helpers
        try:
            with modes.enter():
                results.append(context.run(call))
        except BaseException as raised:  # The caller raises it.
            error = raised
        _local.helpers = []
        _idle.extend(released)
        answers.put((results, error))

    def wait() -> Result:
        results, error = answers.get()
        if error is not None:
            raise error
        return results[0]

    first.jobs.put(answer)
    return wait


def share_tasks(task: Callable[[int], None], count: int) -> None:
    """Run ``task(0)`` to ``task(count - 1)``, each in one thread, and wait for all.

    Threads and order vary, so tasks must be independent: each writes to its own memory. A task that shares
    tasks runs these itself, one by one.

    Args:
        task: called with its number, without gradients.

    Raises:
        Exception: the first error of a task; later tasks are skipped.
    """
    helpers = _local.helpers
    if count and helpers is None and torch.get_num_threads() > 1:
        run_on_worker(lambda: share_tasks(task, count), min(count, torch.get_num_threads()))
        return
    if count < 2 or not helpers:
        for number in range(count):
            task(number)
        return
    job = _SharedJob(task, count)
    for helper in helpers[: count - 1]:
        helper.jobs.put(job.help)
    job.lead()


def is_shareable(values: Tensor) -> bool:
    """True if work on a tensor can be shared: on a CPU, without gradients, and not traced."""
    return values.device.type == "cpu" and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def sharing_threads() -> int:
    """Return the most threads that :func:`share_tasks` uses here."""
    helpers = _local.helpers
    return torch.get_num_threads() if helpers is None else 1 + len(helpers)


class _Local(threading.local):
    """Helper workers of the current thread; None outside workers."""

    helpers: list[_WorkerThread] | None = None


class _WorkerThread(threading.Thread):
    """Thread in which torch uses one thread; it sleeps until it gets a job."""

    def __init__(self) -> None:
        super().__init__(name="sparsight-worker", daemon=True)
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.ready = threading.Event()

    def run(self) -> None:
        # The first query resets the number of threads, so set it afterwards.
        torch.get_num_threads()
        torch.set_num_threads(1)
        _local.helpers = []
        self.ready.set()
        while True:
            self.jobs.get()()


class _Modes:
    """Torch modes of the current thread, for use in another one."""

    def __init__(self) -> None:
        self.gradients, self.inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Enter these modes."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.gradients))
            if self.autocast is not None:
                stack.enter_context(torch.autocast("cpu", dtype=self.autocast))
            yield


class _SharedJob:
    """Tasks that several threads take one by one."""

    def __init__(self, task: Callable[[int], None], count: int) -> None:
        self._task, self._count, self._modes = task, count, _Modes()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._active = 0
        self._closed = False
        self._error: BaseException | None = None

    def lead(self) -> None:
        """Run tasks until none is left, and wait for helpers that still run one."""
        helpers, _local.helpers = _local.helpers, []
        try:
            self._work()
        finally:
            _local.helpers = helpers
            with self._changed:
                # Helpers that wake up later find nothing to do, so do not wait for them.
                self._closed = True
                while self._active:
                    self._changed.wait()
        if self._error is not None:
            raise self._error

    def help(self) -> None:
        """Run tasks on a worker until none is left."""
        with self._changed:
            if self._closed:
                return
            self._active += 1
        try:
            with self._modes.enter():
                self._work()
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify()

    def _work(self) -> None:
        while (number := next(self._numbers)) < self._count and self._error is None:
            try:
                self._task(number)
            except BaseException as error:  # The leader raises it.
                self._error = error


def _take_workers(count: int) -> list[_WorkerThread]:
    """Return idle workers, or new ones."""
    workers = []
    for _ in range(count):
        try:
            workers.append(_idle.pop())
        except IndexError:
            workers.append(_new_worker())
    return workers


def _new_worker() -> _WorkerThread:
    # The worker's set_num_threads also affects threads that have not queried their number: restore it.
    threads = torch.get_num_threads()
    worker = _WorkerThread()
    worker.start()
    worker.ready.wait()
    torch.set_num_threads(threads)
    return worker


_local = _Local()
_idle: deque[_WorkerThread] = deque()
if hasattr(os, "register_at_fork"):
    # A forked process has no worker threads.
    os.register_at_fork(after_in_child=_idle.clear)
