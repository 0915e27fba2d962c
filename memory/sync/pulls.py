"""Lists of what robots have asked for, so that each of their requests goes on where the one before ended."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.persistence.ids import joined
from memory.persistence.log.batches import Batch, PartialTransfer, Point, Position, ids_of
from memory.sync.outbox import Outbox

#: Robots whose lists are kept; those who asked last.
_KEPT = 16


@dataclass(eq=False)
class _Pull:
    """A list under way.

    Attributes:
        batches: the rest of it.
        points: where the receiver was when it began.
        generation: of the sending store then.
        came: (n,) int64, rising: what the receiver has of sends that did not end, this one among them.
    """

    batches: Iterator[Batch]
    points: tuple[Point, ...]
    generation: int
    came: NDArray[np.int64]

    def goes_on(self, position: Position, generation: int) -> bool:
        """Whether nothing was written since, and the receiver has what was sent and nothing else."""
        same = self.generation == generation and self.points == position.points
        return same and np.array_equal(self.came, _came(position.partial))

    def take(self) -> Batch | None:
        """The next batch, which counts as having come."""
        batch = next(self.batches, None)
        if batch is not None:
            ids = [memory.id for memory in batch.memories if memory.id is not None]
            self.came = np.union1d(self.came, np.array([*ids, *batch.gone], dtype=np.int64))
        return batch


class Pulls:
    """Answers robots that ask batch by batch; a list is made once and not for each of its batches.

    Nothing is lost with them: a robot that is not where its list ended gets a new one, of what it lacks.
    """

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str, tuple[str, ...] | None], _Pull] = OrderedDict()
        self._lock = threading.Lock()

    def next(self, outbox: Outbox, position: Position, maps: Sequence[str] | None) -> Batch | None:
        """The next batch for a robot; ``None`` where nothing is new.

        Args:
            outbox: of the store, for this robot.
            position: where the robot is.
            maps: that it asks for.
        """
        key = position.store, outbox.robot, None if maps is None else tuple(maps)
        with self._lock:
            pull = self._lists.pop(key, None)
            generation = outbox.generation
            if pull is None or not pull.goes_on(position, generation):
                came = _came(position.partial)
                pull = _Pull(outbox.batches(position), position.points, generation, came)
            batch = pull.take()
            if batch is not None and batch.whole is None:
                self._lists[key] = pull
                while len(self._lists) > _KEPT:
                    self._lists.popitem(last=False)
            return batch


def _came(partial: Sequence[PartialTransfer]) -> NDArray[np.int64]:
    return np.unique(joined([ids_of(part.ids) for part in partial]))
