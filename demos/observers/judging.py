"""Judge a shared memory by joint labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.tracks import things_of
from memory.merging.trajectories import trajectory_of
from memory.types import Memory
from observers.scenes import Instant

#: Largest distance of a memory to its label.
SAME_M = 2.0
#: A memory is valid this long before its first observation and after its last one: the scans of two sensors
#: are up to 50 ms apart, and frames 100 ms.
_AROUND_NS = 150_000_000
#: Classes that people and detectors confuse, by the name under which they are compared.
_ALIKE = {"van": "car", "motorcyclist": "cyclist", "tricyclist": "cyclist"}


class Score(NamedTuple):
    """Comparison of memories with labels, summed over all labelled times.

    Attributes:
        right: labels with a memory.
        labels: number of labels.
        told: objects that the memory states at these times.
        doubled: of these, further ones of a label that has one already.
        error_m: median distance of the right ones.
    """

    right: int
    labels: int
    told: int
    doubled: int
    error_m: float

    @property
    def precision(self) -> float:
        """Share of the stated objects that are labelled ones, each counted once."""
        return self.right / self.told if self.told else 1.0

    @property
    def recall(self) -> float:
        """Share of the labelled objects that the memory states."""
        return self.right / self.labels if self.labels else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {**self._asdict(), "precision": round(self.precision, 4), "recall": round(self.recall, 4)}


class Stated(NamedTuple):
    """What a memory states at one time: (k, 3) places, k labels and k numbers of objects."""

    places: NDArray[np.float64]
    labels: list[str]
    things: list[int]


def stated_at(memories: Sequence[Memory], time_ns: int) -> Stated:
    """Return where the objects of a memory are at a time; a stay and a movement of one object count once.

    Only objects that were seen before and after that time count, because hidden objects have no labels.
    """
    found: dict[int, tuple[NDArray[np.float64], str]] = {}
    for memory, thing in zip(memories, things_of(memories), strict=True):
        around = memory.first_sight_ns - _AROUND_NS <= time_ns <= memory.last_sight_ns + _AROUND_NS
        if memory.position is None or not around:
            continue
        trajectory = trajectory_of(memory)
        place = np.array(memory.position, np.float64)
        if trajectory is not None:
            place[:2] = trajectory.at(np.array([time_ns]))[0]
        found.setdefault(thing, (place, memory.label))
    places = np.array([place for place, _ in found.values()]).reshape(-1, 3)
    return Stated(places, [label for _, label in found.values()], list(found))


def judge(
    memories: Sequence[Memory], truth: Sequence[Instant], *, classes: Mapping[str, str] = _ALIKE
) -> Score:
    """Compare what a memory states at each labelled time with the labels.

    Objects and labels of one class (vans count as cars) are matched one to one, the closest first, within
    ``SAME_M``. Objects of classes without any label, and where nothing is labelled, such as behind the
    cameras, are not counted.
    """
    labelled = {_class(label, classes) for instant in truth for label in instant.labels}
    right = labels = told = doubled = 0
    errors: list[float] = []
    for instant in truth:
        stated = stated_at(memories, instant.time_ns)
        known = np.array([_class(label, classes) in labelled for label in stated.labels], np.bool_)
        inside = (
            np.flatnonzero(instant.judged(stated.places) & known) if len(known) else np.zeros(0, np.int64)
        )
        apart = np.linalg.norm(stated.places[inside, None, :2] - instant.boxes[None, :, :2], axis=2)
        same = np.array(
            [
                [_class(stated.labels[row], classes) == _class(label, classes) for label in instant.labels]
                for row in inside.tolist()
            ]
        ).reshape(apart.shape)
        apart[~same] = np.inf
        near = apart <= SAME_M
        rows, columns = np.nonzero(near)
        taken: tuple[set[int], set[int]] = (set(), set())
        for at in np.argsort(apart[rows, columns], kind="stable").tolist():
            row, column = int(rows[at]), int(columns[at])
            if row not in taken[0] and column not in taken[1]:
                taken[0].add(row)
                taken[1].add(column)
                errors.append(float(apart[row, column]))
        right, labels, told = right + len(taken[0]), labels + len(instant.labels), told + len(inside)
        doubled += int(near.any(axis=1).sum()) - len(taken[0])
    return Score(right, labels, told, doubled, float(np.median(errors)) if errors else 0.0)


def _class(label: str, classes: Mapping[str, str]) -> str:
    folded = label.lower()
    return classes.get(folded, folded)
