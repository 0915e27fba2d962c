"""Processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection, wait
from typing import Any

from perception.engines.protocol import Answer, Job, LoadFailed, TaskDone, WorkerLost, WorkerReady

#: Seconds that a process has to end by itself.
_PATIENCE_S = 5.0


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Workers are processes that are started anew, each with its share of the cores.

    Args:
        job: of all of them.
        workers: how many.
        threads: of each; ``None``: cores by workers.

    Raises:
        ValueError: no worker.
    """

    def __init__(self, job: Job, workers: int, *, threads: int | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self._job, self._threads = job, threads or max(1, usable_cores() // workers)
        # A fork of this process would inherit locks of threads that it does not have, and could not use CUDA.
        # Those of a server have imported what they need, once for all of them.
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload([type(job).__module__])
        self._running: dict[int, tuple[Any, Connection]] = {}

    def start(self, worker: int) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._job, worker, self._threads)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        # With its own end alone open, what ends the process ends the pipe.
        theirs.close()
        self._running[worker] = process, ours

    def send(self, worker: int, task: Any) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        # One that is gone meanwhile is noticed when its answer is waited for.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._running[worker][1].send(task)

    def receive(self) -> Answer:
        """See :class:`perception.engines.protocol.Engine`."""
        (first, *_) = wait([pipe for _, pipe in self._running.values()])
        worker = next(worker for worker, (_, pipe) in self._running.items() if pipe is first)
        process, pipe = self._running[worker]
        try:
            answer: Answer = pipe.recv()
        except (EOFError, OSError):
            answer = WorkerLost(worker, _ending(process))
        if isinstance(answer, WorkerLost):
            del self._running[worker]
            pipe.close()
            _end(process)
        return answer

    def close(self) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        for process, pipe in self._running.values():
            pipe.close()
            process.terminate()
        for process, _ in self._running.values():
            _end(process)
        self._running.clear()


def _serve(pipe: Connection, job: Job, worker: int, threads: int) -> None:
    """What a process does, until the other end of its pipe is gone."""
    # Ctrl-C is for the one who started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):
        try:
            work = job.load(worker, threads)
        except Exception as error:
            pipe.send(LoadFailed(worker, error))
            return
        pipe.send(WorkerReady(worker))
        while True:
            task = pipe.recv()
            try:
                result = work(task)
            except Exception as error:
                # What it left behind, a broken device for one, is nothing to go on with.
                pipe.send(WorkerLost(worker, f"{type(error).__name__}: {error}"))
                return
            pipe.send(TaskDone(worker, result))


def _ending(process: Any) -> str:
    """Why a process is gone."""
    process.join(_PATIENCE_S)
    code = process.exitcode
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"its process was ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"its process ended with status {code}"


def _end(process: Any) -> None:
    process.join(_PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
