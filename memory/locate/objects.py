"""Poses from which the objects in view would be where the store knows objects of their labels.

Pairs of an object in view and a stored one give motions: one pair with a known heading, or two pairs (the
matching of :mod:`memory.merging.alignment`). Each motion is fitted to the objects that it matches. Its
evidence is a likelihood ratio against objects at random places: per object ``1 - m + m N(d) / density``.
Here ``m`` is the probability that an object in view is in the store. ``N`` is the normal density of its
distance to the stored one, and ``density`` the number of stored objects of its label per square metre.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.locate.answers import LocateOptions
from memory.locate.places import HEADING_RAD
from memory.merging.fitting import fit_motion, settle
from memory.merging.motion import Motion
from memory.merging.sizes import size_of
from memory.types import Memory

#: Radius around the sensor in which objects are compared, in metres.
REACH_M = 60.0
#: Objects with a ratio of length to width above this have a heading, modulo half a turn, which must agree.
_LONG, _HEADING_RAD = 1.5, math.radians(20.0)
#: Largest number of standard deviations of a match, and of motions that are fitted.
_SIGMAS, _FITTED = 3.0, 150
#: Growth of the position error with distance to the sensor.
_PER_M = 0.01
#: Least number of stored objects that the density assumes: few objects say little about where others stand.
_LEAST_DENSITY = 1.0 / 100.0
#: Exponent of the likelihood ratio of objects: parked cars stand in rows, so they are not independent.
_TEMPER = 0.6


@dataclass(frozen=True, eq=False)
class Objects:
    """Objects in one frame of reference.

    Attributes:
        ids: (N,) int64, -1 without an id.
        labels: N labels.
        places: (N, 3) float64 metres.
        yaw: (N,) float64 radians, NaN for objects without a heading.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.str_]
    places: NDArray[np.float64]
    yaw: NDArray[np.float64]

    @classmethod
    def of(cls, memories: Sequence[Memory]) -> Objects:
        """Return the objects with a label and a position."""
        objects = [each for each in memories if each.kind == "object" and each.label]
        kept = [each for each in objects if each.position is not None]
        return cls(
            np.array([-1 if each.id is None else each.id for each in kept], np.int64),
            np.array([each.label.casefold() for each in kept], np.str_),
            np.array([each.place for each in kept], np.float64).reshape(-1, 3),
            np.array([_heading(each) for each in kept], np.float64),
        )

    def __len__(self) -> int:
        return len(self.ids)


class Mode(NamedTuple):
    """A pose that objects support.

    Attributes:
        motion: map_from_sensor.
        evidence: log likelihood ratio, times the volume of the poses that fit as well, in m² rad.
        sigma_m, sigma_rad: standard deviations.
        matched: (K, 2) int64 rows of the view and of the stored objects.
    """

    motion: Motion
    evidence: float
    sigma_m: float
    sigma_rad: float
    matched: NDArray[np.int64]


class ObjectMatcher:
    """Compares the objects in view with those around some poses.

    Args:
        view: objects in the frame of the sensor.
        known: stored objects of one map.
        options: probabilities and errors.
    """

    def __init__(self, view: Objects, known: Objects, options: LocateOptions) -> None:
        self.view, self.known, self._options = view, known, options
        self._same = view.labels[:, None] == known.labels[None, :]
        self._reach = np.hypot(view.places[:, 0], view.places[:, 1])
        self._variance = 2.0 * options.sigma_m**2 + (_PER_M * self._reach) ** 2

    def around(self, pose: Motion, within_m: float) -> list[Motion]:
        """Return motions with the heading of a pose that put one object in view onto a stored one."""
        if not len(self.view) or not len(self.known):
            return []
        moved = pose.points(self.view.places)
        shift = self.known.places[None, :, :2] - moved[:, None, :2]
        near = self._same & (np.hypot(shift[..., 0], shift[..., 1]) <= within_m)
        return [Motion(pose.yaw_rad, pose.x_m + x, pose.y_m + y) for x, y in shift[near].tolist()]

    def modes(self, motions: Sequence[Motion]) -> list[Mode]:
        """Return the fitted motions with their evidence, each set of matches once."""
        found: dict[tuple[int, ...], Mode] = {}
        for motion in self._promising(motions):
            fitted, matched = self._fit(motion)
            if len(matched):
                key = (*matched.ravel().tolist(), round(fitted.yaw_rad / math.radians(10.0)))
                found.setdefault(key, self._mode(fitted, matched))
        return list(found.values())

    def _promising(self, motions: Sequence[Motion]) -> list[Motion]:
        """Return the motions that may match the most objects."""
        if len(motions) <= _FITTED:
            return list(motions)
        counts = []
        for motion in motions:
            away = motion.points(self.view.places)[:, None, :2] - self.known.places[None, :, :2]
            near = (away**2).sum(axis=2) <= _SIGMAS**2 * self._variance[:, None]
            counts.append(int((near & self._same).any(axis=1).sum()))
        order = np.argsort(-np.array(counts), kind="stable")[:_FITTED]
        return [motions[row] for row in order.tolist()]

    def nothing_matched(self, motion: Motion) -> float:
        """Return the log likelihood ratio if no object in view is in the store."""
        return _TEMPER * float(np.log1p(-self._chances(motion)).sum())

    def match(self, motion: Motion) -> NDArray[np.int64]:
        """Return (K, 2) int64 rows of the view and of the stored objects, each once, the closest first."""
        moved = motion.points(self.view.places)
        away = np.linalg.norm(moved[:, None, :2] - self.known.places[None, :, :2], axis=2)
        off = away**2 / self._variance[:, None]
        turn = np.abs(
            np.remainder(
                self.view.yaw[:, None] + motion.yaw_rad - self.known.yaw[None, :] + math.pi / 2, math.pi
            )
            - math.pi / 2
        )
        fits = self._same & (off <= _SIGMAS**2) & ~(turn > _HEADING_RAD)
        rows, columns = np.nonzero(fits)
        taken: tuple[set[int], set[int]] = (set(), set())
        found = []
        for at in np.argsort(off[rows, columns], kind="stable").tolist():
            row, column = int(rows[at]), int(columns[at])
            if row not in taken[0] and column not in taken[1]:
                taken[0].add(row)
                taken[1].add(column)
                found.append((row, column))
        return np.array(sorted(found), np.int64).reshape(-1, 2)

    def height_m(self, mode: Mode) -> float:
        """Return the height of the sensor in the map by its matches."""
        rows, columns = mode.matched.T
        return float((self.known.places[columns, 2] - self.view.places[rows, 2]).mean())

    def ids(self, mode: Mode) -> tuple[int, ...]:
        """Return the ids of the stored objects that match."""
        return tuple(self.known.ids[mode.matched[:, 1]].tolist())

    def _fit(self, motion: Motion) -> tuple[Motion, NDArray[np.int64]]:
        """Fit a motion to its matches until they stay the same."""

        def fit(motion: Motion, matched: NDArray[np.int64]) -> Motion:
            one, other = self.view.places[matched[:, 0], :2], self.known.places[matched[:, 1], :2]
            if len(matched) > 1:
                return fit_motion(one, other)
            away = (other - motion.points(one))[0]
            return Motion(motion.yaw_rad, motion.x_m + float(away[0]), motion.y_m + float(away[1]))

        return settle(motion, self.match, fit, least=1, rounds=5)

    def _mode(self, motion: Motion, matched: NDArray[np.int64]) -> Mode:
        """Return a fitted motion with its evidence."""
        points = self.view.places[matched[:, 0], :2]
        variance = float(self._variance[matched[:, 0]].mean())
        middle = points.mean(axis=0)
        arm = float(((points - middle) ** 2).sum())
        sigma_rad = min(math.sqrt(variance / max(arm, 1e-9)), HEADING_RAD)
        # The sensor is away from the middle of the matches; the error of the heading moves it.
        lever = sigma_rad * float(np.hypot(*middle))
        at_middle = math.sqrt(variance / len(matched))
        volume = math.log(math.tau**1.5 * at_middle**2 * sigma_rad)
        evidence = self._score(motion, matched) + volume
        return Mode(motion, evidence, math.hypot(at_middle, lever), sigma_rad, matched)

    def _score(self, motion: Motion, matched: NDArray[np.int64]) -> float:
        """Return the log likelihood ratio of a motion."""
        chances = self._chances(motion)
        score = np.log1p(-chances)
        if len(matched):
            rows, columns = matched.T
            moved = motion.points(self.view.places[rows])
            off = ((moved[:, :2] - self.known.places[columns, :2]) ** 2).sum(axis=1) / self._variance[rows]
            normal = np.exp(-off / 2.0) / (math.tau * self._variance[rows])
            chance = chances[rows]
            score[rows] = np.log(1.0 - chance + chance * normal / self._density(motion)[rows])
        return _TEMPER * float(score.sum())

    def _near(self, motion: Motion) -> NDArray[np.bool_]:
        offset = self.known.places[:, :2] - (motion.x_m, motion.y_m)
        return np.asarray(np.hypot(offset[:, 0], offset[:, 1]) <= REACH_M)

    def _density(self, motion: Motion) -> NDArray[np.float64]:
        """Return the density of stored objects of each label where objects stand, per m²."""
        near = self._near(motion)
        counts = (self._same & near[None, :]).sum(axis=1)
        cells = len(np.unique(np.floor(self.known.places[near, :2] / 10.0), axis=0))
        return np.asarray(np.maximum(counts / max(100.0 * cells, 100.0), _LEAST_DENSITY))

    def _chances(self, motion: Motion) -> NDArray[np.float64]:
        """Return the probability of each object in view to be in the store."""
        near = self._near(motion)
        known = (self._same & near[None, :]).sum(axis=1)
        seen = (self.view.labels[:, None] == self.view.labels[None, :]).sum(axis=1)
        return np.asarray(self._options.match * np.minimum(1.0, known / np.maximum(seen, 1)))


def _heading(memory: Memory) -> float:
    """Return the yaw of an object that is longer than wide; NaN for others."""
    size = size_of(memory)
    if size is None or size[0] < _LONG * max(size[1], 1e-6):
        return math.nan
    return memory.yaw
