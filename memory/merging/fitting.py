"""Least-squares fits of motions, with or without a shift of the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.merging.motion import Motion

#: The shift of a clock is estimated around a guess: a weak pull towards it, in metres per second, keeps the
#: estimate there if no movement determines it. It weighs as much as one mark of 0.3 m after 0.1 s.
_PULL_M_S = 3.0
#: Rounds of Gauss-Newton; the problem is almost linear.
_ROUNDS = 4


def settle(
    motion: Motion,
    match: Callable[[Motion], NDArray[np.int64]],
    fit: Callable[[Motion, NDArray[np.int64]], Motion],
    *,
    least: int,
    rounds: int,
) -> tuple[Motion, NDArray[np.int64]]:
    """Fit a motion to its matches until they stay the same; return both.

    Args:
        motion: the first guess.
        match: returns the (K, 2) int64 rows that match after a motion.
        fit: returns the motion that fits matches best, from the motion that found them.
        least: number of matches below which nothing is fitted.
        rounds: largest number of fits.
    """
    matched = match(motion)
    for _ in range(rounds):
        if len(matched) < least:
            break
        better = fit(motion, matched)
        again = match(better)
        if len(again) < len(matched):
            break
        same = np.array_equal(again, matched)
        motion, matched = better, again
        if same:
            break
    return motion, matched


def fit_motion(one: NDArray[np.float64], other: NDArray[np.float64]) -> Motion:
    """Return the least-squares motion between (N, 2) float64 points; N is at least 2."""
    middle, target = one.mean(axis=0), other.mean(axis=0)
    a, b = one - middle, other - target
    yaw = math.atan2(float((a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()), float((a * b).sum()))
    ((x, y),) = Motion(yaw).points(middle[None]).tolist()
    return Motion(yaw, float(target[0]) - x, float(target[1]) - y)


class Errors(NamedTuple):
    """Standard deviations of a fit.

    Attributes:
        turn_rad: of the rotation; 0 if none was fitted.
        shift_m: of the shift at the centre of the points, along an axis.
        clock_s: of the shift of the clock; 0 if none was fitted.
    """

    turn_rad: float
    shift_m: float
    clock_s: float


class Matches(NamedTuple):
    """Matching positions of both maps.

    Attributes:
        points: (N, 2) float64 metres in the first map.
        velocities: (N, 2) float64 m/s of the points.
        targets: (N, 2) float64 metres in the other map.
    """

    points: NDArray[np.float64]
    velocities: NDArray[np.float64]
    targets: NDArray[np.float64]

    def placed(self, motion: Motion) -> NDArray[np.float64]:
        """Return (N, 2) positions of the points in the other map, at the moments of the targets."""
        return motion.points(self._synchronized(motion))

    def squares(self, motion: Motion) -> float:
        """Return the sum of the squared distances after a motion."""
        return float(((self.placed(motion) - self.targets) ** 2).sum())

    def fit(self, *, turn: bool, clock: bool, pull: bool = False) -> Motion:
        """Return the least-squares motion.

        Args:
            turn: False fits no rotation.
            clock: True fits a shift of the clock as well, by Gauss-Newton steps.
            pull: True pulls the clock weakly towards 0.
        """
        if not clock and turn:
            return fit_motion(self.points, self.targets)
        if not clock:
            return Motion(0.0, *(self.targets.mean(axis=0) - self.points.mean(axis=0)).tolist())
        motion = self.fit(turn=turn, clock=False)
        for _ in range(_ROUNDS):
            jacobian = self._jacobian(motion, turn=turn, clock=True)
            apart = (self.targets - self.placed(motion)).ravel()
            if pull:
                pulled = np.zeros(jacobian.shape[1])
                pulled[-1] = _PULL_M_S
                jacobian = np.vstack([jacobian, pulled])
                apart = np.append(apart, -_PULL_M_S * motion.clock_ns / 1e9)
            step = np.linalg.lstsq(jacobian, apart, rcond=None)[0].tolist()
            yaw = step.pop(0) if turn else 0.0
            x, y, clock_s = step
            motion = Motion(
                motion.yaw_rad + yaw, motion.x_m + x, motion.y_m + y, motion.clock_ns + round(clock_s * 1e9)
            )
        return motion

    def errors(self, motion: Motion, variance: float, share: float, *, turn: bool, clock: bool) -> Errors:
        """Return the standard deviations of a fitted motion; infinite if nothing determines a part.

        Args:
            motion: fitted motion.
            variance: of a position along an axis, in square metres.
            share: independent objects per mark, because the errors of one object are correlated.
            turn, clock: parts that were fitted.
        """
        centred = self._replace(points=self.points - self.points.mean(axis=0))
        # The rotation about the centre of the points does not shift them.
        about = Motion(motion.yaw_rad, clock_ns=motion.clock_ns)
        jacobian = centred._jacobian(about, turn=turn, clock=clock)
        information = share * jacobian.T @ jacobian
        if np.linalg.cond(information) > 1e12:
            return Errors(math.inf, math.inf, math.inf)
        deviations = np.sqrt(variance * np.diag(np.linalg.inv(information))).tolist()
        turn_rad = deviations.pop(0) if turn else 0.0
        x, y = deviations[:2]
        return Errors(turn_rad, math.sqrt((x * x + y * y) / 2.0), deviations[2] if clock else 0.0)

    def _synchronized(self, motion: Motion) -> NDArray[np.float64]:
        """Return (N, 2) positions of the points in the first map, at the moments of the targets."""
        return self.points - self.velocities * (motion.clock_ns / 1e9)

    def _jacobian(self, motion: Motion, *, turn: bool, clock: bool) -> NDArray[np.float64]:
        """Return (2 N, parameters) derivatives of the placed points by rotation, x, y and seconds."""
        rotation = motion.turn()[:2, :2]
        columns = [np.tile([1.0, 0.0], len(self.points)), np.tile([0.0, 1.0], len(self.points))]
        if turn:
            ahead = self._synchronized(motion) @ rotation.T
            columns.insert(0, np.column_stack([-ahead[:, 1], ahead[:, 0]]).ravel())
        if clock:
            columns.append((-self.velocities @ rotation.T).ravel())
        return np.column_stack(columns)
