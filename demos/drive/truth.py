"""The simulator's truth, and its agreement with remembered objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drive.frames import Frame, Place
from memory import Memory

#: Greatest distance of a right claim, and of claims whose position error is measured.
RIGHT_M, COMPARED_M = 1.0, 2.0


class Sight(NamedTuple):
    """An object in view.

    Attributes:
        time_ns, day: time of the observation.
        label: class name.
        position: (2,) metres in the map.
    """

    time_ns: int
    day: int
    label: str
    position: NDArray[np.float64]


@dataclass
class Truth:
    """Everything that was in view, and the town at the end of each day.

    Attributes:
        sights: observations by object number, in time order.
        days: label and position of each object at the end of each day.
    """

    sights: dict[int, list[Sight]] = field(default_factory=dict)
    days: dict[int, dict[int, tuple[str, NDArray[np.float64]]]] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        """Add the objects of a scan."""
        for seen in frame.visible:
            sight = Sight(frame.time_ns, frame.day, seen.label, seen.position)
            self.sights.setdefault(seen.key, []).append(sight)
        self.days[frame.day] = frame.present

    @property
    def last_day(self) -> int:
        """Number of the last day, from 0."""
        return max(self.days)

    def there(self, day: int | None = None, labels: Sequence[str] | None = None) -> list[Place]:
        """Return objects and positions at the end of a day (by default the last), if they were in view until
        then.
        """
        day = self.last_day if day is None else day
        return [
            Place(key, label, position)
            for key, (label, position) in self.days[day].items()
            if (labels is None or label in labels) and key in self.sights and self.sights[key][0].day <= day
        ]

    def seen_at(self, label: str, position: ArrayLike, within_m: float = 1.2) -> list[Sight]:
        """Return all observations of a label at a place, in time order."""
        at = np.asarray(position)
        found = [
            sight
            for sights in self.sights.values()
            for sight in sights
            if sight.label == label and np.hypot(*(sight.position - at)) <= within_m
        ]
        return sorted(found, key=lambda sight: sight.time_ns)


@dataclass(frozen=True)
class Agreement:
    """Agreement of claimed objects with the truth.

    Attributes:
        claimed: objects that the store claims to be present.
        there: present objects that were in view at some time.
        found: one-to-one pairs of the two, of one label and close together.
        recall: share of the present objects that are paired.
        precision: share of the claims that are paired; a second claim of an object is wrong.
        near_truth: share of the claims close to any object of their label.
        error_median_m, error_95_m: distances from claims to the nearest object of their label, within two
            metres; None without such claims.
    """

    claimed: int
    there: int
    found: int
    recall: float
    precision: float
    near_truth: float
    error_median_m: float | None
    error_95_m: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        return asdict(self)


def agreement(claims: Sequence[Memory], places: Sequence[Place]) -> Agreement:
    """Compare memories of present objects with the true ones."""
    distance = _distances(claims, places)
    nearest = distance.min(axis=1) if places else np.zeros(0)
    errors = nearest[nearest <= COMPARED_M]
    found = len(pairs(distance, RIGHT_M))
    near = (distance <= RIGHT_M).any(axis=1) if len(places) else np.zeros(len(claims), bool)
    return Agreement(
        claimed=len(claims),
        there=len(places),
        found=found,
        recall=found / len(places) if places else 1.0,
        precision=found / len(claims) if claims else 1.0,
        near_truth=float(near.mean()) if len(claims) else 1.0,
        error_median_m=float(np.median(errors)) if len(errors) else None,
        error_95_m=float(np.percentile(errors, 95)) if len(errors) else None,
    )


def pairs(distance: NDArray[np.float64], within_m: float) -> list[tuple[int, int]]:
    """Return rows and columns of one-to-one pairs within a distance, closest first."""
    found: list[tuple[int, int]] = []
    rows: set[int] = set()
    columns: set[int] = set()
    near = np.argwhere(distance <= within_m)
    for row, column in near[np.argsort(distance[tuple(near.T)], kind="stable")].tolist():
        if row not in rows and column not in columns:
            found.append((row, column))
            rows.add(row)
            columns.add(column)
    return found


def same_places(memories: Sequence[Memory], places: Sequence[Place], within_m: float = 1.5) -> bool:
    """True if there is exactly one memory of each place, and no other."""
    return len(memories) == len(places) == len(pairs(_distances(memories, places), within_m))


def _distances(memories: Sequence[Memory], places: Sequence[Place]) -> NDArray[np.float64]:
    """Return (memories, places) distances in the plane, metres; infinite between different labels."""
    found = np.full((len(memories), len(places)), np.inf)
    for row, memory in enumerate(memories):
        for column, place in enumerate(places):
            if memory.label == place.label:
                found[row, column] = np.hypot(*(np.array(memory.position[:2]) - place.position))
    return found
