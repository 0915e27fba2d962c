"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection, wait
from typing import Any

from perception.engines.protocol import Answer, Job, LoadFailed, TaskDone, WorkerLost, WorkerReady

#: Seconds to wait for a process to exit.
_PATIENCE_S = 5.0


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Workers as new processes that share the cores.

    Args:
        job: job of all workers.
        workers: number of workers.

    Raises:
        ValueError: less than one worker.
    """

    def __init__(self, job: Job, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self._job, self._threads = job, max(1, usable_cores() // workers)
        # A fork of this process would inherit locks of missing threads and could not use CUDA. A fork server
        # imports the job's module once for all workers.
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
        # Keep only our end open, so that the pipe ends with the process.
        theirs.close()
        self._running[worker] = process, ours

    def send(self, worker: int, task: Any) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        # receive() reports a worker that has ended.
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
    """Run a worker until the other end of its pipe is closed."""
    # The parent handles Ctrl-C.
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
                # Do not continue: the error may have left a broken device.
                pipe.send(WorkerLost(worker, f"{type(error).__name__}: {error}"))
                return
            pipe.send(TaskDone(worker, result))


def _ending(process: Any) -> str:
    """Describe why a process ended."""
    process.join(_PATIENCE_S)
    code = process.exitcode
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"its process was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"its process exited with status {code}"


def _end(process: Any) -> None:
    process.join(_PATIENCE_S)
    if process.is_alive():
        process.kill()
        process.join()
