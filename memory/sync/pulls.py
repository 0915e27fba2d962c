"""Pull requests in progress, so that each request of a robot continues where the last one ended."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.persistence.ids import concat
from memory.persistence.log.batches import Batch, PartialTransfer, Point, Position, ids_of
from memory.sync.outbox import Outbox

#: Pulls kept in memory; the least recently used go first.
_MOST_PULLS = 16


@dataclass(eq=False)
class _Pull:
    """A pull in progress.

    Attributes:
        batches: remaining batches.
        points: the receiver's position at the start.
        generation: generation of the sending store at the start.
        came: (n,) int64 rising ids that the receiver has from unfinished transfers, including this one.
    """

    batches: Iterator[Batch]
    points: tuple[Point, ...]
    generation: int
    came: NDArray[np.int64]

    def continues(self, position: Position, generation: int) -> bool:
        """Return True if nothing was written since, and the receiver has exactly what was sent."""
        same = self.generation == generation and self.points == position.points
        return same and np.array_equal(self.came, _received_ids(position.partial))

    def take(self) -> Batch | None:
        """Return the next batch and count it as received."""
        batch = next(self.batches, None)
        if batch is not None:
            ids = [memory.id for memory in batch.memories if memory.id is not None]
            self.came = np.union1d(self.came, np.array([*ids, *batch.gone], dtype=np.int64))
        return batch


class Pulls:
    """Answers to robots that pull batch by batch; the batches of a pull are planned once.

    Losing a pull is harmless: a robot without one gets a new one with what it lacks.
    """

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str, tuple[str, ...] | None], _Pull] = OrderedDict()
        self._lock = threading.Lock()

    def next(self, outbox: Outbox, position: Position, maps: Sequence[str] | None) -> Batch | None:
        """Return the next batch for a robot, or ``None`` if nothing is new.

        Args:
            outbox: of the store, for this robot.
            position: the robot's position.
            maps: requested maps.
        """
        key = position.store, outbox.robot, None if maps is None else tuple(maps)
        with self._lock:
            pull = self._lists.pop(key, None)
            generation = outbox.generation
            if pull is None or not pull.continues(position, generation):
                came = _received_ids(position.partial)
                pull = _Pull(outbox.batches(position), position.points, generation, came)
            batch = pull.take()
            if batch is not None and batch.whole is None:
                self._lists[key] = pull
                while len(self._lists) > _MOST_PULLS:
                    self._lists.popitem(last=False)
            return batch


def _received_ids(partial: Sequence[PartialTransfer]) -> NDArray[np.int64]:
    return np.unique(concat([ids_of(part.ids) for part in partial]))
