"""Run each task once on a pool of workers, and return results in the order of the tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from perception.engines.protocol import Answer, Engine, LoadFailed, TaskDone, WorkerLost
from perception.errors import PerceptionError

_Task = TypeVar("_Task", bound="Task")
#: Largest number of finished tasks per worker that wait for an earlier one.
_AHEAD = 8


class Task(Protocol):
    """A unit of work; picklable."""

    def pieces(self: _Task) -> Sequence[_Task]:
        """Split into smaller tasks, in order; return itself if it cannot be split."""


@dataclass(frozen=True)
class TaskResult(Generic[_Task]):
    """A task and its result.

    Attributes:
        task: the task.
        result: its result; a ``WorkerLost`` if all attempts failed.
    """

    task: _Task
    result: object


class _TaskSlot(Generic[_Task]):
    def __init__(self, task: _Task) -> None:
        self.task = task
        self.tries = 0
        self.done = False
        self.result: object = None


class EngineError(PerceptionError):
    """Workers that end before they are ready."""


def run_in_order(
    engine: Engine,
    tasks: Iterable[_Task],
    *,
    attempts: int = 3,
    check: Callable[[_Task, object], _Task | None] = lambda task, result: None,
) -> Iterator[TaskResult[_Task]]:
    """Run tasks as workers become free, and yield results in the order of the tasks.

    If a worker is lost, its task is split and the pieces run on other workers. A piece that is lost
    ``attempts`` times is given up. Tasks are requested when needed; without tasks no worker starts.

    Args:
        engine: engine that has not started; the caller closes it.
        tasks: tasks in order.
        attempts: largest number of workers lost per task.
        check: called with each result in order; returns a replacement task, or None to accept the result.

    Raises:
        EngineError: ``attempts`` workers in a row ended before they were ready.
        Exception: an exception of a worker during loading.
    """
    return iter(_Run(engine, iter(tasks), attempts, check))


class _Run(Generic[_Task]):
    """State of a run; ``_waiting`` holds all tasks whose results are not yielded yet, in order."""

    def __init__(
        self,
        engine: Engine,
        tasks: Iterator[_Task],
        attempts: int,
        check: Callable[[_Task, object], _Task | None],
    ) -> None:
        self._engine, self._tasks, self._attempts, self._check = engine, tasks, attempts, check
        self._waiting, self._again = deque[_TaskSlot[_Task]](), deque[_TaskSlot[_Task]]()
        self._held: dict[int, _TaskSlot[_Task]] = {}
        self._idle: list[int] = []
        self._started = self._ended = False
        self._unready = 0

    def __iter__(self) -> Iterator[TaskResult[_Task]]:
        while True:
            self._hand_out()
            if self._waiting and self._waiting[0].done:
                slot = self._waiting[0]
                other = None if isinstance(slot.result, WorkerLost) else self._check(slot.task, slot.result)
                if other is not None:
                    slot.task, slot.done = other, False
                    self._again.appendleft(slot)
                else:
                    yield TaskResult(slot.task, self._waiting.popleft().result)
            elif self._ended and not self._waiting:
                return
            else:
                self._take(self._engine.receive())

    def _hand_out(self) -> None:
        while self._idle or not self._started:
            slot = self._again.popleft() if self._again else self._next()
            if slot is None:
                return
            if not self._started:
                self._started = True
                self._again.append(slot)
                for worker in range(self._engine.workers):
                    self._engine.start(worker)
                return
            worker = self._idle.pop()
            self._held[worker] = slot
            self._engine.send(worker, slot.task)

    def _next(self) -> _TaskSlot[_Task] | None:
        if self._ended or len(self._waiting) >= _AHEAD * self._engine.workers:
            return None
        for task in self._tasks:
            slot = _TaskSlot(task)
            self._waiting.append(slot)
            return slot
        self._ended = True
        return None

    def _take(self, answer: Answer) -> None:
        worker = answer.worker
        if isinstance(answer, LoadFailed):
            raise answer.error
        if isinstance(answer, WorkerLost):
            if worker in self._held:
                self._lose(self._held.pop(worker), answer)
            else:
                self._unready += 1
                if self._unready >= self._attempts:
                    raise EngineError(
                        f"{self._unready} workers in a row ended before they were ready; the last one:"
                        f" {answer.reason}. Use fewer --workers."
                    )
            self._engine.start(worker)
            return
        if isinstance(answer, TaskDone):
            slot = self._held.pop(worker)
            slot.done, slot.result = True, answer.result
        self._unready = 0
        self._idle.append(worker)

    def _lose(self, slot: _TaskSlot[_Task], lost: WorkerLost) -> None:
        """Split a lost task, retry it, or give it up."""
        pieces = slot.task.pieces()
        slot.tries += 1
        if len(pieces) > 1:
            place = self._waiting.index(slot)
            del self._waiting[place]
            parts = [_TaskSlot(piece) for piece in pieces]
            for part in reversed(parts):
                self._waiting.insert(place, part)
            self._again.extendleft(reversed(parts))
        elif slot.tries >= self._attempts:
            slot.done, slot.result = True, lost
        else:
            self._again.appendleft(slot)
