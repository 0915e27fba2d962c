"""Interface of engines, whose workers load once and then run one task after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

#: Runs a task in a worker.
Work = Callable[[Any], Any]


class Job(Protocol):
    """The job of all workers; sent to each worker at its start."""

    def load(self, worker: int, threads: int) -> Work:
        """Prepare a worker, once per process.

        Args:
            worker: number of the worker, from 0.
            threads: threads that it may use.
        """


@dataclass(frozen=True)
class WorkerReady:
    """A worker has loaded and waits for a task."""

    worker: int


@dataclass(frozen=True)
class LoadFailed:
    """A worker failed to load, as all others would."""

    worker: int
    error: Exception


@dataclass(frozen=True)
class TaskDone:
    """A worker has finished its task and waits for another."""

    worker: int
    result: Any


@dataclass(frozen=True)
class WorkerLost:
    """A worker has ended, and its task with it; it can be restarted."""

    worker: int
    reason: str


Answer = WorkerReady | LoadFailed | TaskDone | WorkerLost


class Engine(Protocol):
    """A pool of worker processes.

    Attributes:
        workers: number of workers, numbered from 0.
    """

    workers: int

    def start(self, worker: int) -> None:
        """Start a worker. ``WorkerReady``, ``LoadFailed`` or ``WorkerLost`` follows."""

    def send(self, worker: int, task: Any) -> None:
        """Send a task to a waiting worker. ``TaskDone`` or ``WorkerLost`` follows."""

    def receive(self) -> Answer:
        """Wait for the next answer of any worker."""

    def close(self) -> None:
        """End all workers."""
