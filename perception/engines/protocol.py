"""What an engine is: workers that load once, and then do one task at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

#: Does a task in a worker.
Work = Callable[[Any], Any]


class Job(Protocol):
    """What all workers do; sent to each as it starts."""

    def load(self, worker: int, threads: int) -> Work:
        """Make a worker ready, once in its process.

        Args:
            worker: its number, from 0.
            threads: how many it may use.
        """


@dataclass(frozen=True)
class WorkerReady:
    """A worker has loaded, and takes a task."""

    worker: int


@dataclass(frozen=True)
class LoadFailed:
    """A worker cannot load, nor can any other."""

    worker: int
    error: Exception


@dataclass(frozen=True)
class TaskDone:
    """A worker has done its task, and takes another."""

    worker: int
    result: Any


@dataclass(frozen=True)
class WorkerLost:
    """A worker is gone, and its task with it; it can be started again."""

    worker: int
    reason: str


Answer = WorkerReady | LoadFailed | TaskDone | WorkerLost


class Engine(Protocol):
    """Processes that work.

    Attributes:
        workers: how many there are, numbered from 0.
    """

    workers: int

    def start(self, worker: int) -> None:
        """Start one that does not run. ``WorkerReady``, ``LoadFailed`` or ``WorkerLost`` follows."""

    def send(self, worker: int, task: Any) -> None:
        """Give a task to one that waits. ``TaskDone`` or ``WorkerLost`` follows."""

    def receive(self) -> Answer:
        """Wait for what follows next, of any worker."""

    def close(self) -> None:
        """End all of them."""
